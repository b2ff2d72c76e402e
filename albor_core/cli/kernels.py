"""`albor kernels`: which backend runs each operation on this machine, and the evidence."""

from __future__ import annotations

from dataclasses import asdict

import click

from albor_core.cli.lazy import LazyGroup
from albor_core.cli.output import emit, json_option, say, table


@click.group(
    cls=LazyGroup,
    entries={"check": (f"{__name__}:check", "Parity and speed of each candidate; the choice.")},
)
def kernels() -> None:
    """Which kernel runs each operation here, and why."""


@kernels.command()
@json_option
def check(as_json: bool) -> None:
    """Check every candidate against fp64, time those that pass, say which one is taken."""
    import torch

    from albor_core.kernels.dispatch import OPS, choose

    device = "cuda" if torch.cuda.is_available() else "cpu"
    dtypes = (torch.float32, torch.bfloat16, torch.float16)
    made = [choose(op, device, dtype) for op in OPS for dtype in dtypes]
    if as_json:
        emit({"schema": "albor.kernels.check/1", "choices": [asdict(choice) for choice in made]})
        return
    rows = [(c.op, c.device, c.dtype, c.backend, c.evidence) for c in made]
    say(table(("op", "device", "dtype", "backend", "why"), rows))
    for choice in made:
        for why in choice.rejected:
            say(f"rejected: {choice.op} {choice.dtype}: {why}")
