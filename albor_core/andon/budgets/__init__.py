"""What a run may use: limits, what is used, what it will be at the end; pure."""
