"""Code that a model writes: task files, a sandbox to run it in, and pass@k."""
