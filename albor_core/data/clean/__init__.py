"""Which documents stay: quality, duplicates, secrets, licences, contamination."""
