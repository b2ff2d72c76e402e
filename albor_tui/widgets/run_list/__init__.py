"""The table of runs: its headings and lines, and the columns that the user added."""
