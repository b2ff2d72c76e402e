"""What a run would take: facts, estimates, memory, text; and the launch that follows."""
