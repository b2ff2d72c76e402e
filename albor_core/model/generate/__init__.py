"""New tokens after a prompt: key/value cache, sampling, many sequences at once."""
