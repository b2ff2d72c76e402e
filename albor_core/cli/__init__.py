"""`albor`: one module a noun, imported when its command runs."""
