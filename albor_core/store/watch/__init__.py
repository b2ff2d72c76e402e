"""Watches a run that lives: figures, rules, health; tells, and asks its guard to act."""
