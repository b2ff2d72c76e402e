"""Many charts side by side, looked at alike."""
