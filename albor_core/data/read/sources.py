"""Sources in, a corpus out: columns `text`, `source`, `file`, `commit`, `licence`, in the order of
the sources and of the paths or rows within each.

The same documents give the same bytes, whoever reads them and however often he is interrupted. What
is left out is counted by reason, never silently.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

from albor_core.data.progress import Progress
from albor_core.data.read import git, parquet_rows, rows
from albor_core.data.read.inputs import (
    DEFAULTS,
    ROW_ENDINGS,
    Asked,
    InputSource,
    InputUnit,
    Origin,
    kind_of_file,
    names_of,
)
from albor_core.data.read.take import SCHEMA, TakeIn, units_of
from albor_core.data.stage.corpus import CorpusHash
from albor_core.data.stage.counts import Counts, SourceCounts, from_json
from albor_core.data.stage.output import Output, finish, output_size
from albor_core.data.stage.record import CorpusRecord, corpus_identity
from albor_core.data.stage.stage import spread
from albor_core.data.stage.workers import each
from albor_core.outputs.place import begin, held, kept_if_begun, part_of
from albor_core.run.errors import AlborError, ConfigError, DataError, Problem, UsageError
from albor_core.run.files.publish import check_target, sha256_file

RULES = 2  # counted up when the same sources would give other documents
SPREAD_BYTES = 64 << 20  # less is done before other processes have started
_LOOKED_AT = 1_000  # names of a folder, for a hint
_STEP, _UNITS = "import", "units"


@dataclass(frozen=True)
class ImportReport:
    """The result of an import, and the reasons of left-out documents."""

    files: int
    """Documents: files, or rows."""
    bytes: int
    """UTF-8 bytes of text taken in."""
    skipped: dict[str, int]
    """Reason -> count; reasons: not_utf8 empty too_large binary unreadable symlink submodule, and
    of rows not_json not_an_object no_text other_columns.
    """
    corpus_hash: str
    """See `corpus.CorpusHash`; depends on names and text only, not on the file's encoding."""
    out: Path
    reused: bool
    """`out` held these very documents already and was left alone."""
    sources: tuple[InputSource, ...]
    counts: Counts
    record: CorpusRecord
    resumed_units: int
    seconds: float


@dataclass(frozen=True)
class ImportPlan:
    """What an import would take in, leave out and write. It can be done where `problems` is empty.

    `action`: write, resume, replace, or keep where the output holds these very documents.
    """

    files: int
    bytes: int
    skipped: dict[str, int]
    out: Path
    action: str
    problems: tuple[Problem, ...]
    sources: tuple[InputSource, ...] = ()
    counts: Counts = field(default_factory=Counts)
    out_bytes: int | None = None
    """Of the output's files, by a sample of the documents, packed."""


def import_sources(
    given: Sequence[Path | InputSource],
    out: Path,
    asked: Asked = DEFAULTS,
    *,
    workers: int = 1,
    force: bool = False,
    progress: Progress | None = None,
) -> ImportReport:
    """Write every document of `given` to `out`, a folder or a file whose name ends in .parquet.
    An `InputSource` is imported as it is; it must not be mixed with paths.

    A folder gives its text files whose names end in one of `asked.suffixes`, but for those in
    folders named in `asked.exclude`, at any depth; symbolic links are counted, not followed. Where
    git is to be asked, a work tree gives what git does not ignore, a bare repository its HEAD. A
    file of rows (.jsonl, .csv, .parquet) gives the texts in `asked.column`, any other its text.
    Memory is bounded by a few row groups a worker. `progress` is called with the documents and the
    bytes read.

    Raises NotFoundError for what is missing, ConfigError for overlapping sources and for archives,
    DataError for a source that yields nothing, is damaged or changes meanwhile, UsageError for an
    `out` that holds anything but these documents (unless `force`); after any error `out` is as it
    was before.
    """
    began = time.monotonic()
    output = Output(out)
    sources = tuple(named(given, asked, output))
    _check(output, sources, force)
    listing = _Listing(sources, asked, output, progress)
    earlier = None if force else output.record()
    if earlier is not None:
        found = _look(listing, workers)
        listing.refuse_hollow()
        if earlier.identity != found.identity:
            raise _holds_something_else(out, "other documents")
        output.tidy()
        return _report(listing, found, earlier, True, 0, began)
    with held(output) as work, kept_if_begun(work, "done"):
        listing.fill(work / _UNITS)
        listing.refuse_hollow()
        begin(work, listing.identity, keep=(_UNITS,))
        resumed = len(list((work / "done").glob("*.json")))
        found = _read(listing, work, workers, is_dry=False)
        told = _STEP, _settings(listing), found.identity, found.counts
        record = finish(output, work, found.parts, *told)
    return _report(listing, found, record, False, resumed, began)


def plan_import(
    given: Sequence[Path | InputSource],
    out: Path,
    asked: Asked = DEFAULTS,
    *,
    workers: int = 1,
    force: bool = False,
    progress: Progress | None = None,
) -> ImportPlan:
    """Read what `import_sources` would read; write nothing, raise nothing that a user can cause."""
    output = Output(out)
    problems: list[Problem] = []
    sources: tuple[InputSource, ...] = ()
    found, action = _Found(), "write"
    identity = ""
    try:
        sources = tuple(named(given, asked, output, problems))
        listing = _Listing(sources, asked, output, progress)
        found = _look(listing, workers)
        identity = listing.identity
        problems += [Problem("source", one.message, one.hint) for one in listing.hollow.values()]
    except AlborError as error:
        problems.append(Problem("source", error.message, error.hint))
    try:
        _check(output, sources, force)
        record = None if force else output.record()
        if record is not None:
            if record.identity != found.identity and not problems:
                raise _holds_something_else(out, "other documents")
            action = "keep"
        elif output.is_taken():
            action = "replace"
        elif output.begun == identity:
            action = "resume"
    except AlborError as error:
        problems.append(Problem("out", error.message, error.hint))
    total, size = found.counts.total, None
    if not problems:
        told = _settings(listing), found.identity, found.identity, total.documents, total.bytes
        record = CorpusRecord(_STEP, *told, found.counts, ())
        size = output_size(output, SCHEMA, found.samples, total.bytes, record)
    return ImportPlan(
        total.documents, total.bytes, dict(sorted(total.dropped.items())), out, action,
        tuple(problems), sources, found.counts, size,
    )  # fmt: skip


def named(
    given: Sequence[Path | InputSource],
    asked: Asked,
    output: Output,
    problems: list[Problem] | None = None,
) -> Iterator[InputSource]:
    """Each of `given` as a source. Raises as `names_of` and `recognised`, whose errors go to
    `problems` where there are any.
    """
    yield from (one for one in given if isinstance(one, InputSource))
    paths = [one for one in given if not isinstance(one, InputSource)]
    if problems is not None:  # each that is missing, not the first alone
        missing = [one for one in paths if not one.exists()]
        what, hint = "no such file or directory", "check the path and try again"
        problems += [Problem("source", f"{one}: {what}", hint) for one in missing]
        paths = [one for one in paths if one not in missing]
    if given and not paths:
        return
    for name, path in names_of(paths):
        try:
            yield _with_origin(recognised(name, path, asked, _apart(output)), asked)
        except AlborError as error:
            if problems is None:
                raise
            problems.append(Problem("source", error.message, error.hint))


def _with_origin(source: InputSource, asked: Asked) -> InputSource:
    """The source with the origin that the user gave; for a file its hash, since a URL may
    change."""
    origin = asked.origin_of(source.path)
    if origin == Origin():
        return source
    sha256 = sha256_file(source.path) if source.path.is_file() else None
    url = origin.url or source.url
    return replace(source, url=url, revision=origin.revision, sha256=sha256)


def _apart(output: Output) -> frozenset[str]:
    """Paths that the import itself writes while the sources are read."""
    there = output.path.resolve()
    beside = () if there.is_dir() else (str(part_of(there)),)
    return frozenset((str(there), str(Output(there).work), *beside))


def recognised(name: str, path: Path, asked: Asked, apart: frozenset[str]) -> InputSource:
    """The source with its kind, and facts from its file or git."""
    if path.is_dir():
        source = InputSource(name, path, "folder")
        return git.described(source, asked, apart) if asked.git else source
    if not path.is_file():
        raise ConfigError(
            f"{path}: is a pipe or a device, not a file",
            hint="write it to a file first, and import that",
        )
    kind = kind_of_file(path)
    column_of = {
        "jsonl": rows.json_column,
        "csv": rows.csv_column,
        "parquet": parquet_rows.parquet_column,
    }.get(kind)
    return InputSource(name, path, kind, column_of(path, asked) if column_of else None)


def _check(output: Output, sources: Sequence[InputSource], force: bool) -> None:
    """Raise UsageError if `output` stands for something else, AlborError where its own folder is
    missing.
    """
    out = output.path
    if output.is_file:
        check_target(out, "corpus.parquet")
    there = out.resolve()
    for source in sources:
        if there == source.path or there in source.path.parents:
            raise UsageError(
                f"{out}: is or holds {source.path}, which is read; name another folder or file",
                hint="--out corpus.parquet",
            )
    if not force and (out.is_file() or out.is_dir()):
        if out.is_file() and output.record() is None:
            raise _holds_something_else(out, "something else than a corpus made by albor data")
        if output.is_foreign():
            raise _holds_something_else(out, "files that albor data did not make")
    output.check()


def _holds_something_else(out: Path, what: str) -> UsageError:
    return UsageError(
        f"{out}: exists and holds {what}", hint="choose another --out, or --force to replace it"
    )


@dataclass
class _Listing:
    """The pieces of all sources: a line of JSON each in a file, so that the names of millions of
    files need no memory.
    """

    sources: Sequence[InputSource]
    asked: Asked
    output: Output
    progress: Progress | None
    file: Path = Path()
    counts: Counts = field(default_factory=Counts)
    """Of what was left out already."""
    offsets: list[int] = field(default_factory=list)
    expected: list[tuple[int, int]] = field(default_factory=list)
    hollow: dict[str, DataError] = field(default_factory=dict)
    """Of sources of which nothing is taken, by name."""
    identity: str = ""
    """Of all that an interrupted import can go on with."""
    _seen: tuple[int, int] = (0, 0)

    def fill(self, file: Path) -> None:
        apart = _apart(self.output)
        self.file, digest = file, hashlib.sha256()
        position = 0
        with file.open("wb") as stream:
            for number, source in enumerate(self.sources):
                before = len(self.offsets)
                for documents, size, what in units_of(source, self.asked, self.counts, apart):
                    line = json.dumps(
                        InputUnit(number, documents, size, what), separators=(",", ":")
                    )
                    raw = line.encode() + b"\n"
                    digest.update(raw)
                    self.offsets.append(position)
                    self.expected.append((documents, size))
                    position += stream.write(raw)
                if len(self.offsets) == before and source.kind != "package":
                    self.hollow[source.name] = _nothing_found(source, self.counts, self.asked)
        self.identity = corpus_identity(_STEP, _settings(self), {"units": digest.hexdigest()})

    def refuse_hollow(self) -> None:
        for error in self.hollow.values():
            raise error

    def tell(self, number: int) -> None:
        """One piece is done."""
        documents, size = self.expected[number]
        self._seen = self._seen[0] + documents, self._seen[1] + size
        if self.progress is not None:
            self.progress(*self._seen)


@dataclass
class _Found:
    """The combined facts of all pieces."""

    counts: Counts = field(default_factory=Counts)
    corpus_hash: str = ""
    identity: str = ""
    parts: list[dict[str, Any]] = field(default_factory=list)
    samples: list[tuple[int, int]] = field(default_factory=list)
    """See `sample_of`."""


def _look(listing: _Listing, workers: int) -> _Found:
    """Writes nothing where the output is or will be."""
    with tempfile.TemporaryDirectory(prefix="albor-import-") as folder:
        listing.fill(Path(folder) / _UNITS)
        return _read(listing, Path(folder), workers, is_dry=True)


def _read(listing: _Listing, folder: Path, workers: int, *, is_dry: bool) -> _Found:
    """Raises DataError for a source of which nothing was taken, unless it only looks."""
    numbers = range(len(listing.offsets))
    job = TakeIn(
        listing.sources, listing.asked, listing.file, listing.offsets, folder,
        is_dry=is_dry, is_joined=listing.output.is_file, sampled=spread(len(numbers)),
    )  # fmt: skip
    (folder / "keys").mkdir(exist_ok=True)
    found, digest = _Found(), CorpusHash()
    found.counts += listing.counts
    if sum(size for _, size in listing.expected) < SPREAD_BYTES:
        workers = 1
    done = each(numbers, job, folder / "done", workers=workers, done=listing.tell)
    for number, result in zip(numbers, done, strict=True):
        found.counts += from_json(result["counts"])
        if result["part"] is not None:
            found.parts.append(result["part"])
        if result.get("sample") is not None:
            found.samples.append(result["sample"])
        with job.keys(number).open("rb") as keys:
            while block := keys.read(1 << 20):
                digest.take(block)
    for source in listing.sources:
        if not found.counts.source(source.name).documents and source.kind != "package":
            listing.hollow[source.name] = _nothing_found(source, found.counts, listing.asked)
    if not is_dry:
        listing.refuse_hollow()
    found.corpus_hash = digest.hexdigest()
    facts = [source.facts() for source in listing.sources]
    found.identity = corpus_identity(_STEP, {"sources": facts}, {"documents": found.corpus_hash})
    return found


def _settings(listing: _Listing) -> dict[str, Any]:
    asked = listing.asked
    return {
        "rules": RULES,
        "suffixes": list(asked.suffixes),
        "exclude": sorted(asked.exclude),
        "max_bytes": asked.max_bytes,
        "sources": [source.facts() for source in listing.sources],
    }


def _report(
    listing: _Listing,
    found: _Found,
    record: CorpusRecord,
    reused: bool,
    resumed: int,
    began: float,
) -> ImportReport:
    total = found.counts.total
    return ImportReport(
        total.documents, total.bytes, dict(sorted(total.dropped.items())), found.corpus_hash,
        listing.output.path, reused, tuple(listing.sources), found.counts, record, resumed,
        time.monotonic() - began,
    )  # fmt: skip


def _nothing_found(source: InputSource, counts: Counts, asked: Asked) -> DataError:
    one = counts.sources.get(source.name, SourceCounts())
    reasons = ", ".join(f"{count} {why}" for why, count in sorted(one.dropped.items()))
    if source.kind in ("folder", "git", "bare"):
        wanted = " or ".join(asked.suffixes)
        what, hint = (
            f"usable file ending in {wanted}",
            _hint_of_rows(source.path)
            or f"give a folder with {wanted} files, or: "
            "albor data import DIR -o FILE --suffix .txt",
        )
    else:
        what, hint = "usable document", "look at its first lines, or give another --column"
    return DataError(
        f"{source.path}: no {what}" + (f" (skipped {reasons})" if reasons else ""), hint=hint
    )


def _hint_of_rows(folder: Path) -> str:
    """Where a folder holds files of rows, which are given one by one."""
    try:
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry in islice(entries, _LOOKED_AT))
    except OSError:
        return ""
    endings = [ending for name in names for ending in ROW_ENDINGS if name.lower().endswith(ending)]
    if not endings:
        return ""
    files = shlex.quote(str(folder))
    return f"files of rows are given one by one: albor data import {files}/*{endings[0]} -o OUT"
