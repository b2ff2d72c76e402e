"""`albor model`, `albor generate` and `albor bench`."""
