"""Model in, numbers out: tasks, their plans, and results that are kept item by item."""
