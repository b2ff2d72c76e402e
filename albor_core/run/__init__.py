"""Every file of a run directory: its name, its one writer, its one reader, its words."""
