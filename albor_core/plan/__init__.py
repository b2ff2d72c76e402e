"""WHAT IT WOULD TAKE: facts, estimates, memory, text; and the launch that follows from a plan."""
