"""Small screens that ask or explain."""
