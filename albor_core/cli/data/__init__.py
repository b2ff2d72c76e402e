"""`albor data` and `albor tokenizer`."""
