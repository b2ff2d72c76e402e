"""The list of runs: its screen, its order, what is selected."""
