"""`albor runs diff`: what differs between runs, and which is better."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from albor_core.cli.common.goals import goal_option
from albor_core.cli.common.lookup import db_option, locate, locate_whole, open_store_of
from albor_core.cli.common.output import emit, json_option, print_line, print_note
from albor_core.run.errors import UsageError

if TYPE_CHECKING:
    from albor_core.store.query.reader import Reader


@click.command()
@click.argument("references", nargs=-1, required=True, metavar="[A] B [C...]")
@click.option(
    "--metric",
    help="Metric to compare.  [default: what you chose for their experiment in the cockpit (m),"
    " else the main metric of all of them]",
)
@goal_option
@db_option
@json_option
def diff(
    references: tuple[str, ...],
    metric: str | None,
    goals: tuple[str, ...],
    db: str | None,
    as_json: bool,
) -> None:
    """Show what differs between runs, how long each needed, and a verdict that allows for seed
    noise.

    Each is compared with the first; of more than 26 runs only the first 26 are compared. A single
    run is compared with the baseline: the newest pinned run (albor runs pin).
    """
    from albor_core.cli.runs.diff_text import render_diff
    from albor_core.feed.runs.listed_status import status_of
    from albor_core.feed.workspace.views import ViewsFile
    from albor_core.run.values.directions import parse_goals
    from albor_core.store.diff.compare import diff_runs, is_at_work

    ways, chosen = parse_goals(goals), {} if metric else ViewsFile().read().metrics
    with open_store_of(references, db) as reader:
        meant = [locate(one, db) if db is not None else locate_whole(one) for one in references]
        runs = [run for run, _ in meant]
        own = {run: path for run, path in meant if path is not None and db is None}
        if len(runs) == 1:
            runs = [_baseline(reader, runs[0], own), *runs]
        found = diff_runs(reader, runs, metric=metric, goals=ways, own_stores=own, chosen=chosen)
    made: Any = found.to_json()
    for run, row in zip(made["runs"], found.runs, strict=True):
        run |= {"status": status_of(row), "is_at_work": is_at_work(run)}
    if as_json:
        emit(made)
    else:
        print_line(render_diff(made))
    if mine := [row.experiment for row in found.runs if chosen.get(row.experiment) == found.metric]:
        print_note(f"by {found.metric}, your choice for {mine[0]}; --metric compares by another")
    if found.left_out:
        named = " ".join(found.left_out)
        print_note(
            f"compared are the first {len(found.runs)} of {len(runs)} runs; left out: {named}"
        )


def _baseline(reader: Reader, run: str, own_stores: Mapping[str, Path]) -> str:
    """The newest pinned run but `run`. Raises UsageError where none is, NotFoundError for `run`."""
    from albor_core.store.diff.source import row_of
    from albor_core.store.query.filter import parse_filter

    row_of(reader, run, own_stores)
    pinned = [row.id for row in reader.runs(where=parse_filter("pinned"), limit=2)]
    others = [name for name in pinned if name != run]
    if not others:
        raise UsageError(
            "give two to 26 runs, or pin the one to compare with",
            hint=f"albor runs diff {run} OTHER, or albor runs pin OTHER",
        )
    return others[0]
