"""A git repository: which files are its own, at which commit, under which licence, from where.

A work tree is read from disk, a bare repository by git itself. git runs no program that the
repository's own configuration names (`provenance.git_command`).
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

from albor_core.data.read.inputs import (
    UNIT_BYTES,
    Asked,
    Document,
    InputSource,
    printable,
    reason_to_skip,
)
from albor_core.data.read.licence import MAX_BYTES, is_licence_file, licence_of
from albor_core.data.stage.counts import Counts
from albor_core.run.errors import AlborError, DataError
from albor_core.run.program.provenance import git_command

_NO_GIT = "install git, or read it as a plain folder: --no-git"
_SYMLINK, _SUBMODULE = b"120000", b"160000"

Blob = tuple[str, str, int]
"""Path, object name, size in bytes."""


def is_bare(path: Path) -> bool:
    return (path / "HEAD").is_file() and all((path / one).is_dir() for one in ("objects", "refs"))


def described(source: InputSource, asked: Asked, apart: frozenset[str]) -> InputSource:
    """With what git knows of a folder; the same where it is in no repository, or holds nothing that
    the repository tracks. It is dirty where a file that would be read is; `apart`: where the import
    itself writes. Raises AlborError where git is needed and cannot be asked.
    """
    path = source.path
    if is_bare(path):
        commit = _said(path, "rev-parse", "--verify", "HEAD^{commit}").strip()
        name = source.name.removesuffix(".git")
        texts = (_blob(path, one) for one in _licence_blobs(path))
        return replace(
            source, kind="bare", name=name, commit=commit, dirty=False,
            licence=licence_of(texts), url=_url(path),
        )  # fmt: skip
    top = next((one for one in (path, *path.parents) if (one / ".git").exists()), None)
    if top is None or (top != path and not _tracks(path)):
        return replace(source, licence=_licence_on_disk(path))
    try:
        commit = _said(path, "rev-parse", "--verify", "HEAD^{commit}").strip()
    except AlborError:
        _said(path, "rev-parse", "--git-dir")  # a repository, in which nothing is committed yet
        commit = ""
    others = (one for one in _changed(path) if not _is_apart(f"{top}/{one}", apart))
    dirty = any(_is_wanted(one, asked) for one in others)
    return replace(
        source, kind="git", commit=commit or None, dirty=dirty,
        licence=_licence_on_disk(path) or _licence_on_disk(top), url=_url(path),
    )  # fmt: skip


def listed(path: Path) -> frozenset[str]:
    """Files of a work tree below `path`: tracked, or neither tracked nor ignored."""
    said = _said(path, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    return frozenset(said.split("\0")) - {""}


def blob_units(
    source: InputSource, asked: Asked, counts: Counts
) -> Iterator[tuple[int, int, list[Blob]]]:
    """Files, bytes and names of pieces of a bare repository, of about 16 MiB."""
    pending: list[Blob] = []
    size = 0
    for blob in _blobs(source, asked, counts):
        pending.append(blob)
        size += min(blob[2], asked.max_bytes)
        if size >= UNIT_BYTES:
            yield len(pending), size, pending
            pending, size = [], 0
    if pending:
        yield len(pending), size, pending


def blobs(repository: Path, wanted: list[Blob], max_bytes: int) -> Iterator[Document]:
    """Each as a document."""
    command = [*git_command(repository), "cat-file", "--batch"]
    with _started(command, stdin=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        for name, blob, size in wanted:
            if size > max_bytes:
                yield Document(name, b"", "too_large")
                continue
            process.stdin.write(blob.encode() + b"\n")
            process.stdin.flush()
            head = process.stdout.readline().split()
            if len(head) != 3 or int(head[2]) != size:
                raise DataError(
                    f"{repository}: object {blob} of {name} cannot be read",
                    hint=f"look for damage with: git -C {repository} fsck",
                )
            text = process.stdout.read(size + 1)[:-1]
            yield Document(name, text, reason_to_skip(text, max_bytes))
        process.stdin.close()


def _blobs(source: InputSource, asked: Asked, counts: Counts) -> Iterator[Blob]:
    name = source.name
    for mode, blob, size, path in _tree(source.path, "-r", str(source.commit)):
        if _is_wanted(path, asked, any_name=mode == _SUBMODULE):
            reason = {_SYMLINK: "symlink", _SUBMODULE: "submodule"}.get(mode, "")
            if printable(path) != path:
                reason = "not_utf8"
            if not reason:
                yield path, blob, size
                continue
            counts.source(name).documents_in += 1
            counts.drop(name, f"{name}/{printable(path)}", reason)


def _is_wanted(path: str, asked: Asked, *, any_name: bool = False) -> bool:
    *folders, name = path.split("/")
    is_excluded = bool(asked.exclude) and not set(folders).isdisjoint(asked.exclude)
    return not is_excluded and (any_name or name.endswith(asked.suffixes))


def _is_apart(path: str, apart: frozenset[str]) -> bool:
    return any(path == one or path.startswith(f"{one}/") for one in apart)


def _changed(path: Path) -> Iterator[str]:
    """Files below `path` that differ from the commit or are unknown to it, by their paths from the
    top of the work tree.
    """
    said = _said(path, "status", "--porcelain", "-z", "--untracked-files=all", "--", ".")
    entries = iter(said.split("\0"))
    for entry in entries:
        if entry:
            yield entry[3:]
        if entry[:1] in ("R", "C"):  # the name before follows
            yield next(entries, "")


def _tree(path: Path, *arguments: str) -> Iterator[tuple[bytes, str, int, str]]:
    """(mode, object, size, path) of each entry; of anything but a blob the size is 0."""
    for line in _said(path, "ls-tree", "-z", "-l", *arguments).split("\0"):
        if line:
            head, _, name = line.partition("\t")
            mode, kind, blob, size = head.split()
            yield mode.encode(), blob, int(size) if kind == "blob" else 0, name


def _licence_blobs(path: Path) -> list[str]:
    found = _tree(path, "HEAD")
    return [blob for _, blob, size, name in found if is_licence_file(name) and 0 < size < MAX_BYTES]


def _blob(path: Path, blob: str) -> bytes:
    return _said(path, "cat-file", "blob", blob).encode("utf-8", "surrogateescape")


def _licence_on_disk(folder: Path) -> str | None:
    texts = []
    try:
        for one in sorted(folder.iterdir()):
            if is_licence_file(one.name) and one.is_file() and not one.is_symlink():
                with one.open("rb") as stream:
                    texts.append(stream.read(MAX_BYTES))
    except OSError:
        return None
    return licence_of(texts)


def _tracks(folder: Path) -> bool:
    try:
        return bool(_said(folder, "ls-files", "-z", "--", "."))
    except AlborError:  # a foreign repository around a folder of ours
        return False


def _url(path: Path) -> str | None:
    """Where it was cloned from, without a name or a password."""
    try:
        url = _said(path, "config", "--get", "remote.origin.url").strip()
        parts = urlsplit(url)
    except (AlborError, ValueError):
        return None
    if parts.scheme and parts.hostname:
        host = parts.hostname + (f":{parts.port}" if parts.port else "")
        return parts._replace(netloc=host, query="", fragment="").geturl()
    return None  # a path on this machine says nothing to others


def _said(path: Path, *arguments: str) -> str:
    """The output of git. Raises AlborError with its error message."""
    process = _started([*git_command(path), *arguments], stdin=subprocess.DEVNULL)
    out, complaint = process.communicate()
    if process.returncode:
        why = complaint.decode("utf-8", "replace").strip().splitlines()
        raise AlborError(f"{path}: git {arguments[0]}: {why[0] if why else 'failed'}", hint=_NO_GIT)
    return out.decode("utf-8", "surrogateescape")


def _started(command: list[str], stdin: int) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            command, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
    except OSError as error:
        raise AlborError(f"git cannot be run: {error.strerror}", hint=_NO_GIT) from error
