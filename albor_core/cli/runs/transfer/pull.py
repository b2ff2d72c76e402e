"""`albor runs pull`: copy the runs of another host into this home, over the user's own ssh."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from albor_core.cli.common.output import (
    clean,
    emit,
    field_values,
    json_option,
    print_line,
    print_note,
    rehearsed,
    table,
)
from albor_core.cli.plans.file_plan import Estimate, Parameters, plans
from albor_core.cli.runs.listing import FilterCommand
from albor_core.run.errors import AlborError, Problem
from albor_core.run.home.folders import own_home
from albor_core.run.values.quantity import byte_size, counted

if TYPE_CHECKING:
    from albor_core.integrations.importers.copies.copied_runs import CopyReport


def _dry_run(verb: Callable[..., Any], told: Parameters) -> Estimate:
    with rehearsed() as made:
        verb(**{**told, "dry_run": True, "as_json": True})
    found = made.document
    runs = [one for one in found["runs"] if one["change"] in ("new", "updated")]
    return Estimate(
        sum(one["bytes"] for one in runs),
        problems=[Problem("", one["message"]) for one in found["problems"]],
        writes=[Path(one["path"]) for one in runs],
        detail=found,
    )


@click.command(cls=FilterCommand)
@click.argument("place", metavar="HOST[:DIR]")
@click.argument("terms", nargs=-1, metavar="[FILTER]...")
@click.option("--checkpoints", is_flag=True, help="Also copy checkpoints.")
@click.option("--dry-run", is_flag=True, help="Only show what would be copied.")
@json_option
@plans(
    lambda told: [told["place"] if ":" in told["place"] else f"{told['place']}:"],
    lambda _: [own_home() / "hosts" / "*"],
    _dry_run,
)
def pull(
    place: str, terms: tuple[str, ...], checkpoints: bool, dry_run: bool, as_json: bool
) -> int:
    """Copy the runs of HOST here, or update earlier copies.

    HOST is any name that `ssh HOST` accepts; files come by your own ssh and rsync, or tar if one
    side has no rsync. DIR is a folder with run directories, one of those, or an Albor home; without
    it all runs of HOST's home are copied. FILTER is one of `albor runs ls`.

    A run may be active: what it writes meanwhile comes with the next pull. Copies lie in
    ALBOR_HOME/hosts, are listed like any run, and are read-only. Exits with 1 if some runs could
    not be copied.
    """
    from albor_core.integrations.importers.copies.copied_runs import copy_runs, one_copy_at_a_time
    from albor_core.integrations.importers.copies.pull_filter import chosen
    from albor_core.integrations.importers.copies.remote_folder import RemoteFolder, parse_place
    from albor_core.store.query.filter import parse_filter

    where = parse_filter(" ".join(terms))
    host, folder = parse_place(place)
    source = RemoteFolder(host, folder)
    with nullcontext() if dry_run else one_copy_at_a_time():
        found = source.find()
        kept = chosen(source, found, where)
        report = copy_runs(source, kept, checkpoints=checkpoints, dry_run=dry_run)
    if as_json:
        told = field_values(report)
        emit(
            {
                "schema": "albor.runs.pull/1",
                "host": host,
                "folder": folder,
                "by": source.transport,
                "dry_run": dry_run,
                "filtered_out": len(found) - len(kept),
                "skipped": source.skipped,
                "runs": told["runs"],
                "problems": told["problems"],
            }
        )
    else:
        _show(report)
        _note_rest(len(found) - len(kept), source.skipped)
        for problem in report.problems:
            print_note(f"albor: {clean(problem['message'])}")
    return AlborError.exit_code if report.problems else 0


def _show(report: CopyReport) -> None:
    if not report.runs:
        print_line("no run to copy")
        return
    heads = ("run", "name", "host", "change", "status", "files", "size")
    cells = [
        (
            one.run,
            one.name,
            one.host,
            one.change,
            one.status or "-",
            f"{one.files:,}",
            byte_size(one.bytes),
        )
        for one in report.runs
    ]
    print_line(table(heads, cells, right="files size"))


def _note_rest(filtered: int, skipped: int) -> None:
    if filtered:
        print_note(f"{counted(filtered, 'run')} left out by the filter")
    if skipped:
        print_note(f"{counted(skipped, 'run')} left out: copies of other hosts' runs")
