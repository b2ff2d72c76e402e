"""Files and folders that are there whole or not at all: identity, place, building, lineage."""
