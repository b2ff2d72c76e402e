"""Waiting for what a run will say, without asking again and again."""
