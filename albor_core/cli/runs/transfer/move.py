"""`albor runs mv`: a run's folder goes elsewhere; its id, history and annotations stay."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from albor_core.cli.common.output import (
    clean,
    emit,
    field_values,
    json_option,
    print_line,
    print_note,
    wants_json,
)
from albor_core.run.errors import InUseError, NotFoundError, UsageError
from albor_core.run.values.quantity import byte_size
from albor_core.store.query.resolve import find_run

if TYPE_CHECKING:
    from albor_core.run.rundir import RunDir


@click.command()
@click.argument("references", nargs=-1, required=True, metavar="RUN...")
@click.argument("folder", type=click.Path(file_okay=False))
@json_option
def mv(references: tuple[str, ...], folder: str, as_json: bool) -> None:
    """Move each RUN to FOLDER/ID, also to another disk.

    Nothing else changes: `show`, `diff`, tags and `train resume` work as before. An active run is
    refused (exit 8). Across disks every file is copied and compared before the old folder is
    removed; after an interruption nothing is lost, and the same command finishes the move. If
    FOLDER has no slash and does not exist it asks first: `runs rename` gives another name.
    """
    from albor_core.store.upkeep.move import move_run

    chosen = [_chosen(reference) for reference in references]
    _must_be_meant(folder, chosen)
    moved = [move_run(run, Path(folder)) for run in chosen]
    if as_json:
        emit({"schema": "albor.runs.mv/1", "moved": [field_values(item) for item in moved]})
        return
    for item in moved:
        how = f", {byte_size(item.bytes)} copied" if item.copied else ""
        print_line(f"{item.run}: moved to {clean(item.path)}{how}")


def _must_be_meant(folder: str, runs: list[RunDir]) -> None:
    """A bare word that is not a folder may have been meant as another name: ask. Raises UsageError
    where there is no terminal to ask on.
    """
    if "/" in folder or folder in (".", "..", "~") or Path(folder).exists():
        return
    rename = f"albor runs rename {runs[0].id} {shlex.quote(folder)}"
    if wants_json() or not sys.stdin.isatty():
        raise UsageError(
            f"cannot move into {folder!r}: it is not a folder yet",
            hint=f"{rename} gives another name; ./{shlex.quote(folder)} makes the folder",
        )
    print_note(f"{clean(folder)} is not a folder yet; another name is given by {rename}")
    click.confirm(f"make the folder {clean(Path(folder).absolute())} and move there?", abort=True,
                  err=True)  # fmt: skip


def _chosen(reference: str) -> RunDir:
    """A run that is not alive, also one that a killed move left half way."""
    from albor_core.feed.run.status import run_status
    from albor_core.run.status import LIVE_WORDS
    from albor_core.store.upkeep.move import find_moved

    try:
        run = find_run(reference)
    except NotFoundError as error:
        try:
            run = find_moved(reference)
        except NotFoundError:
            raise error from None
    status = run_status(run)
    if status.is_alive or status.word in LIVE_WORDS:
        hint = f"albor guard stop {run.id}"
        raise InUseError(f"cannot move {run.id}: the run is {status.word}", hint=hint)
    return run
