"""One run followed: files, store, alerts, end of its log."""
