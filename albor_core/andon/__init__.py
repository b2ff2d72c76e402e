"""When to pull the cord: rules, budgets, bricks, severities; pure."""
