"""All runs: which there are and what each is doing."""
