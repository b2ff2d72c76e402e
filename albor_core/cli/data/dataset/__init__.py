"""A whole data set: built from its recipe, counted, and where it comes from."""
