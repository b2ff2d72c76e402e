"""The series of a run in its store: points, zoom levels, the step at a moment."""
