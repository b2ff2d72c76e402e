"""`albor checkpoints`: what a run has saved, whether it can be relied on, and what may go."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from albor_core.cli.common.count import Count
from albor_core.cli.common.lazy import LazyGroup
from albor_core.cli.common.output import emit, json_option, print_line, table
from albor_core.cli.runs.removal import confirm, yes_option
from albor_core.run.checkpoints import entries, name_of, published
from albor_core.run.errors import AlborError, InUseError, NoCheckpointError, NotFoundError
from albor_core.run.rundir import RunDir
from albor_core.run.values.quantity import byte_size, counted
from albor_core.store.query.resolve import find_run

if TYPE_CHECKING:
    from albor_core.documents.train import CheckpointRow, PrunedCheckpoint, VerifiedCheckpoint


@click.group(
    cls=LazyGroup,
    entries={
        "ls": (f"{__name__}:ls", "List the checkpoints of a run, with their damage."),
        "verify": (f"{__name__}:verify", "Read every byte and compare with the manifests."),
        "prune": (f"{__name__}:prune", "Remove old checkpoints of an ended run."),
    },
)
def checkpoints() -> None:
    """List, verify and prune checkpoints."""


@checkpoints.command()
@click.argument("run")
@json_option
def ls(run: str, as_json: bool) -> None:
    """List the checkpoints of RUN, newest first, from names, manifests and sizes; `verify` reads
    every byte.
    """
    from albor_core.feed.archive.archive import RunArchive

    found = find_run(run)
    archive = RunArchive(found)
    try:
        shelf = archive.checkpoints()
    finally:
        archive.close()
    if as_json:
        rows: list[CheckpointRow] = [
            {
                "name": one.name,
                "step": one.step,
                "state": one.state,
                "reason": one.reason or None,
                "path": one.path,
                "bytes": one.num_bytes,
                "wall": one.wall,
                "val_loss": one.val_loss,
                "is_latest": one.is_latest,
                "is_best": one.is_best,
            }
            for one in shelf.saved
        ]
        emit({"schema": "albor.checkpoints.ls/1", "run": found.id, "checkpoints": rows})
    elif not shelf.saved:
        print_line(f"{found.id} has no checkpoint{shelf.problem and f': {shelf.problem}'}")
    else:
        cells = [
            (
                one.name,
                " ".join((one.state, *("latest",) * one.is_latest, *("best",) * one.is_best)),
                "-" if one.val_loss is None else f"{one.val_loss:.4f}",
                byte_size(one.num_bytes),
                _when(one.wall),
                one.reason,
            )
            for one in shelf.saved
        ]
        heads = ("checkpoint", "state", "val loss", "size", "written", "wrong")
        print_line(table(heads, cells, right=("val loss", "size")))


def _when(wall: float | None) -> str:
    return "-" if wall is None else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(wall))


@checkpoints.command()
@click.argument("run")
@click.argument("steps", nargs=-1, type=Count(0), metavar="[STEP]...")
@json_option
def verify(run: str, steps: tuple[int, ...], as_json: bool) -> int:
    """Read every byte of RUN's checkpoints, or of those STEPs, and compare with their manifests.

    Changes nothing. Exits with 0 if all are whole, 1 if some are damaged, 6 if none can be used.
    """
    from albor_core.checkpoint.folder import verify as verified
    from albor_core.run.files.tensor_header import DamagedFileError

    found = find_run(run)
    results: list[tuple[Path, str]] = []
    for path in _chosen(found, steps):
        try:
            verified(path)
            results.append((path, ""))
        except (DamagedFileError, OSError) as error:
            results.append((path, str(error)))
    damaged = sum(bool(reason) for _, reason in results)
    code = 0 if not damaged else NoCheckpointError.exit_code if damaged == len(results) else 1
    if as_json:
        rows: list[VerifiedCheckpoint] = [
            {"name": path.name, "is_whole": not reason, "reason": reason or None}
            for path, reason in results
        ]
        emit({"schema": "albor.checkpoints.verify/1", "run": found.id, "checkpoints": rows})
    else:
        print_line(table(("checkpoint", "state"), [(p.name, r or "whole") for p, r in results]))
        if damaged:
            print_line(f"{damaged} of {len(results)} damaged; a resume skips them")
    return code


def _chosen(run: RunDir, steps: Sequence[int]) -> list[Path]:
    there = published(run.checkpoints)
    if not there:
        raise NotFoundError(f"{run.id} has no checkpoint", hint=f"albor runs show {run.id}")
    wanted = {name_of(step) for step in steps}
    if missing := wanted - {path.name for path in there}:
        raise NotFoundError(
            f"{run.id} has no {min(missing)}", hint=f"albor checkpoints ls {run.id}"
        )
    return [path for path in there if not wanted or path.name in wanted]


@checkpoints.command()
@click.argument("run")
@click.option(
    "--keep", type=Count(1), default=1, show_default=True, help="Keep the newest N checkpoints."
)
@click.option(
    "--keep-every",
    type=Count(1),
    metavar="N",
    help="Also keep checkpoints at multiples of N steps.",
)
@click.option("--damaged", is_flag=True, help="Also remove checkpoints set aside as damaged.")
@click.option("--dry-run", is_flag=True, help="Only show what would be removed.")
@yes_option
@json_option
def prune(
    run: str,
    keep: int,
    keep_every: int | None,
    damaged: bool,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Remove checkpoints of RUN, which must have ended: all but the newest and the best.

    An active run prunes its own checkpoints (training.checkpoint.keep).
    """
    from albor_core.checkpoint.retention import surplus
    from albor_core.outputs.place import remove
    from albor_core.run.files.pulled_file import refuse_pulled
    from albor_core.run.liveness import take_lock

    found = find_run(run)
    refuse_pulled(found, "prune", f"albor checkpoints prune {found.own_id}")
    if not found.checkpoints.is_dir():
        raise NotFoundError(f"{found.id} has no checkpoint", hint=f"albor runs show {found.id}")
    try:
        lock = take_lock(found.run_lock)  # against a resume meanwhile
    except InUseError as error:
        raise InUseError(
            f"cannot prune {found.id}: the run is active", hint=f"albor guard stop {found.id}"
        ) from error
    try:
        doomed = surplus(found.checkpoints, keep=keep, keep_every=keep_every)
        if damaged:
            doomed += [path for name, path in entries(found.checkpoints) if name.is_bad]
        sizes = {path: _size(path) for path in doomed}
        if doomed and not dry_run and not yes:
            confirm("remove", [(path.name, str(path), byte_size(sizes[path])) for path in doomed])
        if not dry_run:
            for path in doomed:
                _remove(path, remove)
    finally:
        os.close(lock)
    if as_json:
        rows: list[PrunedCheckpoint] = [
            {"name": path.name, "bytes": size} for path, size in sizes.items()
        ]
        emit(
            {
                "schema": "albor.checkpoints.prune/1",
                "run": found.id,
                "dry_run": dry_run,
                "removed": rows,
            }
        )
        return
    for path in doomed:
        print_line(f"{'would remove' if dry_run else 'removed'} {path.name}")
    print_line(f"{counted(len(doomed), 'checkpoint')}, {byte_size(sum(sizes.values()))}")


def _remove(path: Path, remove: Any) -> None:
    try:
        remove(path)
    except OSError as error:
        raise AlborError(
            f"cannot remove {path}: {error.strerror}", hint="see who owns it: ls -ld"
        ) from error


def _size(folder: Path) -> int:
    files = () if folder.is_symlink() else folder.rglob("*")
    return sum(path.lstat().st_size for path in files)
