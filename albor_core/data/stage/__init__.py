"""One step over a corpus: in parts, by several processes, resumed after a kill, with a record."""
