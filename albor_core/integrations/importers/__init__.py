"""Histories that other trackers wrote, read in."""
