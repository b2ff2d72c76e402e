"""What is imported: each SRC by its name and kind, and the pieces of work it falls into."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from albor_core.data.stage.corpus import TEXT_COLUMNS
from albor_core.run.errors import ConfigError, DataError, NotFoundError, UsageError

# generated tables and vendored blobs live above it; hand-written code does not
MAX_FILE_BYTES = 1 << 20
UNIT_BYTES = 16 << 20
MAX_EXPANSION = 200  # of a compressed file; source code, as text or JSON, stays below 20
FREE_BYTES = 1 << 20  # a small file may expand to so much whatever its size

_SPDX = re.compile(r"[A-Za-z0-9.+() -]{1,64}")
_ROWS = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".jsonl.gz": "jsonl",
    ".ndjson.gz": "jsonl",
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
}
ROW_ENDINGS = tuple(_ROWS)
_REFUSED = {
    **dict.fromkeys(
        (".zip", ".whl", ".jar", ".egg", ".7z", ".rar"), "unpack it (unzip {}) and give the folder"
    ),
    **dict.fromkeys(
        (".tar", ".tgz", ".tar.gz", ".tar.bz2", ".tar.xz", ".tar.zst"),
        "unpack it (tar -xf {}) and give the folder",
    ),
    **dict.fromkeys((".gz", ".bz2", ".xz", ".zst", ".lz4"), "decompress it first: {}"),
    ".json": "one object a line (.jsonl) can be imported: jq -c '.[]' {}",
}


class Origin(NamedTuple):
    """Where a source was fetched from, as the user says."""

    url: str | None = None
    revision: str | None = None


@dataclass(frozen=True)
class Asked:
    """The user's options for the sources."""

    suffixes: tuple[str, ...] = (".py",)
    exclude: tuple[str, ...] = ()
    """Names of folders, at any depth."""
    max_bytes: int = MAX_FILE_BYTES
    """Of one document."""
    column: str | None = None
    git: bool = True
    """Ask git about folders."""
    origins: tuple[tuple[Path, Origin], ...] = ()
    """By the source's path."""

    def origin_of(self, path: Path) -> Origin:
        return next((one for named, one in self.origins if named.resolve() == path), Origin())


DEFAULTS = Asked()


@dataclass(frozen=True)
class InputSource:
    """One SRC. `name` tells it from the others: the shortest tail of its path that does."""

    name: str
    path: Path
    kind: str
    """folder, git, bare, text, jsonl, csv, parquet, or package."""
    column: str | None = None
    """Where rows have their text."""
    commit: str | None = None
    dirty: bool | None = None
    licence: str | None = None
    url: str | None = None
    version: str | None = None
    revision: str | None = None
    """As the user says it; then a file's SHA-256 is recorded beside it."""
    sha256: str | None = None
    files: frozenset[str] | None = None
    """Of a package: paths below its own that alone belong to it; all where it is None."""

    def facts(self) -> dict[str, Any]:
        """For the record: what does not depend on where it lies."""
        return {
            "source": self.name,
            "kind": self.kind,
            "column": self.column,
            "commit": self.commit,
            "dirty": self.dirty,
            "licence": self.licence,
            "url": self.url,
            **({"version": self.version} if self.version else {}),
            **({"revision": self.revision} if self.revision else {}),
            **({"sha256": self.sha256} if self.sha256 else {}),
        }

    @property
    def commit_column(self) -> str | None:
        """The commit, told apart from it where files differ from it, as git describe does."""
        return f"{self.commit}-dirty" if self.commit and self.dirty else self.commit


class InputUnit(NamedTuple):
    """A piece of one source; JSON, so that a list of them can lie in a file."""

    source: int
    documents: int
    """Expected; 0 where only reading tells."""
    bytes: int
    """Expected."""
    what: Any
    """Of the source's kind."""


class Document(NamedTuple):
    """One of a source: taken in, or left out where `reason` is not empty."""

    name: str
    text: bytes
    reason: str = ""
    licence: str | None = None
    """Of this one, where a row says it."""
    elsewhere: str = ""
    """The column in which a row has its text, where it has none in its source's."""


def text_elsewhere(row: Mapping[str, Any], column: str) -> str:
    """The column that has the text of a row without one in `column`: one of TEXT_COLUMNS, or the
    longest text of a row that lacks the column; "" where there is none.
    """
    texts = {name: said for name, said in row.items() if isinstance(said, str) and said.strip()}
    if column in texts:
        return ""
    known = [name for name in TEXT_COLUMNS if name in texts]
    if known or column in row:
        return known[0] if known else ""
    return max(texts, key=lambda name: len(texts[name]), default="")


def origins_of(
    sources: Sequence[Path], urls: Sequence[str], revisions: Sequence[str]
) -> tuple[tuple[Path, Origin], ...]:
    """`SRC=VALUE` for one of several sources, `VALUE` for the only one. Raises UsageError."""
    found: dict[Path, Origin] = {}
    for field, words in (("url", urls), ("revision", revisions)):
        for word in words:
            name, is_named, value = word.partition("=")
            path = next((one for one in sources if is_named and str(one) == name), None)
            if path is None and len(sources) == 1:
                path, value = sources[0], word
            if path is None or not value:
                what = f"--{field} {word!r}: does not begin with one of the sources and ="
                raise UsageError(what, hint=f"--{field} {sources[0]}=...")
            if field == "url":
                check_url(value)
            found[path] = found.get(path, Origin())._replace(**{field: value})
    return tuple(found.items())


def check_url(value: str) -> None:
    """Raise UsageError for an invalid URL, or one with a password, which records would show."""
    parts = urlsplit(value)
    if not parts.scheme or not (parts.netloc or parts.path):
        raise UsageError(f"url {value!r}: is not a URL", hint="https://HOST/PATH, or hf:NAME")
    if parts.password is not None:
        raise UsageError("the url has a password in it", hint="leave it out: the record is read")


def kind_of_file(path: Path) -> str:
    """jsonl, csv or parquet by its suffix, else text. Raises ConfigError for what holds files."""
    low = path.name.lower()
    endings = [low[i:] for i, letter in enumerate(low) if letter == "." and i]
    for ending in endings:  # the longest first
        if ending in _ROWS:
            return _ROWS[ending]
        if ending in _REFUSED:
            raise ConfigError(
                f"{path}: a {ending} file cannot be imported",
                hint=_REFUSED[ending].format(path.name),
            )
    return "text"


def reason_to_skip(text: bytes, max_bytes: int) -> str:
    """Why a document with this text is left out, or ""."""
    if len(text) > max_bytes:
        return "too_large"
    if not text or text.isspace():
        return "empty"
    if b"\0" in text:
        return "binary"
    if not text.isascii():
        try:
            text.decode("utf-8")
        except UnicodeDecodeError:
            return "not_utf8"
    return ""


def names_of(given: Sequence[Path]) -> list[tuple[str, Path]]:
    """(name, resolved path) of each; names are the shortest path tails that differ.

    Raises NotFoundError, ConfigError for none or for overlapping ones.
    """
    if not given:
        raise ConfigError("no source given", hint="albor data import SRC [SRC ...] -o OUT")
    roots: list[Path] = []
    for path in given:
        root = path.resolve()
        if not root.exists():
            raise NotFoundError(
                f"{path}: no such file or directory", hint="check the path and try again"
            )
        for other in roots:
            if root == other or root in other.parents or other in root.parents:
                raise ConfigError(
                    f"{path}: overlaps with {other}; its files would be imported twice",
                    hint="give each tree once, without its sub-directories",
                )
        roots.append(root)
    for depth in range(1, max(len(root.parts) for root in roots) + 1):
        names = ["/".join(root.parts[-depth:]).lstrip("/") or "root" for root in roots]
        if len(set(names)) == len(names):
            break
    # a name that is not UTF-8 cannot be a Parquet string
    return [(printable(name), root) for name, root in zip(names, roots, strict=True)]


def first_free(names: Iterable[str], taken: Collection[str]) -> str:
    """The first of `names` that is not taken, or the last."""
    name = ""
    for name in names:
        if name not in taken:
            break
    return name


def printable(name: str) -> str:
    """A file's name as UTF-8, whatever bytes it has."""
    return os.fsencode(name).decode("utf-8", "replace")


def row_licence(said: Any) -> str | None:
    """The licence of a row, if it looks like an SPDX expression."""
    return said if isinstance(said, str) and _SPDX.fullmatch(said) else None


def too_dense(path: Path) -> DataError:
    """A small file that holds much more than it should."""
    return DataError(
        f"{path}: expands to more than {MAX_EXPANSION} times its size",
        hint="if you trust it, decompress or rewrite it yourself and import that",
    )


def pick_column(path: Path, names: Sequence[str], asked: str | None) -> str:
    """The column of text. Raises DataError where rows do not have it."""
    wanted = (asked,) if asked else TEXT_COLUMNS
    for name in wanted:
        if name in names:
            return name
    found = ", ".join(names[:20]) or "none"
    raise DataError(
        f"{path}: no column {' or '.join(wanted)} (columns: {found})",
        hint="name the one that holds the text with --column",
    )
