"""Media that other trackers hold."""
