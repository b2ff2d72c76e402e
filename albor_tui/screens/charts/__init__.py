"""What the charts of the screens show: which curves, and how they are laid out. Pure."""
