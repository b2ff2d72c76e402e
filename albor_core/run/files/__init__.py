"""How bytes reach the disk: whole files, appended lines, hashes, headers."""
