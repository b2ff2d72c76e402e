"""What a step over documents took in and gave out, and why the rest was dropped, by source."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import pyarrow as pa
import pyarrow.compute as pc

EXAMPLES = 8  # keys of dropped documents that are kept for each reason
FINDINGS = 10_000


@dataclass
class SourceCounts:
    """Documents and UTF-8 bytes of one source."""

    documents_in: int = 0
    bytes_in: int = 0
    documents: int = 0
    bytes: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    """Reason -> documents."""
    elsewhere: Counter[str] = field(default_factory=Counter)
    """Column -> rows without text in their source's column that have one in this."""

    def __iadd__(self, other: SourceCounts) -> Self:
        self.documents_in += other.documents_in
        self.bytes_in += other.bytes_in
        self.documents += other.documents
        self.bytes += other.bytes
        self.dropped.update(other.dropped)
        self.elsewhere.update(other.elsewhere)
        return self


@dataclass
class Counts:
    """Counts of all sources; `+=` adds those of another part of the corpus, in the order of the
    parts."""

    sources: dict[str, SourceCounts] = field(default_factory=dict)
    examples: dict[str, list[str]] = field(default_factory=dict)
    """Reason -> keys of the first documents dropped for it."""
    extra: Counter[str] = field(default_factory=Counter)
    """Sums that a step has beside these."""
    findings: dict[str, list[Any]] = field(default_factory=dict)
    """Lists of JSON objects that a step has beside these, at most `FINDINGS` in each."""

    def source(self, name: str) -> SourceCounts:
        """The counts of a source, to be added to."""
        return self.sources.setdefault(name, SourceCounts())

    def drop(self, source: str, key: str, reason: str) -> None:
        """One document of `source` is left out."""
        self.source(source).dropped[reason] += 1
        found = self.examples.setdefault(reason, [])
        if len(found) < EXAMPLES:
            found.append(key)

    def __iadd__(self, other: Counts) -> Counts:
        for name, theirs in other.sources.items():
            ours = self.source(name)
            ours += theirs
        for reason, keys in other.examples.items():
            found = self.examples.setdefault(reason, [])
            found.extend(keys[: EXAMPLES - len(found)])
        self.extra.update(other.extra)
        for kind, several in other.findings.items():
            known = self.findings.setdefault(kind, [])
            known.extend(several[: FINDINGS - len(known)])
        return self

    @property
    def total(self) -> SourceCounts:
        """The sum over all sources."""
        whole = SourceCounts()
        for one in self.sources.values():
            whole += one
        return whole

    def to_json(self) -> dict[str, Any]:
        """The counts for a record; `from_json` reads them."""
        return {
            "sources": {
                name: {
                    "documents_in": one.documents_in,
                    "bytes_in": one.bytes_in,
                    "documents": one.documents,
                    "bytes": one.bytes,
                    "dropped": dict(sorted(one.dropped.items())),
                    **({"elsewhere": dict(sorted(one.elsewhere.items()))} if one.elsewhere else {}),
                }
                for name, one in sorted(self.sources.items())
            },
            "examples": {reason: list(keys) for reason, keys in sorted(self.examples.items())},
            "extra": dict(sorted(self.extra.items())),
            "findings": {kind: list(several) for kind, several in sorted(self.findings.items())},
        }


def from_json(document: Mapping[str, Any]) -> Counts:
    """The counts of a record. Raises KeyError, TypeError or AttributeError for other documents."""
    sources = {
        name: SourceCounts(
            one["documents_in"],
            one["bytes_in"],
            one["documents"],
            one["bytes"],
            Counter(one["dropped"]),
            Counter(one.get("elsewhere", {})),
        )
        for name, one in document["sources"].items()
    }
    examples = {reason: list(keys) for reason, keys in document["examples"].items()}
    findings = {kind: list(several) for kind, several in document.get("findings", {}).items()}
    return Counts(sources, examples, Counter(document["extra"]), findings)


def sift(table: pa.Table, reasons: Sequence[str | None]) -> tuple[pa.Table, Counts]:
    """The rows whose reason to be dropped is None, and the counts of all."""
    counts = Counts()
    sources = table.column("source").to_pylist()
    files = table.column("file").to_pylist()
    sizes = text_sizes(table)
    for source, name, size, reason in zip(sources, files, sizes, reasons, strict=True):
        one = counts.source(source)
        one.documents_in += 1
        one.bytes_in += size
        if reason is None:
            one.documents += 1
            one.bytes += size
        else:
            counts.drop(source, f"{source}/{name}", reason)
    return table.filter(pa.array([reason is None for reason in reasons], pa.bool_())), counts


def text_sizes(table: pa.Table) -> list[int]:
    """UTF-8 bytes of each row's text."""
    return list(pc.binary_length(table.column("text").cast(pa.large_binary())).to_pylist())
