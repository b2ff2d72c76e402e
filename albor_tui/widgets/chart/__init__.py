"""Charts, from data to cells."""
