"""What each recipe asks of a config: one file a recipe, by the values of training.mode."""
