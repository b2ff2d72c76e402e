"""`albor alerts` and `albor attention`."""
