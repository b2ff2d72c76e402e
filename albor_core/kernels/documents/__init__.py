"""Attention that stays within the documents of a packed row."""
