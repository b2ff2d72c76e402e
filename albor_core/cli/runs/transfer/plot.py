"""`albor runs plot`: one metric of some runs as a picture in a file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from albor_core.cli.common.output import clean, emit, json_option, out_file, print_note
from albor_core.cli.plans.file_plan import plans
from albor_core.cli.runs.transfer.export import chosen, filter_option, sources
from albor_core.run.errors import NotFoundError, UsageError
from albor_core.run.values.quantity import counted

if TYPE_CHECKING:
    from albor_core.history.one_run import RecordedRun

_FORMATS = ("svg", "png")


@click.command()
@click.argument("references", nargs=-1, metavar="[RUN]...")
@filter_option
@click.option(
    "--metric", required=True, help="Plot this metric: its full name, or the last part of it."
)
@click.option(
    "--x", type=click.Choice(("step", "tokens", "wall")), default="step", show_default=True,
    help="Plot over steps, tokens, or the time since each run began.",
)  # fmt: skip
@click.option("--log", "is_log", is_flag=True, help="Use a logarithmic scale for the values.")
@click.option(
    "--out", "-o", type=click.Path(path_type=Path, dir_okay=False), required=True,
    help="Write to this file: SVG or PNG, by its suffix.",
)  # fmt: skip
@click.option("--force", is_flag=True, help="Replace the file if it exists.")
@json_option
@plans(sources)
def plot(
    references: tuple[str, ...],
    terms: str | None,
    metric: str,
    x: Literal["step", "tokens", "wall"],
    is_log: bool,
    out: Path,
    force: bool,
    as_json: bool,
) -> None:
    """Plot one metric of up to forty runs into a file.

    Of a long series the lowest and highest values of each interval are drawn as a band, so that no
    spike is lost. SVG needs no other package; PNG needs Pillow.
    """
    form = out.suffix.lstrip(".").lower()
    if form not in _FORMATS:
        raise UsageError(f"{out}: which format?", hint="--out x.svg or x.png")
    if os.path.lexists(out) and not force:
        raise UsageError(f"{out}: exists", hint="another --out, or --force")
    from albor_core.history.one_run import bring_up
    from albor_core.picture.line_picture import svg_file
    from albor_core.picture.png import png_file
    from albor_core.report.plot import plot_of, plot_picture

    runs = list(chosen(references, terms))
    drawn = runs if terms is None else _with_metric(runs, metric, terms)
    for run in drawn:
        if why := bring_up(run.folder):
            print_note(clean(f"{run.id}: {why}"))
    made = plot_of([(run.store, run.row) for run in drawn], metric, x=x, is_log=is_log)
    drawn_picture = plot_picture(made)
    picture = png_file(drawn_picture) if form == "png" else svg_file(drawn_picture)
    with out_file(out, replace=force) as file:
        file.write(picture)
    left_out = [run.id for run in runs if run not in drawn]
    if as_json:
        named: Any = form
        emit({"schema": "albor.runs.plot/1", "path": str(out), "format": named,
              "metric": made.metric, "x": x, "log": is_log, "runs": [run.id for run in drawn],
              "left_out": left_out})  # fmt: skip
    else:
        print_note(f"{made.metric} of {counted(len(drawn), 'run')} in {clean(out)}")
    if left_out:
        print_note(f"left out: {counted(len(left_out), 'run')} without {clean(metric)}")
    if made.hidden:
        print_note(f"not shown: {counted(made.hidden, 'value')} of 0 and below, with no logarithm")


def _with_metric(runs: Sequence[RecordedRun], metric: str, terms: str) -> list[RecordedRun]:
    """The runs with the metric among those that the filter `terms` found. Raises NotFoundError if
    none has it."""
    from albor_core.store.file.crowded import refuse_without_room
    from albor_core.store.query.names import has_metric, nearest

    if not runs:
        why = f"no run matches {terms!r}" if terms.strip() else "no run is recorded yet"
        raise NotFoundError(f"cannot plot {metric!r}: {why}", hint="albor runs ls")
    found = [run for run in runs if has_metric(metric, run.keys)]
    if not found:
        refuse_without_room(((run.folder, run.keys) for run in runs), metric)
        names = {key for run in runs for key in run.keys}
        raise NotFoundError(
            f"cannot plot {metric!r}: no run that was chosen has it{nearest(metric, names)}",
            hint="albor runs ls FILTER",
        )
    return found
