"""The sections of a training config: a module each, with its fields, bounds and defaults."""
