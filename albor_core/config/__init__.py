"""WHAT A RUN IS TOLD: sections, numbers, strict YAML, shapes, edits, reference."""
