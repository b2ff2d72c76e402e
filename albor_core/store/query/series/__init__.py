"""Questions about the series of a run: numbers, windows to draw, points."""
