"""What of many runs is compared on one screen."""
