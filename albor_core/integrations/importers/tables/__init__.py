"""Tables that any program writes: CSV, TSV, JSON lines and JSON."""
