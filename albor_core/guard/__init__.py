"""Keeps a program alive: starts, watches, restarts, reports; standard library and `run` only."""
