"""A program that has not been read by a person: run apart from everything, judged from outside."""
