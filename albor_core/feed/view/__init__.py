"""What is shown of runs, as frozen values: one run, all runs, their state and diagnostics."""
