"""One attempt as a process: its lock, its signals, its last words, its planned faults."""
