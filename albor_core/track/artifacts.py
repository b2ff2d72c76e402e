"""Files and folders that a run made or used: their hash, their version, and a copy if wanted.

Unlike other media they are read, hashed and copied here and now, in the caller's thread and outside
the run's lock: when `artifact` returns, the copy is whole and synced and the journal has its lines.
A copy of a folder is a file for each of its own and a list of them (`tree`); links in it are left
out and counted.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
import time
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from albor_core.run.errors import AlborError, DataError, NotFoundError
from albor_core.run.files.fingerprint import fingerprint
from albor_core.run.files.media_file import (
    TooLargeError,
    is_hash,
    media_path,
    publish,
    publish_copy,
)
from albor_core.run.files.whole_file import temporary_beside
from albor_core.run.home.folders import pointer_of
from albor_core.run.home.runs import run_at
from albor_core.run.rundir import open_plain, read_json
from albor_core.run.values.metrics import as_text, printable
from albor_core.track.artifact_versions import Version, find, name_of, take
from albor_core.track.encode.medium import RefusedError
from albor_core.track.media import step_of
from albor_core.track.media_writer import MediaWriter, writer_of

_MAX_FILES = 100_000
_MAX_LIST_BYTES = 64 << 20


def artifact(
    run: Any,
    path: str | os.PathLike[str],
    *,
    name: str | None = None,
    kind: str = "file",
    step: int | None = None,
    copy: bool = False,
    max_bytes: int | None = None,
) -> str | None:
    """Record a file or folder that the run made: path, size, version and hash, which is returned as
    `blake3:HEX`; of one that cannot be read None.
    """
    writer, where = writer_of(run), Path()
    try:
        if isinstance(path, str) and not path.strip():
            raise ValueError("an empty path")  # and not the folder that the program works in
        where = Path(path).expanduser().absolute()
        title = name_for(name, where)
        most = writer.limits.for_call(max_bytes).max_artifact
        form, size, digest, files = _copied(run, writer, where, most) if copy else _hashed(where)
    except RefusedError as refused:
        _fail(run, path, refused.reason, step)
        writer.refuse("artifact", printable(as_text(path))[:100], refused)
        return None
    except Exception as error:  # of the system, or of what was given for a path
        _fail(run, path, error, step)
        unread = RefusedError("artifact_unreadable", RefusedError.unreadable(error).reason)
        writer.refuse("artifact", printable(as_text(path))[:100], unread)
        return None
    place = os.fsencode(where).decode(errors="backslashreplace")
    at, word = step_of(run, step), printable(as_text(kind))[:64]
    about: dict[str, Any] = {"name": title, "bytes": size}
    # `a` is what it always was: that it was made; `b` adds the version, and where the copy lies
    digest_word = f"blake3:{digest}"
    run.journal_append("a", at, path=place, hash=digest_word, kind=word, **about)
    version = _numbered(run, title, digest, size, form, place)
    meta: dict[str, Any] = {"format": form, "role": "made", "type": word, "path": place[:500]}
    if files is not None:
        meta["files"] = files
    _say(run, at, title, digest, size, version, meta)
    return digest_word


def use_artifact(
    run: Any,
    reference: str,
    *,
    to: str | os.PathLike[str] | None = None,
    step: int | None = None,
) -> Path:
    """The path of an artefact of any run of this home: `NAME:v3`, or `NAME` for the newest; the run
    is recorded as one that used it.

    A copied file is given as it is kept, not to be written to; a copied folder, and with `to`
    anything, is copied there (a folder without `to` below the run's own). Raises NotFoundError
    where there is none or its file is gone, DataError where what stayed in its place has
    changed.
    """
    found = find(as_text(reference))
    path = _brought(run, found, None if to is None else Path(to).expanduser().absolute())
    meta = {"format": found.form, "role": "used", "run": found.run, "path": found.path[:500]}
    at = step_of(run, step)
    _say(run, at, found.name, found.hash, found.bytes, found.version, meta)
    return path


def _say(
    run: Any,
    step: int | None,
    name: str,
    digest: str,
    size: int,
    version: int | None,
    meta: dict[str, Any],
) -> None:
    line = {"key": name, "kind": "artifact", "hash": digest, "bytes": size, "name": name}
    run.journal_append("b", step, **line, version=version, caption="", meta=meta)


def _fail(run: Any, where: object, error: object, step: int | None) -> None:
    run.event("artifact.failed", step=step, severity="warning", path=where, error=error)


def _numbered(run: Any, name: str, digest: str, size: int, form: str, place: str) -> int | None:
    """Its version number; None, and counted, if the list of versions cannot be written."""
    found = Version(name, 0, digest, size, form, run.id, str(run.dir.path), place, time.time())
    try:
        return take(found).version
    except (AlborError, OSError) as error:
        run.odd.note("artifact_unversioned", name, error)
        return None


# -- keeping -----------------------------------------------------------------------------------


def _hashed(where: Path) -> tuple[str, int, str, None]:
    size, digest = fingerprint(where)
    return "", size, digest.removeprefix("blake3:"), None


def _copied(
    run: Any, writer: MediaWriter, where: Path, most: int
) -> tuple[str, int, str, int | None]:
    """(form, bytes, hash, files of a folder). Raises RefusedError, OSError."""
    if not where.is_dir():
        size = where.stat().st_size
        _bound(size, most)
        writer.admit_bytes(size)
        return "bin", *_copy(run, writer, where.resolve(strict=True), most), None
    names = [*_files_of(run, where)]
    total = sum(size for _, size in names)
    _bound(total, most)
    if len(names) > _MAX_FILES:
        raise RefusedError("media_too_large", f"a folder of {len(names):,} files")
    writer.admit_bytes(total)
    rows, left = [], most
    for inside, _ in names:
        size, digest = _copy(run, writer, inside, left)
        left -= size
        name = os.fsencode(inside.relative_to(where)).decode("utf-8", "surrogateescape")
        rows.append({"name": name, "hash": digest, "bytes": size})
    content = json.dumps({"files": rows}, separators=(",", ":")).encode()
    file = publish(run.dir.path, "tree", content)
    writer.add_bytes(file.bytes * file.is_new)
    return "tree", most - left, file.hash, len(rows)


def _bound(size: int, most: int) -> None:
    if size > most:
        raise RefusedError.too_large(size, most)


def _copy(run: Any, writer: MediaWriter, path: Path, most: int) -> tuple[int, str]:
    try:
        with open_plain(path) as source:
            file = publish_copy(run.dir.path, "bin", source, most)
    except TooLargeError as error:  # it grew
        raise RefusedError("media_too_large", str(error)) from error
    writer.add_bytes(file.bytes * file.is_new)
    return file.bytes, file.hash


def _files_of(run: Any, folder: Path) -> Iterator[tuple[Path, int]]:
    """The regular files below a folder with their sizes, in order of their names."""
    for parent, folders, names in os.walk(folder, onerror=_raise):
        folders.sort()
        for name in sorted(names):
            path = Path(parent) / name
            status = path.lstat()
            if stat.S_ISREG(status.st_mode):
                yield path, status.st_size
            else:
                run.odd.note("artifact_link", path)
        links = [name for name in folders if (Path(parent) / name).is_symlink()]
        for name in links:
            run.odd.note("artifact_link", Path(parent) / name)


def _raise(error: OSError) -> None:
    raise error


# -- bringing back -----------------------------------------------------------------------------


def _brought(run: Any, found: Version, to: Path | None) -> Path:
    gone = NotFoundError(
        f"{found.reference}: its file is gone", hint=f"run {found.run} in {found.folder} had it"
    )
    if found.form == "":
        source = Path(found.path)
        try:
            _, digest = fingerprint(source)
        except OSError as error:
            raise gone from error
        if digest != f"blake3:{found.hash}":
            raise DataError(
                f"{found.path}: has changed since it became {found.reference}",
                hint="run.artifact(PATH, copy=True) keeps what it was",
            )
        return source if to is None else _copy_out(source, to)
    folder = _folder_of(found)
    kept = media_path(folder, found.hash, found.form)
    if kept is None or not kept.is_file():
        raise gone
    if found.form == "bin":
        return kept if to is None else _copy_out(kept, to)
    place = to or run.dir.path / "used" / f"{_slug(found.name)}-v{found.version}"
    _lay_out(folder, kept, place, gone)
    return place


def _folder_of(found: Version) -> Path:
    """The folder of the run that made it, wherever that was moved since."""
    run = run_at(found.run, read_json(pointer_of(found.run)))
    return Path(found.folder) if run is None else run.path


def _slug(name: str) -> str:
    return "".join(char if char.isalnum() or char in "._-" else "-" for char in name).strip(".-")


def _copy_out(source: Path, to: Path) -> Path:
    if source.is_dir():
        shutil.copytree(source, to, dirs_exist_ok=True, symlinks=True)
        return to
    target = to / source.name if to.is_dir() else to
    target.parent.mkdir(parents=True, exist_ok=True)
    half = temporary_beside(target)
    try:
        shutil.copyfile(source, half)
        half.replace(target)
    finally:
        half.unlink(missing_ok=True)
    return target


def _lay_out(folder: Path, tree: Path, place: Path, gone: NotFoundError) -> None:
    """The files of a copied folder below `place`, whatever its list may say."""
    with open_plain(tree) as file:
        rows = json.loads(file.read(_MAX_LIST_BYTES)).get("files", [])
    for row in rows:
        name, digest = PurePosixPath(row["name"]), row["hash"]
        leaves = name.is_absolute() or ".." in name.parts or not name.parts
        source = media_path(folder, digest, "bin") if is_hash(digest) else None
        if leaves or source is None:
            raise DataError(f"{tree}: not a list of files that Albor wrote")
        if not source.is_file():
            raise gone
        _copy_out(source, place / name)


def name_for(name: object, where: Path) -> str:
    """What versions call it: the name given, else that of the file or folder."""
    return name_of(name) if name is not None else name_of(where.name)
