"""The training loop and what stands around it: `loop.py` reads top to bottom."""
