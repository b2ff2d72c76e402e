"""From the files of a run to rows: the index process and its writers."""
