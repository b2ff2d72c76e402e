"""Runs brought here, moved, and taken out as files and pictures."""
