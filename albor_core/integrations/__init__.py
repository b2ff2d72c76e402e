"""Other people's training loops and trackers."""
