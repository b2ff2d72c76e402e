"""Documents in, token shards out."""
