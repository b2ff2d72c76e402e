"""`albor data dedup`: leave out documents that are there already."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from albor_core.cli.data.step_command import planned_step, run, step_of_plan, step_options
from albor_core.run.errors import UsageError


@click.command()
@click.argument("corpus", type=click.Path(path_type=Path))
@click.option("--near", is_flag=True, help="Also leave out similar documents.")
@click.option(
    "--threshold",
    type=float,
    help="With --near, call documents similar from this share of common 5-token runs "
    "(Jaccard).  [default: 0.8]",
)
@click.option(
    "--normalize", is_flag=True, help="Treat texts that differ only in white space as equal."
)
@click.option(
    "--against",
    multiple=True,
    metavar="OTHER",
    type=click.Path(path_type=Path),
    help="Leave out documents that this corpus holds, such as a validation set; repeatable.",
)
@step_options
@planned_step(lambda told: told["against"])
def dedup(
    corpus: Path,
    near: bool,
    threshold: float | None,
    normalize: bool,
    against: tuple[Path, ...],
    **how: Any,
) -> None:
    """Keep the first of equal documents of CORPUS, in its order, and leave out the others.

    Every document that is left out has a kept one that is as similar: candidates are compared
    exactly.
    """
    from albor_core.data.clean.dedup import dedup_step, run_dedup

    if threshold is not None and not near:
        raise UsageError("--threshold is for similar documents", hint="add --near")
    asked: dict[str, Any] = {"near": near, "normalize": normalize}
    asked |= {} if threshold is None else {"threshold": threshold}
    with step_of_plan("dedup", corpus, how["out"], how["only_plan"]):
        step = dedup_step(corpus, **asked, against=against)

    def do(source: Path, out: Path, _: object, **options: Any) -> Any:
        return run_dedup(source, out, step, **options)

    run("dedup", corpus, step, do=do, **how)
