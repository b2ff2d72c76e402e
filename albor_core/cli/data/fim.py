"""`albor data fim`: documents cut for fill-in-the-middle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from albor_core.cli.common.count import COUNT
from albor_core.cli.data.step_command import planned_step, run, step_options


@click.command()
@click.argument("corpus", type=click.Path(path_type=Path))
@click.option("--rate", default=0.5, show_default=True, help="Cut this share of the documents.")
@click.option(
    "--format", "form", default="psm", type=click.Choice(["psm", "spm"]), show_default=True,
    help="Put the prefix first, or the suffix.",
)  # fmt: skip
@click.option("--seed", default=42, type=COUNT, show_default=True)
@click.option(
    "--min-chars", default=32, type=COUNT, show_default=True,
    help="Leave documents of fewer characters unchanged.",
)  # fmt: skip
@click.option("--prefix", default="<|fim_prefix|>", show_default=True, metavar="TOKEN")
@click.option("--middle", default="<|fim_middle|>", show_default=True, metavar="TOKEN")
@click.option("--suffix", default="<|fim_suffix|>", show_default=True, metavar="TOKEN")
@step_options
@planned_step()
def fim(
    corpus: Path,
    rate: float,
    form: str,
    seed: int,
    min_chars: int,
    prefix: str,
    middle: str,
    suffix: str,
    **how: Any,
) -> None:
    """Cut documents of CORPUS in three at random and put the middle last, between sentinel tokens
    (fill in the middle).

    The seed and a document's name decide whether and where it is cut. Documents that already
    contain a sentinel are never changed.
    """
    from albor_core.data.mix.fim import FillInTheMiddle, Sentinels

    step = FillInTheMiddle(rate, form, seed, min_chars, Sentinels(prefix, middle, suffix))
    run("fim", corpus, step, **how)
