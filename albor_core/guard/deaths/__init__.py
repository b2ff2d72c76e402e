"""Why an attempt died: hangs, evidence, crash reports, what earlier attempts left."""
