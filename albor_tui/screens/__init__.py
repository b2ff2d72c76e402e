"""One module or folder a screen."""
