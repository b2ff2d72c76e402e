"""Starts a run: plans its config on this machine, makes its run directory, calls a launcher."""
