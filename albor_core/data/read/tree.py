"""Text files below a folder, in the order of their paths, and a text file by itself."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from albor_core.data.read.inputs import (
    UNIT_BYTES,
    Asked,
    Document,
    InputSource,
    printable,
    reason_to_skip,
)
from albor_core.data.stage.counts import Counts
from albor_core.data.stage.stamp import changed, stamp_of

MAX_UNIT_FILES = 10_000  # tiny ones cost more than their bytes do

Entry = tuple[str, int, int]
"""Path below the folder, size, time of modification in nanoseconds."""


@dataclass
class SourceTree:
    """A folder's walk. What it leaves out is counted in `counts`, by reason.

    `listed`: paths below the folder that alone are of interest. `apart`: paths that are none of
    the folder's: where the import itself writes.
    """

    source: InputSource
    asked: Asked
    counts: Counts
    listed: Collection[str] | None = None
    apart: frozenset[str] = frozenset()
    _folders: frozenset[str] | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self._root = os.fspath(self.source.path).rstrip("/")
        if self.listed is not None:
            parents = {str(p) for one in self.listed for p in PurePosixPath(one).parents}
            self._folders = frozenset(parents)

    def entries(self) -> Iterator[Entry]:
        """Sorted by path, each of a regular file with a wanted suffix. A stack of its own: a
        hostile tree may be deeper than Python recurses.
        """
        stack = [iter(self._below(""))]
        while stack:
            entry = next(stack[-1], None)
            if entry is None:
                stack.pop()
            elif entry[0].endswith("/"):
                stack.append(iter(self._below(entry[0])))
            else:
                yield entry

    def _below(self, prefix: str) -> list[Entry]:
        """What is directly under `prefix`, folders ending in '/': sorted so, the depth-first walk
        equals sorting all full paths.
        """
        found: list[Entry] = []
        suffixes = self.asked.suffixes
        try:
            with os.scandir(f"{self._root}/{prefix}") as entries:
                for entry in entries:
                    wanted = entry.name.endswith(suffixes)
                    if wanted or entry.is_dir(follow_symlinks=False) or entry.is_symlink():
                        self._look(prefix, entry, wanted, found)
        except OSError:
            self._drop(prefix, "unreadable")
        return sorted(found)

    def _look(self, prefix: str, entry: os.DirEntry[str], wanted: bool, found: list[Entry]) -> None:
        path = prefix + entry.name
        if self.listed is not None and path not in self.listed:
            wanted = False
        if entry.is_symlink():
            if wanted or (self.listed is None and _leads_to_folder(entry)):
                self._drop(path, "symlink")
        elif entry.is_dir(follow_symlinks=False):
            if self.listed is not None and path in self.listed:
                self._drop(path, "submodule")
            elif self._is_entered(path, entry):
                found.append((path + "/", 0, 0))
        elif wanted and not self._is_apart(path):
            status = entry.stat(follow_symlinks=False)
            # opening a pipe with the name x.py would wait for a writer
            if not stat.S_ISREG(status.st_mode):
                self._drop(path, "unreadable")
            elif not _is_utf8(path):
                self._drop(path, "not_utf8")
            else:
                found.append((path, *stamp_of(status)))

    def _is_entered(self, path: str, entry: os.DirEntry[str]) -> bool:
        if entry.name in self.asked.exclude or self._is_apart(path):
            return False
        if self._folders is not None:
            return path in self._folders
        return not (entry.name == ".git" and self.source.kind == "git")

    def _is_apart(self, path: str) -> bool:
        return bool(self.apart) and f"{self._root}/{path}" in self.apart

    def _drop(self, path: str, reason: str) -> None:
        name = self.source.name
        self.counts.source(name).documents_in += 1
        self.counts.drop(name, f"{name}/{printable(path)}", reason)


def file_units(entries: Iterator[Entry], cap: int) -> Iterator[tuple[int, int, list[Entry]]]:
    """Files, bytes and entries of pieces of about 16 MiB; of a file at most `cap` bytes count."""
    pending: list[Entry] = []
    size = 0
    for entry in entries:
        pending.append(entry)
        size += min(entry[1], cap)
        if size >= UNIT_BYTES or len(pending) == MAX_UNIT_FILES:
            yield len(pending), size, pending
            pending, size = [], 0
    if pending:
        yield len(pending), size, pending


def text_entry(path: Path) -> Iterator[Entry]:
    """The entry of a text file that is a source by itself."""
    yield (path.name, *stamp_of(path.stat()))


def files(folder: Path, entries: list[Entry], max_bytes: int) -> Iterator[Document]:
    """Each as a document. Raises DataError for one that is not what it was when it was listed."""
    prefix = os.fspath(folder)
    for name, size, modified in entries:
        path = f"{prefix}/{name}"
        try:
            # NONBLOCK: a pipe that took the file's place must not wait for a writer
            handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except PermissionError:
            yield Document(name, b"", "unreadable")
            continue
        except OSError as error:  # gone, or a link by now
            raise changed(Path(path)) from error
        try:
            if stamp_of(os.fstat(handle)) != (size, modified):
                raise changed(Path(path))
            if size > max_bytes:
                yield Document(name, b"", "too_large")
                continue
            text = _read(handle, size)
        except OSError:  # a bad sector, a file system that went away
            yield Document(name, b"", "unreadable")
            continue
        finally:
            os.close(handle)
        if len(text) != size:
            raise changed(Path(path))
        yield Document(name, text, reason_to_skip(text, max_bytes))


def _read(handle: int, size: int) -> bytes:
    """`size` bytes, fewer of a file that is shorter, one more of a file that is longer."""
    text = os.read(handle, size + 1)
    while len(text) < size and (more := os.read(handle, size + 1 - len(text))):
        text += more
    return text


def _is_utf8(name: str) -> bool:
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _leads_to_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link that points to itself
        return False
