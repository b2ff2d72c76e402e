"""Makes the folder of a run, whole or not at all, and has the home know it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from albor_core.run.errors import AlborError, InUseError, UsageError
from albor_core.run.files.whole_file import write_bytes, write_json
from albor_core.run.home.folders import albor_home, begun_mark, own_home, private_folder
from albor_core.run.home.runs import is_known_id, lent, run_at
from albor_core.run.rundir import RUN_ID, RunDir, is_run_id, read_json
from albor_core.run.values.traceparent import parent_fact


def create_run(
    parent: Path,
    run_id: str,
    *,
    experiment: str,
    name: str,
    kind: str,
    argv: list[str],
    seed: int | None = None,
    config: bytes | None = None,
    resolved: Mapping[str, Any] | None = None,
    facts: Mapping[str, Any] | None = None,
    script: bytes | None = None,
    created: float | None = None,
) -> RunDir:
    """Make RUN_DIR below `parent` with run.json and the config, and register it under
    ALBOR_HOME/runs.

    `kind` is "train", "guard" (any program), "track" (the public API) or "imported", whose
    `created` is not now; `facts` (git, host, versions, data hash) go into run.json as they are.
    Raises InUseError if the folder exists, UsageError for a bad id.
    """
    if not is_run_id(run_id):
        raise UsageError(f"{run_id!r} cannot name a run", hint=f"use {RUN_ID.pattern}")
    run = RunDir(parent.absolute() / run_id)
    pointer = own_home() / "runs" / f"{run_id}.json"
    known = run_at(run_id, read_json(pointer))
    if run.path.exists() or (known is not None and known.path.exists()):
        raise InUseError(
            f"{run_id!r} is the run in {known.path if known else run.path}",
            hint="choose another name",
        )
    created = time.time() if created is None else created
    document = {
        "schema": "albor.run/1",
        "id": run_id,
        "experiment": experiment,
        "name": name,
        "kind": kind,
        "created": created,
        "argv": argv,
        "seed": seed,
        "host": os.uname().nodename,
        **({} if kind == "imported" else parent_fact(os.environ)),
        **(facts or {}),
    }
    with _undone_on_failure(run.path):
        _make_folders(run)
        if config is not None:
            write_bytes(run.config_yaml, config)
        if resolved is not None:
            write_json(run.config_resolved, resolved)
        if script is not None:
            write_bytes(run.script, script)
        write_json(run.run_json, document, durable=True)
        point_to(run, pointer, created)
        if kind != "imported":
            mark_begun(run, created)
    return run


def mark_begun(run: RunDir, created: float | None) -> None:
    """Have this home remember that its user launched a run: see `begun_mark`. Raises OSError."""
    _mark_those_of_before()
    write_json(begun_mark(run.id), {"created": created})


def _mark_those_of_before() -> None:
    """Versions before kept no marks: what their home lists when the first is made it began."""
    home, marks = albor_home(), begun_mark("x").parent
    if marks.is_dir():
        return
    listed = [(pointer, read_json(pointer)) for pointer in (home / "runs").glob("*.json")]
    for folder in (home, marks):
        private_folder(folder)
    for pointer, entry in listed:
        if entry is not None and is_known_id(pointer.stem):
            write_json(marks / pointer.name, {"created": entry.get("created")})


def point_to(run: RunDir, pointer: Path, created: float | None) -> None:
    """Have `pointer`, a file of ALBOR_HOME/runs, lead to the run. Raises OSError."""
    _mark_those_of_before()
    private_folder(pointer.parent)
    write_json(pointer, {"path": str(run.path), "created": created, **lent(run)})


def _make_folders(run: RunDir) -> None:
    if run.path.is_relative_to(albor_home()):  # what `parents` makes is open to all
        private_folder(albor_home())
        private_folder(run.path.parent)
    run.path.parent.mkdir(parents=True, exist_ok=True)
    inside = (
        run.guard,
        run.guard / "inbox",
        run.guard / "outbox",
        run.logs,
        run.checkpoints,
        run.crash_reports,
        run.store.parent,
    )
    for folder in (run.path, *inside):
        folder.mkdir(mode=0o700)


@contextmanager
def _undone_on_failure(path: Path) -> Iterator[None]:
    """Remove the run directory, and the folders made for it, where it cannot be made whole."""
    made = [folder for folder in (path, *path.parents) if not folder.exists()]
    try:
        yield
    except OSError as error:
        if isinstance(error, FileExistsError) and error.filename == str(path):
            raise InUseError(  # another process was faster with the same id
                f"{path}: this run directory exists", hint="choose another name"
            ) from error
        import shutil  # noqa: PLC0415  4 ms that every command would pay

        shutil.rmtree(path, ignore_errors=True)
        for folder in made[1:]:
            with suppress(OSError):  # not empty: another process uses it by now
                folder.rmdir()
        raise AlborError(
            f"{error.filename or path}: cannot make a run directory: {error.strerror}",
            hint="free space, or set training.output_dir and ALBOR_HOME to folders you can write",
        ) from error
