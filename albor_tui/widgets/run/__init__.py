"""The parts of a Run screen."""
