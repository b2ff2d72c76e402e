"""Runs as a page or a picture."""
