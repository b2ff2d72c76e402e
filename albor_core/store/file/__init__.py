"""One SQLite file: where it lies, its schema, upgrades, connections."""
