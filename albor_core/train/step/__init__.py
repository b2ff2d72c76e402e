"""One optimizer step: how it is computed, timed, and judged stable."""
