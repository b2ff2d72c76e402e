"""Bricks, the timed parts of a step: names, budgets set and learned, coverage, variation; pure."""
