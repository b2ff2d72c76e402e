"""Out to a checkpoint and back: train state, random numbers, rewinds."""
