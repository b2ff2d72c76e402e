"""Where it runs: a config planned on this machine, its run directory made, handed to a launcher."""
