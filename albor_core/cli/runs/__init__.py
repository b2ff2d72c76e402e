"""`albor runs`."""
