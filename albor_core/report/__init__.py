"""Runs as a page, a picture or a table for other programs."""
