"""The terminal: a link that may be slow, and the fewest bytes over it."""
