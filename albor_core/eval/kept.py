"""Where an evaluation lies: RUN_DIR/eval/CHECKPOINT-ID/, or a folder that was named.

.evaluation     its id, held locked while it is made
TASK.jsonl      the items of a task, a line each
result.json     the whole, albor.eval/1: written last, so that it is there or the evaluation is
                not done
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

from blake3 import blake3

from albor_core.data.pack.foreign_tokenizer import not_applied
from albor_core.eval.target import Target
from albor_core.eval.task import Task
from albor_core.run.errors import AlborError, InUseError, UsageError, remedy
from albor_core.run.files.whole_file import fsync_dir, write_json
from albor_core.run.liveness import take_lock
from albor_core.run.rundir import RunDir, read_json

MARK, RESULT, SCHEMA = ".evaluation", "result.json", "albor.eval/1"


def evaluation_id(
    target: Target, weights: str, tasks: tuple[Task, ...], how: Mapping[str, Any]
) -> str:
    """16 hex digits of all that a result depends on: the model and its step, sections, data,
    settings. Raises OSError.
    """
    files = [hash_of_data(target.path / name) for name in ("config.json", "tokenizer.json")]
    files += not_applied(target.path)  # results of when they were are not taken for these
    said = [task.section.model_dump(mode="json") for task in tasks]
    data = [[*map(hash_of_data, _paths(task)), *_hash_of_text(task)] for task in tasks]
    model = [weights, *files, target.step]
    whole = {"model": model, "tasks": said, "data": data, "how": dict(how)}
    text = json.dumps(whole, sort_keys=True)
    return blake3(text.encode()).hexdigest()[:16]


def _paths(task: Task) -> Iterator[Path]:
    """What its section names to be read."""
    return (value for _, value in task.section if isinstance(value, Path))


def _hash_of_text(task: Task) -> Iterator[str]:
    """Of what its section holds instead of a file."""
    text = getattr(task.section, "text", None)
    if text is not None:
        yield blake3(text.encode()).hexdigest()


def hash_of_data(path: Path) -> str:
    """BLAKE3 of a file, or of the names and bytes of all below a folder; "" where nothing is."""
    if path.is_file():
        status = path.stat()
        return _hash_of_file(path, status.st_size, status.st_mtime_ns, status.st_ino)
    digest = blake3()
    files = sorted(one for one in path.rglob("*") if one.is_file()) if path.is_dir() else []
    for file in files:
        digest.update(f"{file.relative_to(path)}\0{hash_of_data(file)}\n".encode())
    return digest.hexdigest() if files else ""


@lru_cache(maxsize=256)
def _hash_of_file(path: Path, *status: int) -> str:
    """A watch asks for each checkpoint; `status` moves when the file does."""
    return str(blake3().update_mmap(path).hexdigest())


def place_in(run: RunDir, checkpoint: str, id: str) -> Path:
    """The folder of an evaluation of a run's checkpoint."""
    return run.evaluations / f"{checkpoint}-{id[:8]}"


def kept_result(place: Path, id: str) -> dict[str, Any] | None:
    """The whole result of an evaluation, if it is done."""
    found = read_json(place / RESULT)
    is_it = found is not None and found.get("schema") == SCHEMA and found.get("id") == id
    return found if is_it else None


@contextmanager
def opened_place(place: Path, id: str, *, force: bool = False) -> Iterator[None]:
    """The folder, made if need be, is this evaluation's alone within the block; what another one
    left there goes with `force`.

    Raises UsageError where something else lies there, InUseError while another process evaluates
    into it, AlborError where it cannot be written. Nothing is made then.
    """
    if (place.is_dir() and any(place.iterdir()) and not (place / MARK).is_file()) or (
        os.path.lexists(place) and not place.is_dir()
    ):
        what = f"{place}: exists and is not the folder of an evaluation"
        raise UsageError(what, hint="choose another --out")
    try:
        is_new = not place.is_dir()
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = take_lock(place / MARK)
    except InUseError as error:
        raise InUseError(f"{place}: {error.message.partition(': ')[2]}", hint=_WAIT) from error
    except OSError as error:
        hint = remedy(error) or "choose another --out"
        raise AlborError(f"{place}: {error.strerror}", hint=hint) from error
    try:
        before = os.pread(lock, 64, 0).decode(errors="replace")
        if before not in ("", id):
            if not force:
                what = f"{place}: holds another evaluation (other weights, tasks, data or settings)"
                raise UsageError(what, hint="choose another --out, or --force to replace it")
            _clear(place)
        elif force:
            _clear(place)
        os.ftruncate(lock, 0)
        os.pwrite(lock, id.encode(), 0)
        yield
    finally:
        os.close(lock)
        if is_new and [one.name for one in place.iterdir()] == [MARK]:
            (place / MARK).unlink()
            place.rmdir()


_WAIT = "wait for it, or choose another --out"


def _clear(place: Path) -> None:
    for file in [place / RESULT, *place.glob("*.jsonl")]:
        file.unlink(missing_ok=True)


def keep_result(place: Path, document: Mapping[str, Any]) -> None:
    """Whole and durable; `document` is strict JSON. Raises OSError."""
    write_json(place / RESULT, document, durable=True)
    fsync_dir(place.parent)
