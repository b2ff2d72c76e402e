"""A config as it is written: files, YAML, overrides, names of fields, problems with their lines."""
