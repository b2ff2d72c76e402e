"""How values are distributed: a histogram, and one for each of many layers."""
