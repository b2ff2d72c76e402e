"""`albor guard`."""
