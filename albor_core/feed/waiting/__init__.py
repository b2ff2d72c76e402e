"""Block until a run meets a condition, without polling."""
