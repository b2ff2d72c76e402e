"""What screens are made of; each draws one value."""
