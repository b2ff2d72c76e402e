"""`albor report`: runs as one page that can be mailed, archived, put beside a model card."""

from __future__ import annotations

from pathlib import Path

import click

from albor_core.cli.common.goals import goal_option
from albor_core.cli.common.lookup import db_option, locate, open_store_of
from albor_core.cli.common.output import emit, json_option, out_file, print_note
from albor_core.cli.plans.file_plan import plans, run_source
from albor_core.run.errors import UsageError


@click.command()
@click.argument("references", nargs=-1, required=True, metavar="RUN...")
@click.option(
    "--out",
    "-o",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    help="Write the page to this file.",
)
@click.option("--metric", help="Metric to compare.  [default: val/loss, or train/loss]")
@goal_option
@click.option("--force", is_flag=True, help="Replace the file if it exists.")
@db_option
@json_option
@plans(lambda told: map(run_source, told["references"]))
def report(
    references: tuple[str, ...],
    out: Path,
    metric: str | None,
    goals: tuple[str, ...],
    force: bool,
    db: str | None,
    as_json: bool,
) -> None:
    """Write one HTML page of up to 26 runs: charts, verdict, what differs.

    The page is self-contained and needs no network.
    """
    from albor_core.report.page import render
    from albor_core.run.values.directions import parse_goals
    from albor_core.store.diff.compare import MOST_RUNS

    ways = parse_goals(goals)
    if out.exists() and not force:
        raise UsageError(f"{out}: exists", hint="--force replaces it")
    with open_store_of(references, db) as reader:
        ids = [locate(one, db)[0] for one in references]
        page = render(reader, ids, metric=metric, goals=ways).encode("utf-8", "replace")
    with out_file(out, replace=force) as file:
        file.write(page)
    if as_json:
        emit({"schema": "albor.report/1", "runs": ids[:MOST_RUNS], "left_out": ids[MOST_RUNS:],
              "out": str(out), "bytes": len(page)})  # fmt: skip
    else:
        print_note(f"{out}: {len(page):,} bytes")
    if cut := ids[MOST_RUNS:]:
        print_note(f"shown are the first {MOST_RUNS} of {len(ids)} runs; left out: {' '.join(cut)}")
