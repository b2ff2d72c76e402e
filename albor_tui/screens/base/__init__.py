"""What screens are made of: what polls, and what acts on runs."""
