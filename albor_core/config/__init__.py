"""What a run is told: sections, numbers, strict YAML, shapes, edits, reference."""
