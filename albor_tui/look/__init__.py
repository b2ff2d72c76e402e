"""How things look: glyphs, themes, numbers, names."""
