"""What all commands share: output, look-up, following, words."""
