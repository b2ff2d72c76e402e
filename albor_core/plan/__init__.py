"""What a run would take: facts, estimates, memory, text; pure."""
