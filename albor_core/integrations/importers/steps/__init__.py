"""Where the values of a history lie: at the steps that its author meant."""
