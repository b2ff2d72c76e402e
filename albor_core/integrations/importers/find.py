"""Which histories lie below a path: told by content, never by unpickling, unpacking or running it.

A file that is named must be one that is known. In a folder everything else is passed over; CSV and
JSON lines are taken only where they are named or asked for, since any program writes such files.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from albor_core.integrations.importers import mlflow, table, tensorboard, trackio, wandb
from albor_core.integrations.importers.foreign import ForeignRun, Refusal
from albor_core.integrations.importers.sqlite_file import HEAD, columns, opened
from albor_core.run.errors import DataError, NotFoundError, TryAgainError

Reader = Callable[[list[Path], Path], Iterator[ForeignRun | Refusal]]
READERS: dict[str, Reader] = {
    "tensorboard": tensorboard.read,
    "wandb": wandb.read,
    "mlflow": mlflow.read,
    "trackio": trackio.read,
    "csv": partial(table.read, "csv"),
    "jsonl": partial(table.read, "jsonl"),
}
MAX_ENTRIES = 500_000
_REFUSED = (".pt", ".pth", ".ckpt", ".bin", ".pkl", ".pickle", ".npy", ".npz",
            ".safetensors", ".gguf", ".h5", ".onnx")  # fmt: skip
_REFUSED_HEADS = (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05", b"\x93NUMPY", b"PK\x03\x04")
_DATABASES = (".db", ".sqlite", ".sqlite3")
_TEXTS = {".csv": "csv", ".tsv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl"}


@dataclass(frozen=True)
class FoundFiles:
    """Files of one kind, in the order of their paths, and where the search began."""

    kind: str
    root: Path
    files: tuple[Path, ...]

    def runs(self) -> Iterator[ForeignRun | Refusal]:
        """The runs inside, read one after the other; what cannot be read costs only itself."""
        for files in self._groups():
            try:
                yield from READERS[self.kind](files, self.root)
            except (DataError, TryAgainError) as error:
                yield Refusal(files[0], error.message)
            except OSError as error:
                yield Refusal(files[0], f"{error.filename or files[0]}: {error.strerror}")

    def _groups(self) -> list[list[Path]]:
        """Files that may belong to one run are read together: those of a folder for TensorBoard,
        all of W&B, whose run may have been resumed.
        """
        if self.kind == "wandb":
            return [list(self.files)]
        groups: dict[Path, list[Path]] = {}
        for path in self.files:
            groups.setdefault(path.parent if self.kind == "tensorboard" else path, []).append(path)
        return list(groups.values())


def find(path: Path, kind: str | None = None) -> FoundFiles:
    """What history `path`, a file or a folder, holds; only that of `kind` if one is given.

    Raises NotFoundError for a path that is not there, DataError for one that holds none, several
    kinds, or what could carry code.
    """
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            return _below(path, kind)
        if not stat.S_ISREG(mode):
            raise DataError(f"{path}: neither a file nor a folder")
        _refuse_code(path, _head(path))
        found = _kind_of(path)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NotFoundError(
            f"{path}: no such file or folder", hint="albor runs import --help"
        ) from error
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error
    if found is None:
        what = "no history of a kind that is known" if path.stat().st_size else "an empty file"
        raise DataError(
            f"{path}: {what}",
            hint="known are " + ", ".join(READERS),
        )
    if kind is not None and found != kind and not {found, kind} <= {"csv", "jsonl"}:
        raise DataError(f"{path}: this is {found}, not {kind}", hint=f"--from {found}")
    return FoundFiles(kind or found, path, (path,))


def _refuse_code(path: Path, head: bytes) -> None:
    if path.suffix.lower() in _REFUSED or head.startswith(_REFUSED_HEADS):
        raise DataError(
            f"{path}: weights, arrays and pickles are not history, and a pickle can run code:"
            " it was not opened",
            hint="name the tracker's own files: " + ", ".join(READERS),
        )


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(4096)


def _kind_of(path: Path) -> str | None:
    """The kind of a regular file by its content. Raises DataError for a database of others."""
    head = _head(path)
    if wandb.is_log(head):
        return "wandb"
    if head.startswith(HEAD):
        return _database_kind(path)
    if tensorboard.is_event_file(head):
        return "tensorboard"
    if path.name == "meta.yaml" and mlflow.is_run_folder(path.parent):
        return None  # name the folder
    if not head or b"\0" in head:
        return None
    by_name = _TEXTS.get(path.suffix.lower())
    return by_name or ("jsonl" if head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{") else "csv")


def _database_kind(path: Path) -> str:
    with opened(path) as db:
        if mlflow.is_store(db):
            return "mlflow"
        if trackio.is_store(db):
            return "trackio"
        if columns(db, "metric_levels"):
            raise DataError(f"{path}: this is Albor's own store", hint="albor db rebuild --help")
    raise DataError(f"{path}: a database, but not one of MLflow or trackio")


def _below(root: Path, kind: str | None) -> FoundFiles:
    found: dict[str, list[Path]] = {}
    refused = 0
    for path in _entries(root):
        what = _candidate(path, kind)
        if what is not None:
            found.setdefault(what, []).append(path)
        refused += path.suffix.lower() in _REFUSED
    if kind is not None:
        found = {what: files for what, files in found.items() if what == kind}
    if not found:
        passed = (
            f" ({refused} files of weights, arrays or pickles are never opened)" if refused else ""
        )
        raise DataError(
            f"{root}: no history of {kind or 'a kind that is known'} below this folder{passed}",
            hint="name files, or say --from csv or --from jsonl",
        )
    if len(found) > 1:
        counts = ", ".join(f"{what} ({len(files)})" for what, files in sorted(found.items()))
        raise DataError(
            f"{root}: several kinds of history: {counts}",
            hint=f"import them one after the other: --from {min(found)}",
        )
    ((what, files),) = found.items()
    return FoundFiles(what, root, tuple(sorted(files)))


def _entries(root: Path) -> Iterator[Path]:
    """Regular files, and folders of MLflow runs; links are not followed, what cannot be listed is
    an error.
    """
    seen = 0

    def fail(error: OSError) -> None:
        raise error

    for folder, folders, names in os.walk(root, onerror=fail):
        folders.sort()
        seen += len(names) + len(folders)
        if seen > MAX_ENTRIES:
            raise DataError(f"{root}: more than {MAX_ENTRIES:,} entries", hint="name a sub-folder")
        here = Path(folder)
        if "meta.yaml" in names and "metrics" in folders and mlflow.is_run_folder(here):
            folders[:] = []
            yield here
            continue
        for name in sorted(names):
            path = here / name
            if stat.S_ISREG(path.lstat().st_mode):
                yield path


def _candidate(path: Path, kind: str | None) -> str | None:
    """What an entry of a folder is, asked of its content where its name is a promising one."""
    if path.is_dir():
        return "mlflow"
    suffix = path.suffix.lower()
    try:
        if suffix == ".wandb" or "tfevents" in path.name:
            return _kind_of(path)
        if suffix in _DATABASES and _head(path).startswith(HEAD):
            return _database_kind(path)
    except DataError:
        return None
    return kind if kind in ("csv", "jsonl") and _TEXTS.get(suffix) == kind else None
