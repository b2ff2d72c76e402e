"""Stores an evaluation in RUN_DIR/eval/CHECKPOINT-ID/, or in a folder that the user named.

TASK.jsonl      the items of a task, a line each
result.json     the whole, albor.eval/1: written last, so that it is there or the evaluation is
                not done
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from blake3 import blake3

from albor_core.data.pack.foreign_tokenizer import not_applied
from albor_core.eval.target import Target
from albor_core.eval.task import Task
from albor_core.outputs.identity import hash_of_data, identity_of
from albor_core.outputs.lineage import lineage
from albor_core.outputs.place import (
    ELSEWHERE,
    OutputPlace,
    begin,
    clear,
    finish,
    held,
    publish_files,
)
from albor_core.run.errors import UsageError
from albor_core.run.files.whole_file import clear_halves, write_json
from albor_core.run.rundir import RunDir, read_json

RESULT, SCHEMA = "result.json", "albor.eval/1"
_OWN = (RESULT, f".{RESULT}.*.tmp", "*.jsonl")
_MARK = ".evaluation"  # of earlier versions, with the id in it


def evaluation_id(
    target: Target, weights: str, tasks: tuple[Task, ...], how: Mapping[str, Any]
) -> str:
    """16 hex digits of the hash of everything a result depends on: the model and its step,
    sections, data, settings. Raises OSError.
    """
    files = [hash_of_data(target.path / name) for name in ("config.json", "tokenizer.json")]
    files += not_applied(target.path)  # results of when they were are not taken for these
    said = [task.section.model_dump(mode="json") for task in tasks]
    data = [[digest for _, digest in _inputs_of(task)] for task in tasks]
    model = [weights, *files, target.step]
    whole = {"model": model, "tasks": said, "data": data, "how": dict(how)}
    return identity_of(whole, separators=(", ", ": "))[:16]


def lineage_of(target: Target, weights: str, tasks: tuple[Task, ...]) -> dict[str, Any]:
    """The lineage of an evaluation: model, data, and the command that made it."""
    data = dict(one for task in tasks for one in _inputs_of(task))
    seeds = {task.name: getattr(task.section, "seed", None) for task in tasks}
    return lineage({str(target.path): weights, **data}, seeds)


def paths_of(task: Task) -> Iterator[Path]:
    """The paths that the section of a task reads."""
    return (value for _, value in task.section if isinstance(value, Path))


def _inputs_of(task: Task) -> Iterator[tuple[str, str]]:
    """The BLAKE3 of each input, also of a text that its section holds instead of a file."""
    text = getattr(task.section, "text", None)
    for path in paths_of(task):
        yield str(path), hash_of_data(path) if text is None else blake3(text.encode()).hexdigest()


def place_in(run: RunDir, checkpoint: str, id: str) -> Path:
    """The folder of an evaluation of a run's checkpoint."""
    return run.evaluations / f"{checkpoint}-{id[:8]}"


def kept_result(place: Path, id: str) -> dict[str, Any] | None:
    """The stored result of an evaluation, if it is finished."""
    found = read_json(place / RESULT)
    is_it = found is not None and found.get("schema") == SCHEMA and found.get("id") == id
    return found if is_it else None


def refuse_foreign(path: Path) -> str | None:
    """The id of the evaluation stored or begun at `path`. Raises UsageError if something else is
    there.
    """
    if path.is_file():
        raise UsageError(f"{path}: is a file", hint="--out names a folder")
    before = OutputPlace(path, _OWN).begun or _kept_id(path)
    if os.path.lexists(path) and (not path.is_dir() or (before is None and any(path.iterdir()))):
        what = f"{path}: exists and is not the folder of an evaluation"
        raise UsageError(what, hint=ELSEWHERE)
    return before


@contextmanager
def opened_place(path: Path, id: str, *, force: bool = False) -> Iterator[Path]:
    """Hold the work folder of this evaluation within the block; `force` removes another one's.

    Raises UsageError if something else lies there, InUseError while another process evaluates into
    it, AlborError if it cannot be written. Nothing is created then.
    """
    place, before = OutputPlace(path, _OWN), refuse_foreign(path)
    if before not in (None, id) and not force:
        what = f"{path}: holds another evaluation (other weights, tasks, data or settings)"
        raise UsageError(what, hint=f"{ELSEWHERE}, or --force to replace it")
    with held(place, 0o700) as work:
        if force:
            clear(work)
        if not begin(work, id) and before == id and not force:
            for file in path.glob("*.jsonl"):  # of an earlier version, killed
                file.rename(work / file.name)
        yield work


def _kept_id(path: Path) -> str | None:
    """The id of a result, or of an evaluation that an earlier version began in its place."""
    found = read_json(path / RESULT) or {}
    with suppress(OSError, UnicodeDecodeError):
        return (path / _MARK).read_text(encoding="ascii") or None
    return str(found["id"]) if found.get("schema") == SCHEMA else None


def keep_result(path: Path, work: Path, document: Mapping[str, Any]) -> None:
    """Store the result durably, with the items of its tasks; `document` is strict JSON. Raises
    OSError."""
    room = work.parent
    clear_halves(room)
    old = [room / RESULT, room / _MARK, *room.glob("*.jsonl")]
    publish_files(work.glob("*.jsonl"), room, old)
    write_json(room / RESULT, document, durable=True)
    finish(OutputPlace(path, _OWN), work)
