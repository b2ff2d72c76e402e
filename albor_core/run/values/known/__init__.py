"""Which names of metrics are known, and from where."""
