"""Documents in."""
