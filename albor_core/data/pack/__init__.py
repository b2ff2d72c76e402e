"""Tokens out: tokenizer, packed shards, datasets."""
