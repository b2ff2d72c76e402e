"""Pictures and tables of a run in cells, and charts as pictures for files."""
