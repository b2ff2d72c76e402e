"""What warns, pauses or stops a run: rules, budgets, bricks, severities; pure."""
