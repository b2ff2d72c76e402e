"""`albor runs rm` and `gc`: taking runs, and leftovers, away. Both ask first."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from albor_core.cli.common.count import Count
from albor_core.cli.common.lookup import talk_of_damaged_pointers
from albor_core.cli.common.output import (
    clean,
    emit,
    field_values,
    json_option,
    print_line,
    table,
    wants_json,
)
from albor_core.run.errors import InUseError, NotFoundError, UsageError
from albor_core.run.home.runs import registered_runs
from albor_core.run.rundir import RunDir, folder_of
from albor_core.run.values.quantity import byte_size, counted
from albor_core.store.query.resolve import find_run

if TYPE_CHECKING:
    from albor_core.documents.transfer import Leftover
    from albor_core.store.upkeep.remove import Removed

yes_option = click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")


@click.command()
@click.argument("references", nargs=-1, required=True, metavar="RUN...")
@click.option(
    "--keep-history", is_flag=True, help="Keep rows and curves of the runs in the global store."
)
@yes_option
@json_option
def rm(references: tuple[str, ...], keep_history: bool, yes: bool, as_json: bool) -> None:
    """Remove runs for good: folder, checkpoints, journal and rows. Refuses active runs."""

    chosen = {found.id if isinstance(found, RunDir) else found: found for found in map(
        _chosen, references
    )}  # fmt: skip
    if not yes:
        confirm("remove", [_described(found) for found in chosen.values()])
    removed = [_remove(found, keep_history) for found in chosen.values()]
    if as_json:
        emit({"schema": "albor.runs.rm/1", "removed": [field_values(item) for item in removed]})
    else:
        for item in removed:
            print_line(f"removed {item.run}, {byte_size(item.bytes)}")


def _chosen(reference: str) -> RunDir | str:
    """A run that is not alive, or the id of one whose folder is gone."""
    from albor_core.feed.run.status import run_status
    from albor_core.run.status import LIVE_WORDS
    from albor_core.store.file.paths import global_store
    from albor_core.store.upkeep.remove import is_remembered, link_refused, must_be_ours

    folder = folder_of(reference)
    if folder is not None and folder.is_symlink():
        raise link_refused(folder)
    try:
        run = find_run(reference)
    except NotFoundError:
        if is_remembered(reference, global_store()):
            return reference
        raise
    must_be_ours(run)  # before anybody is asked, and before the first of several goes
    status = run_status(run)
    if status.is_alive or status.word in LIVE_WORDS:
        raise InUseError(
            f"cannot remove {run.id}: the run is {status.word}", hint=f"albor guard stop {run.id}"
        )
    return run


def _described(found: RunDir | str) -> tuple[str, str, str]:
    from albor_core.store.upkeep.remove import size_of

    if isinstance(found, str):
        return found, "only its rows are left", "-"
    return found.id, str(found.path), byte_size(size_of(found.path))


def _remove(found: RunDir | str, keep_history: bool) -> Removed:
    from albor_core.store.file.paths import global_store
    from albor_core.store.upkeep.remove import forget_run, remove_run

    if isinstance(found, str):
        return forget_run(found, global_store())
    return remove_run(found, global_store(), keep_history=keep_history)


@click.command()
@click.argument("folder", required=False, type=click.Path(path_type=Path), metavar="[DIR]")
@click.option("--dry-run", is_flag=True, help="Only show what would be removed.")
@click.option(
    "--media",
    is_flag=True,
    help="Remove files of pictures and tables that no run's records name instead.",
)
@click.option(
    "--keep",
    type=Count(0),
    metavar="N",
    help="With --media, also remove files of all but the newest N of each key; their records stay.",
)
@yes_option
@json_option
def gc(
    folder: Path | None,
    dry_run: bool,
    media: bool,
    keep: int | None,
    yes: bool,
    as_json: bool,
) -> None:
    """Remove what killed processes left behind: half-written checkpoints and files, half-removed
    runs, old damaged stores, of the runs in DIR or of all.

    With --media, remove media of ended runs instead: files that no record names and, with --keep,
    older ones. Versions of artefacts always stay.
    """
    from albor_core.cli.machine.db import _runs_of
    from albor_core.store.upkeep.media_garbage import media_garbage
    from albor_core.store.upkeep.remove import garbage, sweep

    if keep is not None and not media:
        raise UsageError("--keep goes with --media", hint="albor runs gc --media --keep N")

    runs = list(registered_runs()) if folder is None else _runs_of(folder)
    if folder is None:
        talk_of_damaged_pointers()
    found = list(media_garbage(runs, keep=keep) if media else garbage(runs))
    if found and not dry_run and not yes:
        confirm("remove", [(item.why, str(item.path), byte_size(item.bytes)) for item in found])
    gone = found if dry_run else [item for item in found if sweep(item)]
    total = sum(item.bytes for item in gone)
    if as_json:
        told: list[Leftover] = [
            {"path": str(item.path), "bytes": item.bytes, "why": item.why} for item in gone
        ]
        emit({"schema": "albor.runs.gc/1", "dry_run": dry_run, "items": told, "bytes": total})
        return
    for item in gone:
        print_line(f"{'would remove' if dry_run else 'removed'} {item.why} {clean(item.path)}")
    print_line(f"{counted(len(gone), 'leftover')}, {byte_size(total)}")


def confirm(what: str, rows: list[tuple[str, str, str]]) -> None:
    """Show what would be removed and wait for a yes. Raises UsageError without a terminal."""
    if wants_json() or not sys.stdin.isatty():
        items = f"{len(rows)} item{'' if len(rows) == 1 else 's'}"
        raise UsageError(f"cannot {what} {items} without --yes", hint="the same with --yes")
    click.echo(table(("what", "where", "size"), rows, right="size"), err=True)
    click.confirm(f"{what} for good?", abort=True, err=True)
