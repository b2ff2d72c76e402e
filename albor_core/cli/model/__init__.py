"""`albor model`."""
