"""What the screens know and can do: sources, actions, launches."""
