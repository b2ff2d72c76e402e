"""Files that appear whole or not at all: temporary file, fsync, rename, fsync of the directory.

The temporary name is fixed per target and held under `flock`, so that a killed writer leaves at
most one file, the next writer reuses it, and two writers of one target cannot mix their bytes.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from albor_core.run.errors import AlborError, InUseError, UsageError, remedy
from albor_core.run.files.lock_file import locked
from albor_core.run.files.whole_file import fsync_dir, no_folder


def temporary(path: Path) -> Path:
    """The name `publishing(path)` writes under; hidden, and never taken for a shard."""
    return path.with_name(f".{path.name}.tmp")


def check_target(path: Path, example: str) -> None:
    """Raise UsageError where `path` is a folder, NotFoundError where its own folder is missing;
    `example` is a name for a file.
    """
    if path.is_dir() or not path.name:
        raise UsageError(f"{path}: is a folder; name a file in it", hint=f"--out {path / example}")
    if not path.parent.exists():
        raise no_folder(path)


@contextmanager
def publishing(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; renamed to it at the end, removed if the block raises.

    Missing parent directories are made, and removed again with it. Raises InUseError when another
    process is writing the same target, UsageError where it is a folder, AlborError naming the file
    when the system refuses.
    """
    if path.is_dir() or not path.name:
        raise UsageError(f"{path}: is a folder, not a file to write", hint="name a file in it")
    temp = temporary(path)
    made = [parent for parent in path.parents if not parent.exists()]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        busy = InUseError(
            f"{path}: another process is writing it", hint="wait for it, or choose another output"
        )
        with locked(temp, busy, 0o666) as descriptor:
            os.ftruncate(descriptor, 0)
            try:
                yield temp
                os.fsync(descriptor)
                temp.replace(path)
            except BaseException:
                with suppress(FileNotFoundError):
                    temp.unlink()
                for parent in made:
                    with suppress(OSError):  # another process put a file there meanwhile
                        parent.rmdir()
                raise
        fsync_dir(path.parent)
    except OSError as error:
        raise AlborError(
            f"{path}: cannot be written: {error.strerror or error}",
            hint=f"{remedy(error) or 'run it again'}; or choose another place",
        ) from error


def publish_json(path: Path, document: dict[str, Any]) -> None:
    """Write `document` as strict, sorted JSON; the same document gives the same bytes."""
    with publishing(path) as temp:
        text = json.dumps(document, indent=1, sort_keys=True, allow_nan=False)
        temp.write_text(text + "\n", encoding="utf-8")


def link_or_copy(file: Path, target: Path) -> None:
    """Give `file` the second name `target`, or copy it where the file system has no links."""
    try:
        os.link(file, target)
    except FileExistsError:
        raise
    except OSError:
        with publishing(target) as temp:
            shutil.copyfile(file, temp)


def sha256_file(path: Path) -> str:
    """Hexadecimal SHA-256 of the whole file, read in pieces."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
