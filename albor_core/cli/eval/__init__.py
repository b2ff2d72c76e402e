"""`albor eval`."""
