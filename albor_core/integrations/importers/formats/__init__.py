"""File formats that trackers write, read with bounds: protocol buffers, SQLite."""
