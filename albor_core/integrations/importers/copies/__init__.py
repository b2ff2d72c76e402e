"""Runs of Albor from elsewhere: read in a folder or on another host, copied into this home."""
