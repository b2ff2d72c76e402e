"""`albor train`."""
