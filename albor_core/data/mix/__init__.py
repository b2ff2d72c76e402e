"""How many of which documents, in which part and which form: mix, split, fill in the middle."""
