"""Which histories lie below a path: told by content, never by unpickling, unpacking or running it.

A file that is named must be one that is known. In a folder everything else is passed over, and
formats that any program writes (`Importer.only_asked`) are taken only where they are asked for.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from albor_core.integrations.importers import mlflow, neptune, tensorboard, trackio, wandb
from albor_core.integrations.importers.foreign import ForeignRun, Importer, Refusal
from albor_core.integrations.importers.formats.sqlite_file import HEAD, columns, opened
from albor_core.integrations.importers.tables import reader
from albor_core.run.errors import DataError, NotFoundError, TryAgainError

IMPORTERS = {
    importer.name: importer
    for importer in (
        tensorboard.IMPORTER,
        wandb.IMPORTER,
        mlflow.IMPORTER,
        trackio.IMPORTER,
        neptune.IMPORTER,
        reader.CSV,  # whatever text no other knows
        reader.JSONL,
        reader.JSON,
    )
}
ALBOR = "albor"
SOURCES = (*IMPORTERS, ALBOR)
"""What `--from` takes: the formats of others, and run directories of Albor itself."""
MAX_ENTRIES = 500_000
_REFUSED = (".pt", ".pth", ".ckpt", ".bin", ".pkl", ".pickle", ".npy", ".npz",
            ".safetensors", ".gguf", ".h5", ".onnx")  # fmt: skip
_REFUSED_HEADS = (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05", b"\x93NUMPY", b"PK\x03\x04")


@dataclass(frozen=True)
class FoundFiles:
    """Files of one format, in the order of their paths, and where the search began."""

    importer: Importer
    root: Path
    files: tuple[Path, ...]

    def runs(self) -> Iterator[ForeignRun | Refusal]:
        """The runs inside, read one after the other; what cannot be read costs only itself."""
        for files in self._groups():
            try:
                yield from self.importer.read(files, self.root)
            except (DataError, TryAgainError) as error:
                yield Refusal(files[0], error.message)
            except OSError as error:
                yield Refusal(files[0], f"{error.filename or files[0]}: {error.strerror}")

    def _groups(self) -> list[list[Path]]:
        groups: dict[Path, list[Path]] = {}
        for path in self.files:
            groups.setdefault(self.importer.group(path), []).append(path)
        return list(groups.values())


def titles(importers: Iterable[Importer] = IMPORTERS.values(), last: str = "and") -> str:
    """The names of these formats, as words of a sentence."""
    *others, end = [importer.title for importer in importers]
    return f"{', '.join(others)} {last} {end}" if others else end


def find(path: Path, kind: str | None = None) -> FoundFiles:
    """What history `path`, a file or a folder, holds; only that of `kind`, a name of IMPORTERS, if
    one is given.

    Raises NotFoundError for a path that is not there, DataError for one that holds none, several
    kinds, or what could carry code.
    """
    asked = None if kind is None else IMPORTERS[kind]
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            return _below(path, asked)
        if not stat.S_ISREG(mode):
            raise DataError(f"{path}: neither a file nor a folder")
        head = _head(path)
        _refuse_code(path, head)
        found = _importer_of(path, head)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NotFoundError(
            f"{path}: no such file or folder", hint="albor runs import --help"
        ) from error
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error
    if found is None:
        what = "no history of a kind that is known" if path.stat().st_size else "an empty file"
        raise DataError(f"{path}: {what}", hint=f"known are {titles()}")
    if asked not in (None, found) and not (asked.only_asked and found.only_asked):
        raise DataError(
            f"{path}: this is {found.title}, not {asked.title}", hint=f"--from {found.name}"
        )
    return FoundFiles(asked or found, path, (path,))


def _refuse_code(path: Path, head: bytes) -> None:
    if path.suffix.lower() in _REFUSED or head.startswith(_REFUSED_HEADS):
        raise DataError(
            f"{path}: weights, arrays and pickles are not history, and a pickle can run code:"
            " it was not opened",
            hint=f"name the tracker's own files: {titles(last='or')}",
        )


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(4096)


def _importer_of(path: Path, head: bytes) -> Importer | None:
    """The format of a regular file. Raises DataError for a database of others."""
    if head.startswith(HEAD):
        return _of_database(path)
    for importer in IMPORTERS.values():
        if path.name == importer.folder_mark and importer.is_folder(path.parent):
            return None  # the folder is to be named
    return next((one for one in IMPORTERS.values() if one.is_file(path, head)), None)


def _of_database(path: Path) -> Importer:
    with opened(path) as db:
        for importer in IMPORTERS.values():
            if importer.is_database is not None and importer.is_database(db):
                return importer
        if columns(db, "metric_levels"):
            raise DataError(f"{path}: this is Albor's own store", hint="albor db rebuild --help")
    known = titles((one for one in IMPORTERS.values() if one.is_database is not None), "or")
    raise DataError(f"{path}: a database, but not one of {known}")


def _below(root: Path, asked: Importer | None) -> FoundFiles:
    found: dict[str, list[Path]] = {}
    refused = 0
    for path in _entries(root):
        importer = _candidate(path, asked)
        if importer is not None:
            found.setdefault(importer.name, []).append(path)
        refused += path.suffix.lower() in _REFUSED
    if asked is not None:
        found = {name: files for name, files in found.items() if name == asked.name}
    if not found:
        passed = (
            f" ({refused} files of weights, arrays or pickles are never opened)" if refused else ""
        )
        what = "a kind that is known" if asked is None else asked.title
        options = [f"--from {one.name}" for one in IMPORTERS.values() if one.only_asked]
        raise DataError(
            f"{root}: no history of {what} below this folder{passed}",
            hint=f"name files, or say {' or '.join(options)}",
        )
    if len(found) > 1:
        counts = ", ".join(f"{name} ({len(files)})" for name, files in sorted(found.items()))
        raise DataError(
            f"{root}: several kinds of history: {counts}",
            hint=f"import them one after the other: --from {min(found)}",
        )
    ((name, files),) = found.items()
    return FoundFiles(IMPORTERS[name], root, tuple(sorted(files)))


def _entries(root: Path) -> Iterator[Path]:
    """Regular files, and folders that are runs; links are not followed, what cannot be listed is
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
        if any(one.folder_mark in names and one.is_folder(here) for one in IMPORTERS.values()):
            folders[:] = []
            yield here
            continue
        for name in sorted(names):
            path = here / name
            if stat.S_ISREG(path.lstat().st_mode):
                yield path


def _candidate(path: Path, asked: Importer | None) -> Importer | None:
    """The format of an entry of a folder, told by its content where its name is promising."""
    if path.is_dir():
        return next(one for one in IMPORTERS.values() if one.is_folder(path))
    if asked is not None and asked.only_asked and asked.may_be(path.name):
        return asked
    among = [one for one in IMPORTERS.values() if one.may_be(path.name) and not one.only_asked]
    if not among:
        return None
    head = _head(path)
    try:
        if head.startswith(HEAD):
            return _of_database(path)
    except DataError:
        return None
    return next((one for one in among if one.is_file(path, head)), None)
