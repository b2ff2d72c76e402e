"""Source trees in, one Parquet file out: columns `text`, `source`, `file`, in sorted order.

The same files give the same bytes: order is by path, and every writer setting that reaches the
file is fixed here. What is left out is counted by reason, never silently.
"""

from __future__ import annotations

import os
import stat
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from albor_core.data.progress import Progress
from albor_core.data.read.corpus import CorpusHash, open_corpus
from albor_core.run.errors import (
    AlborError,
    ConfigError,
    DataError,
    NotFoundError,
    Problem,
    UsageError,
)
from albor_core.run.files.publish import check_target, publishing

# generated tables and vendored blobs live above it; hand-written code does not
MAX_FILE_BYTES = 1 << 20
_ROW_GROUP_BYTES = 8 << 20
_SCHEMA = pa.schema(
    [
        pa.field("text", pa.string(), nullable=False),
        pa.field("source", pa.string(), nullable=False),
        pa.field("file", pa.string(), nullable=False),
    ]
)


@dataclass(frozen=True)
class ImportReport:
    """What an import wrote, and why the rest was left out."""

    files: int
    bytes: int
    """UTF-8 bytes of text taken in."""
    skipped: dict[str, int]
    """Reason -> count; reasons: not_utf8 empty too_large binary unreadable symlink."""
    corpus_hash: str
    """See `corpus.CorpusHash`; depends on names and text only, not on the file's encoding."""
    out: Path
    reused: bool = False
    """`out` held these very documents already and was left alone."""


class _SameDocuments(Exception):
    """What was imported is in the output already; ends the writing of another copy."""


def import_sources(
    dirs: Sequence[Path],
    out: Path,
    *,
    exclude: Sequence[str] = (),
    suffixes: Sequence[str] = (".py",),
    max_bytes: int = MAX_FILE_BYTES,
    force: bool = False,
    progress: Progress | None = None,
) -> ImportReport:
    """Write every text file below `dirs` whose name ends in one of `suffixes` to `out`.

    `exclude` holds directory names, matched at any depth. Symbolic links are counted, not
    followed. Memory is bounded by one row group. `progress` is called with the files and the bytes
    taken. Raises NotFoundError for a missing directory, ConfigError for overlapping ones, DataError
    for a tree that yields nothing, UsageError for an `out` where a file cannot be written, or holds
    anything but these documents (unless `force`); after any error `out` is as it was before.
    """
    trees = _name_trees(dirs)
    check_target(out, "corpus.parquet")
    earlier = None if force else _documents_in(out)
    intake = _Intake(frozenset(exclude), tuple(suffixes), max_bytes, progress)
    reused = False
    try:
        with publishing(out) as temp, _Rows(temp) as rows:
            for name, root in trees:
                for relative, text in intake.texts(name, root):
                    rows.add(text, name, relative)
            if earlier == intake.digest.hexdigest():
                raise _SameDocuments
            if earlier is not None:
                raise _holds_something_else(out, "other documents")
    except _SameDocuments:
        reused = True
    return ImportReport(
        intake.files,
        intake.size,
        dict(sorted(intake.skipped.items())),
        intake.digest.hexdigest(),
        out,
        reused,
    )


@dataclass(frozen=True)
class ImportPlan:
    """What an import would take in, leave out and write. It can be done where `problems` is empty.

    `action`: write, replace, or keep where the output holds these very documents.
    """

    files: int
    bytes: int
    skipped: dict[str, int]
    out: Path
    action: str
    problems: tuple[Problem, ...]


def plan_import(
    dirs: Sequence[Path],
    out: Path,
    *,
    exclude: Sequence[str] = (),
    suffixes: Sequence[str] = (".py",),
    max_bytes: int = MAX_FILE_BYTES,
    force: bool = False,
    progress: Progress | None = None,
) -> ImportPlan:
    """Read what `import_sources` would read; write nothing, raise nothing that a user can cause."""
    problems: list[Problem] = []
    intake = _Intake(frozenset(exclude), tuple(suffixes), max_bytes, progress)
    action = "write"
    trees: list[tuple[str, Path]] = []
    try:
        trees = _name_trees(dirs)
    except AlborError as error:
        problems.append(Problem("dir", error.message, error.hint))
    for name, root in trees:
        try:
            deque(intake.texts(name, root), maxlen=0)
        except DataError as nothing:
            problems.append(Problem("dir", nothing.message, nothing.hint))
    try:
        check_target(out, "corpus.parquet")
        if out.exists():
            action = "replace"
            if not force:
                if _documents_in(out) != intake.digest.hexdigest():
                    raise _holds_something_else(out, "other documents")
                action = "keep"
    except AlborError as error:
        problems.append(Problem("out", error.message, error.hint))
    skipped = dict(sorted(intake.skipped.items()))
    return ImportPlan(intake.files, intake.size, skipped, out, action, tuple(problems))


def _documents_in(out: Path) -> str | None:
    """The corpus hash of what is at `out`; None where nothing is. Raises UsageError for a file that
    is no corpus.
    """
    if not out.exists():
        return None
    digest = CorpusHash()
    try:
        for key, text in open_corpus(out).documents():
            digest.add(key, text)
    except AlborError as error:
        raise _holds_something_else(out, "something else than a corpus") from error
    return digest.hexdigest()


def _holds_something_else(out: Path, what: str) -> UsageError:
    return UsageError(
        f"{out}: exists and holds {what}", hint="choose another --out, or --force to replace it"
    )


@dataclass
class _Intake:
    """What an import, or its plan, has taken in so far, and how far it is."""

    exclude: frozenset[str]
    suffixes: tuple[str, ...]
    max_bytes: int
    progress: Progress | None
    files: int = 0
    size: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    digest: CorpusHash = field(default_factory=CorpusHash)

    def texts(self, name: str, root: Path) -> Iterator[tuple[str, bytes]]:
        """As `_Tree.texts`, counted. Raises DataError at the end of a tree that yielded nothing."""
        tree, before = _Tree(root, self.exclude, self.suffixes, self.max_bytes), self.files
        for relative, text in tree.texts():
            self.digest.add(f"{name}/{relative}", text)
            self.files, self.size = self.files + 1, self.size + len(text)
            yield relative, text
            if self.progress is not None:
                self.progress(self.files, self.size)
        self.skipped.update(tree.skipped)
        if self.files == before:
            raise _nothing_found(root, tree.skipped, self.suffixes)


@dataclass
class _Tree:
    """One source tree and the count of what it withheld."""

    root: Path
    exclude: frozenset[str]
    suffixes: tuple[str, ...]
    max_bytes: int
    skipped: Counter[str] = field(default_factory=Counter)

    def texts(self) -> Iterator[tuple[str, bytes]]:
        """(posix path relative to the root, UTF-8 bytes), sorted by path."""
        for relative in self._walk(""):
            try:
                relative.encode("utf-8")
            except UnicodeEncodeError:  # a file name that is not UTF-8 cannot be a Parquet string
                self.skipped["not_utf8"] += 1
                continue
            text, reason = _read_text(self.root / relative, self.max_bytes)
            if reason:
                self.skipped[reason] += 1
            else:
                yield relative, text

    def _walk(self, top: str) -> Iterator[str]:
        # An explicit stack: a hostile tree may be deeper than Python recurses.
        stack = [iter(self._entries(top))]
        while stack:
            entry = next(stack[-1], None)
            if entry is None:
                stack.pop()
            elif entry.endswith("/"):
                stack.append(iter(self._entries(entry)))
            else:
                yield entry

    def _entries(self, prefix: str) -> list[str]:
        """Sorted relative paths directly under `prefix`, directories ending in '/'.

        Sorting with that slash makes the depth-first walk equal to sorting all full paths.
        """
        found: list[str] = []
        try:
            with os.scandir(self.root / prefix) as entries:
                for entry in entries:
                    wanted = entry.name.endswith(self.suffixes)
                    if entry.is_symlink():
                        self.skipped["symlink"] += wanted or _is_directory(entry)
                    elif entry.is_dir(follow_symlinks=False):
                        if entry.name not in self.exclude:
                            found.append(f"{prefix}{entry.name}/")
                    elif wanted:
                        found.append(prefix + entry.name)
        except OSError:
            self.skipped["unreadable"] += 1
        return sorted(found)


def _is_directory(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link that points to itself
        return False


def _read_text(path: Path, max_bytes: int) -> tuple[bytes, str]:
    """The file's bytes and "", or b"" and why it is left out. Reads at most max_bytes + 1."""
    try:
        # NONBLOCK: opening a pipe that somebody named x.py must not wait for a writer
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with os.fdopen(os.open(path, flags), "rb") as stream:
            if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                return b"", "unreadable"
            data = stream.read(max_bytes + 1)
    except OSError:
        return b"", "unreadable"
    return (b"", reason) if (reason := _reason_to_skip(data, max_bytes)) else (data, "")


def _reason_to_skip(data: bytes, max_bytes: int) -> str:
    if len(data) > max_bytes:
        return "too_large"
    if not data.strip():
        return "empty"
    if b"\0" in data:
        return "binary"
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return "not_utf8"
    return ""


class _Rows:
    """Rows of the corpus, written as row groups of about `_ROW_GROUP_BYTES`."""

    def __init__(self, path: Path) -> None:
        self._texts: list[bytes] = []
        self._sources: list[str] = []
        self._names: list[str] = []
        self._pending_bytes = 0
        self._writer = pq.ParquetWriter(
            path,
            _SCHEMA,
            version="2.6",
            compression="zstd",
            compression_level=3,
            use_dictionary=["source"],
            write_statistics=False,
        )

    def __enter__(self) -> _Rows:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._flush()
        self._writer.close()

    def add(self, text: bytes, source: str, name: str) -> None:
        self._texts.append(text)
        self._sources.append(source)
        self._names.append(name)
        self._pending_bytes += len(text)
        if self._pending_bytes >= _ROW_GROUP_BYTES:
            self._flush()

    def _flush(self) -> None:
        if not self._texts:
            return
        text = pa.array(self._texts, pa.binary()).cast(pa.string())
        arrays = [text, pa.array(self._sources), pa.array(self._names)]
        self._writer.write_table(pa.Table.from_arrays(arrays, schema=_SCHEMA))
        self._texts, self._sources, self._names = [], [], []
        self._pending_bytes = 0


def _name_trees(dirs: Sequence[Path]) -> list[tuple[str, Path]]:
    """(name, resolved root) for each directory; names are the shortest path tails that differ."""
    if not dirs:
        raise ConfigError("no source directory given", hint="albor data import DIR [DIR ...]")
    roots: list[Path] = []
    for given in dirs:
        root = given.resolve()
        if not root.exists():
            raise NotFoundError(f"{given}: no such directory", hint="check the path and try again")
        if not root.is_dir():
            raise ConfigError(
                f"{given}: is a file; give its folder", hint=f"albor data import {given.parent}"
            )
        for other in roots:
            if root == other or root in other.parents or other in root.parents:
                raise ConfigError(
                    f"{given}: overlaps with {other}; its files would be imported twice",
                    hint="give each tree once, without its sub-directories",
                )
        roots.append(root)
    for depth in range(1, max(len(root.parts) for root in roots) + 1):
        names = ["/".join(root.parts[-depth:]).lstrip("/") or "root" for root in roots]
        if len(set(names)) == len(names):
            break
    return list(zip(names, roots, strict=True))


def _nothing_found(root: Path, skipped: Counter[str], suffixes: Sequence[str]) -> DataError:
    reasons = ", ".join(f"{count} {name}" for name, count in sorted(skipped.items()))
    wanted = " or ".join(suffixes)
    return DataError(
        f"{root}: no usable file ending in {wanted}" + (f" (skipped {reasons})" if reasons else ""),
        hint=f"give a folder with {wanted} files, or: albor data import DIR -o FILE --suffix .txt",
    )
