"""Compare runs: what differs, and which is better."""
