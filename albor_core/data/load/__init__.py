"""Token rows as batches: a map that processes share; orders and mixtures by the clock alone."""
