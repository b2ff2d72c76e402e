"""The tabs of the Run screen."""
