"""What happened: SQLite stores made from the files of runs, and questions to them."""
