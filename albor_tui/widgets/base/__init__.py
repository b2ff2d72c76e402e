"""What the other widgets are made of."""
