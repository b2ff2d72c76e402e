"""Files of a run by what is in them: RUN_DIR/media/HH/HASH.FORMAT, HASH their BLAKE3.

Equal contents are one file, whoever publishes them how often. A file appears whole or not at all:
it has no name until all of it is written and synced, so that kill -9 leaves nothing behind, where
the file system knows nameless files; elsewhere a hidden one that `clear_halves` takes away. Any
thread may publish. Nothing here follows a link that stands in the place of a folder or file of
media.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from albor_core.run.files.whole_file import NAMELESS, temporary_beside
from albor_core.run.light_dataclass import dataclass
from albor_core.run.values.metrics import printable

MEDIA = "media"
KINDS = ("image", "histogram", "table", "audio", "text", "figure", "artifact")
INLINE_BYTES = 2048  # of JSON: smaller media are in the journal itself
_HASH = re.compile(r"[0-9a-f]{64}")
_FORMAT = re.compile(r"[a-z0-9]{1,8}")
_PIECE = 1 << 20
_CAPTION_BYTES = 512  # as JSON
_ROOM_BYTES = 3400  # of a line of 4 KiB, for what has no bound of its own


class TooLargeError(OSError):
    """More than the caller wanted to keep; nothing was."""


@dataclass(frozen=True)
class MediaFile:
    """A published file. `is_new`: nothing held these contents before."""

    hash: str
    bytes: int
    is_new: bool


def hash_of(content: bytes) -> str:
    """The name of contents, 64 hexadecimal digits."""
    from blake3 import blake3  # noqa: PLC0415  most loops record no media

    return blake3(content).hexdigest()


def is_hash(text: object) -> bool:
    """Whether `text`, of a journal that may hold anything, can name a file here."""
    return isinstance(text, str) and _HASH.fullmatch(text) is not None


def caption_of(said: str) -> str:
    """A caption that a line of the journal has room for."""
    words = printable(" ".join(said[:_CAPTION_BYTES].split()))
    while len(json.dumps(words)) > _CAPTION_BYTES:
        words = words[: len(words) * 3 // 4]
    return words


def fits_line(key: str, caption: str, meta: Mapping[str, Any]) -> bool:
    """Whether a line of the journal has room for all of it."""
    return len(json.dumps([key, caption, meta])) <= _ROOM_BYTES


def media_path(run: Path, digest: str, form: str) -> Path | None:
    """The path of the contents, if they exist; None for a name that cannot be a file."""
    if not is_hash(digest) or _FORMAT.fullmatch(form) is None:
        return None
    return run / MEDIA / digest[:2] / f"{digest}.{form}"


def publish(run: Path, form: str, content: bytes) -> MediaFile:
    """Keep `content` in the run's folder `run`. Raises OSError, and then leaves nothing."""
    digest = hash_of(content)
    with _folder(run) as root, _folder(digest[:2], root) as folder:
        name = f"{digest}.{form}"
        if _holds(folder, name, len(content)):
            return MediaFile(digest, len(content), is_new=False)
        with _draft(root) as draft:
            draft.write(content)
            is_new = _give(draft, folder, name)
    return MediaFile(digest, len(content), is_new)


def publish_copy(run: Path, form: str, source: BinaryIO, most: int) -> MediaFile:
    """Keep what `source` holds, read once. Raises TooLargeError beyond `most` bytes, OSError; both
    leave nothing.
    """
    from blake3 import blake3  # noqa: PLC0415

    hasher, size = blake3(), 0
    with _folder(run) as root, _draft(root) as draft:
        while piece := source.read(_PIECE):
            size += len(piece)
            if size > most:
                raise TooLargeError(f"more than {most:,} bytes")
            hasher.update(piece)
            draft.write(piece)
        digest = hasher.hexdigest()
        with _folder(digest[:2], root) as folder:
            name = f"{digest}.{form}"
            is_new = not _holds(folder, name, size) and _give(draft, folder, name)
    return MediaFile(digest, size, is_new)


def kept(run: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Every published file of a run; links, folders and other names are none."""
    for inner in _entries(run / MEDIA):
        if len(inner.name) == 2 and inner.is_dir(follow_symlinks=False):
            for entry in _entries(Path(inner.path)):
                digest, _, form = entry.name.partition(".")
                is_one = is_hash(digest) and _FORMAT.fullmatch(form)
                if is_one and entry.is_file(follow_symlinks=False):
                    with suppress(FileNotFoundError):
                        yield Path(entry.path), entry.stat(follow_symlinks=False)


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        if not stat.S_ISDIR(folder.lstat().st_mode):
            return []
        with os.scandir(folder) as found:
            return sorted(found, key=lambda entry: entry.name)
    except OSError:
        return []


@contextmanager
def _folder(place: Path | str, within: int | None = None) -> Iterator[int]:
    """A folder of media, made if need be, as a descriptor that no link leads away from."""
    name: Path | str = place / MEDIA if isinstance(place, Path) else place
    with suppress(FileExistsError):
        os.mkdir(name, 0o700, dir_fd=within)
    fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=within)
    try:
        yield fd
    finally:
        os.close(fd)


def _holds(folder: int, name: str, size: int) -> bool:
    """Whether the contents lie there; what a power cut left of them does not count."""
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return stat.S_ISREG(found.st_mode) and found.st_size == size


@dataclass(frozen=True)
class _Draft:
    """A file without its name: nameless, or of a hidden one in `folder`."""

    fd: int
    folder: int
    hidden: str

    def write(self, content: bytes) -> None:
        view = memoryview(content)
        while view:
            view = view[os.write(self.fd, view) :]


@contextmanager
def _draft(folder: int) -> Iterator[_Draft]:
    fd, hidden = _open_draft(folder)
    try:
        yield _Draft(fd, folder, hidden)
    finally:
        os.close(fd)
        if hidden:
            with suppress(FileNotFoundError):
                os.unlink(hidden, dir_fd=folder)


def _open_draft(folder: int) -> tuple[int, str]:
    flags = os.O_WRONLY | os.O_CLOEXEC
    if NAMELESS:
        with suppress(OSError):  # a file system without them; a full disk says so again below
            return os.open(".", NAMELESS | flags, 0o400, dir_fd=folder), ""
    hidden = temporary_beside(Path(MEDIA)).name
    return os.open(hidden, flags | os.O_CREAT | os.O_EXCL, 0o400, dir_fd=folder), hidden


def _give(draft: _Draft, folder: int, name: str) -> bool:
    """Sync and name; False where another was faster with the same contents."""
    os.fdatasync(draft.fd)
    if draft.hidden:
        os.replace(draft.hidden, name, src_dir_fd=draft.folder, dst_dir_fd=folder)
        return True
    try:
        _link(draft, folder, name)
        return True
    except FileExistsError:
        if _holds(folder, name, os.fstat(draft.fd).st_size):
            return False
    beside = temporary_beside(Path(MEDIA)).name  # half of it stands there: replaced in one step
    _link(draft, draft.folder, beside)
    os.replace(beside, name, src_dir_fd=draft.folder, dst_dir_fd=folder)
    return True


def _link(draft: _Draft, folder: int, name: str) -> None:
    """See open(2), O_TMPFILE. A descriptor is named because only then Python calls linkat()."""
    os.link(f"/proc/self/fd/{draft.fd}", name, src_dir_fd=draft.fd, dst_dir_fd=folder)
