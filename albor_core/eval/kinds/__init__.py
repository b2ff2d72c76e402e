"""The kinds of tasks that ask for likelihoods or text, and the data that they read."""
