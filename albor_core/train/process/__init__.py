"""One attempt as a process: its lock, its signals, its exit record, its planned faults."""
