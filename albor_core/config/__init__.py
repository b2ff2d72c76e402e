"""What a run is told: sections, numbers, strict YAML, shapes, changes on resume, reference."""
