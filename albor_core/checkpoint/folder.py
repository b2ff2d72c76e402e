"""A checkpoint: a directory that exists whole, verified and named by its step, or not at all.

    checkpoints/step-00001200/  model.safetensors  optimizer.safetensors  trainer.json  config.json
                                generation_config.json  tokenizer.json  tokenizer_config.json
                                manifest.json (last)
    checkpoints/best.json       which step has the lowest validation loss

Written as `step-N.part`, each file hashed and fsynced, the manifest last, then renamed: readers see
`step-N` only when all of it is on the disk. The manifest carries the hash of each file and its own,
and an id over all of them, so flipped bits, truncated files and files swapped between checkpoints
are found before anything is loaded; such a directory is renamed to `bad-...`, never deleted.
Nothing is pickled.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeGuard

from torch import Tensor

from albor_core.checkpoint.tensorfile import num_bytes, read_tensors, write_tensors
from albor_core.outputs.identity import ALGO, CHUNK, FileHash, hash_file, identity_of, write_file
from albor_core.outputs.place import built
from albor_core.run.checkpoints import BEST, DOOMED, HALF, MANIFEST, entries, name_of, published
from albor_core.run.errors import NoCheckpointError
from albor_core.run.files.tensor_header import DamagedFileError
from albor_core.run.files.whole_file import clear_halves, write_json
from albor_core.run.rundir import read_json

SCHEMA = "albor.checkpoint/1"
TRAINER_SCHEMA = "albor.trainer/1"
MODEL, OPTIMIZER, TRAINER = "model.safetensors", "optimizer.safetensors", "trainer.json"
FROZEN, BESIDE = "frozen_hash", "beside_hash"  # keys of a manifest: weights that it does not hold
RESTORE = "restore one there, or start a new run with `albor train apply`"
VERIFIED_BY = 8  # threads at most: then reading takes as long
SLACK_BYTES = 1 << 20  # headers, JSON and directory blocks


@dataclass(frozen=True)
class Snapshot:
    """Everything a run needs to continue from `step`, copied to the host; its contents do not
    change any more."""

    step: int
    model: Mapping[str, Tensor]
    optimizer: Mapping[str, Tensor]
    trainer: Mapping[str, Any]
    journal: Mapping[str, Any]
    """Offset and sequence number the journal had: all metrics up to `step` lie before it."""
    extra: Mapping[str, bytes] = field(default_factory=dict)
    """More files, name to content: config.json, tokenizer.json and their like."""
    val_loss: float | None = None
    """Validation loss measured at this very step."""
    sound: int = 0
    """Step of the newest figures that were read and showed no trouble."""
    weights: str = MODEL
    """The file of `model`."""

    @property
    def num_bytes(self) -> int:
        files = sum(len(content) for content in self.extra.values())
        return num_bytes(self.model) + num_bytes(self.optimizer) + files + SLACK_BYTES


@dataclass(frozen=True)
class Written:
    """A published checkpoint."""

    step: int
    path: Path
    id: str
    bytes: int
    seconds: float


@dataclass(frozen=True)
class Checkpoint:
    """A verified checkpoint on the disk."""

    path: Path
    manifest: Mapping[str, Any]

    @property
    def step(self) -> int:
        return int(self.manifest["step"])

    @property
    def weights(self) -> str:
        """The name of the file with the trained weights."""
        return str(self.manifest.get("weights", MODEL))

    def model(self) -> dict[str, Tensor]:
        return read_tensors(self.path / self.weights)

    def optimizer(self) -> dict[str, Tensor]:
        return read_tensors(self.path / OPTIMIZER)

    def trainer(self) -> dict[str, Any]:
        """The contents of trainer.json. Raises DamagedFileError for another schema."""
        found = json.loads((self.path / TRAINER).read_bytes())
        if found.get("schema") != TRAINER_SCHEMA:
            raise DamagedFileError(f"{TRAINER}: schema {found.get('schema')!r}")
        return dict(found)


@dataclass(frozen=True)
class Rejected:
    """A directory that looked like a checkpoint: where it lies now, and what was wrong with it."""

    path: Path
    reason: str


def list_checkpoints(folder: Path) -> list[Path]:
    """The published checkpoint directories, newest first."""
    return list(published(folder))


# -- writing -------------------------------------------------------------------------------------


def write_checkpoint(
    folder: Path,
    snapshot: Snapshot,
    *,
    run_id: str,
    parent_id: str | None,
    hashes: Mapping[str, str],
    verify: bool = True,
) -> Written:
    """Write and publish one checkpoint; `hashes` (of config and data) go into the manifest.

    Raises OSError or DamagedFileError (what was read back differs) and leaves nothing behind then.
    An fsync that failed is never repeated on the same file: the next attempt writes new ones.
    """
    started = time.monotonic()
    _check_room(folder, snapshot.num_bytes)
    final = folder / name_of(snapshot.step)
    for leftover in _with_suffix(folder, HALF):  # a save failed so badly that it could not clean up
        shutil.rmtree(leftover, ignore_errors=True)
    if final.exists() and not (final / MANIFEST).is_file():  # no save made it
        _set_aside(final, "")
    with built(final) as room:
        files = dict(_write_files(room, snapshot))
        if verify:
            _read_back(room, files)
        manifest = _seal(room, snapshot, files, run_id, parent_id, hashes)
    size = sum(file.size for file in files.values())
    return Written(snapshot.step, final, manifest["id"], size, time.monotonic() - started)


def adopt(
    folder: Path,
    source: Checkpoint,
    trainer: Mapping[str, Any],
    journal: Mapping[str, Any],
    *,
    run_id: str,
    hashes: Mapping[str, str],
) -> Path:
    """Publish a verified checkpoint of another run as one of this run, with another trainer.json;
    the other files are shared where the disk can. Raises OSError.
    """
    final = folder / name_of(source.step)
    with built(final) as room:
        files = dict(_share_files(source, room))
        files[TRAINER] = _write_trainer(room, trainer)
        snapshot = Snapshot(source.step, {}, {}, trainer, journal, weights=source.weights)
        _seal(room, snapshot, files, run_id, source.manifest["id"], hashes)
    return final


def _share_files(source: Checkpoint, folder: Path) -> Iterator[tuple[str, FileHash]]:
    for name, stated in source.manifest["files"].items():
        if name == TRAINER:
            continue
        try:
            os.link(source.path / name, folder / name)
        except OSError:  # another disk, or one without links
            with (source.path / name).open("rb") as file:
                yield name, write_file(folder / name, iter(partial(file.read, CHUNK), b""))
            continue
        if source.manifest.get("algo") == ALGO:
            yield name, FileHash(stated["size"], ALGO, stated["hash"])
        else:
            yield name, hash_file(folder / name, ALGO)


def _check_room(folder: Path, needed: int) -> None:
    disk = os.statvfs(folder)
    free = disk.f_bavail * disk.f_frsize
    if free < needed:
        raise OSError(
            errno.ENOSPC, f"no room for a checkpoint: {needed} bytes needed, {free} free", folder
        )


def _write_files(folder: Path, snapshot: Snapshot) -> Iterator[tuple[str, FileHash]]:
    yield snapshot.weights, write_tensors(folder / snapshot.weights, snapshot.model)
    yield OPTIMIZER, write_tensors(folder / OPTIMIZER, snapshot.optimizer)
    yield TRAINER, _write_trainer(folder, snapshot.trainer)
    for name, content in snapshot.extra.items():
        yield name, write_file(folder / name, [content])


def _write_trainer(folder: Path, trainer: Mapping[str, Any]) -> FileHash:
    body = json.dumps({"schema": TRAINER_SCHEMA, **trainer}, allow_nan=False).encode()
    return write_file(folder / TRAINER, [body])


def _read_back(folder: Path, files: Mapping[str, FileHash]) -> None:
    for name, written in files.items():
        if hash_file(folder / name, written.algo) != written:
            raise DamagedFileError(f"{folder / name}: what was read back is not what was written")


def _seal(
    folder: Path,
    snapshot: Snapshot,
    files: Mapping[str, FileHash],
    run_id: str,
    parent_id: str | None,
    hashes: Mapping[str, str],
) -> dict[str, Any]:
    """Write the manifest, the last of all files, and return its contents."""
    manifest = {
        "schema": SCHEMA,
        "step": snapshot.step,
        "run_id": run_id,
        "id": _identity(snapshot.step, {name: f.hash for name, f in files.items()}),
        "parent_id": parent_id,
        "created": time.time(),
        "algo": ALGO,
        "files": {name: file.to_json() for name, file in files.items()},
        "journal": dict(snapshot.journal),
        **({} if snapshot.weights == MODEL else {"weights": snapshot.weights}),
        **hashes,
    }
    manifest["self_hash"] = identity_of(manifest)
    write_file(folder / MANIFEST, [json.dumps(manifest, indent=1).encode()])
    return manifest


def _identity(step: int, hashes: Mapping[str, str], algo: str = ALGO) -> str:
    return identity_of([step, sorted(hashes.items())], algo)


def mark_best(folder: Path, step: int, val_loss: float) -> None:
    """Record `step` as the best so far. Raises OSError."""
    write_json(
        folder / BEST,
        {"schema": "albor.best/1", "step": step, "metric": "val/loss", "value": val_loss},
        durable=True,
    )


def unmark_best(folder: Path) -> None:
    """Remove the mark of the best checkpoint. Raises OSError."""
    (folder / BEST).unlink(missing_ok=True)


def best_of(folder: Path) -> tuple[int, float] | None:
    """(step, validation loss) of the best checkpoint that still exists; None if there is none."""
    found = read_json(folder / BEST) or {}
    step, value = found.get("step"), found.get("value")
    if isinstance(step, int) and isinstance(value, float) and (folder / name_of(step)).is_dir():
        return step, value
    return None


# -- reading -------------------------------------------------------------------------------------


def verify(path: Path) -> Checkpoint:
    """Read every byte of `path` and compare. Raises DamagedFileError with the reason, OSError."""
    manifest = read_json(path / MANIFEST)
    if manifest is None:
        raise DamagedFileError("manifest.json is missing or not a JSON document")
    stated = manifest.pop("self_hash", None)
    algo = str(manifest.get("algo"))
    if manifest.get("schema") != SCHEMA or stated != identity_of(manifest, algo):
        raise DamagedFileError("manifest.json is damaged")
    files = manifest.get("files")
    if not _is_table_of_files(files) or not isinstance(manifest.get("step"), int):
        raise DamagedFileError("manifest.json does not describe a checkpoint")
    if name_of(manifest["step"]) != path.name:
        raise DamagedFileError(f"the manifest is of step {manifest['step']}")
    _check_sizes(path, files, str(manifest.get("weights", MODEL)))
    threads = min(VERIFIED_BY, len(os.sched_getaffinity(0)))
    seen = {name: hash_file(path / name, algo, threads=threads).hash for name in files}
    for name, digest in seen.items():
        if digest != files[name]["hash"]:
            raise DamagedFileError(f"{name} is damaged (its {algo} hash differs)")
    if manifest.get("id") != _identity(manifest["step"], seen, algo):
        raise DamagedFileError("the files are not of one checkpoint")
    return Checkpoint(path, manifest)


def _is_table_of_files(files: object) -> TypeGuard[dict[str, dict[str, Any]]]:
    """Whether `files` maps plain names inside the folder to a size and a hash. A valid hash of the
    manifest does not make its contents trustworthy."""
    return isinstance(files, dict) and all(
        Path(name).name == name and isinstance(entry, dict) and {"size", "hash"} <= entry.keys()
        for name, entry in files.items()
    )


def _check_sizes(path: Path, files: Mapping[str, Any], weights: str) -> None:
    """Raise DamagedFileError if a file has another size than the manifest says: a cheap check that
    finds truncated files before gigabytes are hashed."""
    for name in (weights, OPTIMIZER, TRAINER):
        if name not in files:
            raise DamagedFileError(f"the manifest does not list {name}")
    for name, stated in files.items():
        try:
            size = (path / name).lstat().st_size
        except FileNotFoundError as error:
            raise DamagedFileError(f"{name} is missing") from error
        if size != stated["size"]:
            raise DamagedFileError(f"{name} has {size} bytes, not {stated['size']}")


def newest_usable(folder: Path) -> tuple[Checkpoint | None, tuple[Rejected, ...]]:
    """The newest checkpoint that verifies; damaged newer ones are renamed `bad-...`.

    (None, ()) if the folder has no trace of any checkpoint: the journal may know of more. Raises
    NoCheckpointError if there were checkpoints and none is usable: a run never restarts from step 0
    without its user's knowledge. Only the holder of run.lock calls it.
    """
    _clear_leftovers(folder)
    rejected: list[Rejected] = []
    for path in published(folder):
        try:
            return verify(path), tuple(rejected)
        except (DamagedFileError, OSError) as error:
            rejected.append(_set_aside(path, str(error)))
    if rejected or any(name.is_bad for name, _ in entries(folder)):
        reasons = "; ".join(f"{bad.path.name}: {bad.reason}" for bad in rejected)
        raise NoCheckpointError(
            f"{folder}: no usable checkpoint" + (f" ({reasons})" if reasons else ""),
            hint=RESTORE,
        )
    return None, ()


def _set_aside(path: Path, reason: str) -> Rejected:
    target = path.with_name(f"bad-{path.name}")
    number = 1
    while target.exists():
        number += 1
        target = path.with_name(f"bad-{path.name}-{number}")
    path.rename(target)
    return Rejected(target, reason)


def _clear_leftovers(folder: Path) -> None:
    """Clear what a killed save or prune left behind; run.lock keeps other processes away meanwhile.

    A checkpoint that replaces an older one is complete once the older one was renamed: a kill in
    between leaves both, and the new one is published here. A `.del` folder is restored if it is the
    only copy.
    """
    for path in _with_suffix(folder, HALF):
        final = path.with_suffix("")
        if path.with_suffix(DOOMED).is_dir() and (path / MANIFEST).is_file() and not final.exists():
            path.rename(final)
    doomed = _with_suffix(folder, DOOMED)
    if doomed and not published(folder):
        last = doomed.pop()
        last.rename(last.with_suffix(""))
    for path in (*_with_suffix(folder, HALF), *doomed):
        shutil.rmtree(path, ignore_errors=True)
    clear_halves(folder)


def _with_suffix(folder: Path, suffix: str) -> list[Path]:
    """Folders of unfinished saves or prunes, by their suffix, the oldest step first."""
    found = [
        (name.step, path)
        for name, path in entries(folder)
        if name.suffix == suffix and not name.is_bad
    ]
    return [path for _, path in sorted(found)]
