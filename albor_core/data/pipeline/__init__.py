"""A whole corpus from one recipe file: what is done in turn, and what is said of the result."""
