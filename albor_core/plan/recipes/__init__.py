"""What a run of each recipe takes, its memory and its time, without torch: one file a recipe."""
