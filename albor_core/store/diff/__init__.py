"""What differs between runs, and which is better."""
