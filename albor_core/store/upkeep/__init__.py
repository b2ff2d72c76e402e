"""Check, rebuild, move, remove."""
