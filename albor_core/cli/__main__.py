"""`python -m albor_core.cli` is `albor`."""

from albor_core.cli.main import run

run()
