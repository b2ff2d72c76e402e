"""`albor train` and `albor init`."""
