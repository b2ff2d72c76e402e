"""What a store hands out: frozen rows."""
