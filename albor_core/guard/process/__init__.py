"""Processes without races: found, adopted, signalled, bounded."""
