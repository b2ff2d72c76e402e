"""Built things: what one is by its identity, where it lies, how it comes there whole, from what."""
