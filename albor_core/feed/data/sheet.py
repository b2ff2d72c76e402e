"""One data set in numbers: an albor.data.stats document as frozen values, and what follows of it.

Each value is taken for its type; what the document does not say is None, never 0.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from albor_core.run.values.lenient import (
    Document,
    finite,
    finite_of,
    integer,
    mapping,
    mapping_of,
    sequence,
    text,
    whole_of,
)

_MEASURES = ("tokens", "bytes", "documents")
OTHER_PART = "other_part"  # a document that another split has is not lost


@dataclass(frozen=True)
class SourceView:
    """One source of documents. `share` is of the measure that all sources have; `times`: the
    copies of each document that a mix made.
    """

    name: str
    documents_in: int | None = None
    documents: int | None = None
    num_bytes: int | None = None
    tokens: int | None = None
    share: float | None = None
    times: float | None = None
    dropped: tuple[tuple[str, int], ...] = ()  # reason, documents; the most first
    duplicates: int | None = None

    @property
    def lost(self) -> int | None:
        """Documents that did not come through."""
        if self.documents_in is not None and self.documents is not None:
            return max(0, self.documents_in - self.documents)
        return sum(count for _, count in self.dropped) if self.dropped else None

    @property
    def lost_share(self) -> float | None:
        lost, whole = self.lost, self.documents_in
        if lost is None:
            return None
        whole = whole if whole is not None else lost + (self.documents or 0)
        return lost / whole if whole else None


@dataclass(frozen=True)
class Dropped:
    """Documents that a step dropped for one reason, and the keys of the first of them."""

    reason: str
    documents: int
    examples: tuple[str, ...] = ()


@dataclass(frozen=True)
class StepView:
    """What one step took in and gave out. `elsewhere` documents went to other splits; `splits`
    names those that it made, where there are others.
    """

    name: str
    splits: tuple[str, ...] = ()
    settings: tuple[tuple[str, str], ...] = ()
    documents_in: int | None = None
    documents: int | None = None
    elsewhere: int = 0
    dropped: tuple[Dropped, ...] = ()

    @property
    def lost(self) -> int:
        return sum(one.documents for one in self.dropped)


@dataclass(frozen=True)
class SplitView:
    """A split of shards, and the hash that seals it."""

    name: str
    documents: int | None = None
    tokens: int | None = None
    sequences: int | None = None
    seq_len: int | None = None
    data_hash: str = ""


@dataclass(frozen=True)
class ContaminationHit:
    """A document that has runs of words in common with a task; `share` is of the task's, 0..1."""

    document: str
    task: str
    share: float | None = None


@dataclass(frozen=True)
class Contamination:
    """The result of a search for evaluation texts: documents with hits are left out of the
    output."""

    against: tuple[str, ...] = ()
    hits: tuple[ContaminationHit, ...] = ()
    checked: int | None = None

    @property
    def documents(self) -> int:
        """How many the hits are of."""
        return len({hit.document for hit in self.hits})


@dataclass(frozen=True)
class Lengths:
    """Documents by length, between neighbouring edges."""

    unit: str = "tokens"
    edges: tuple[float, ...] = ()
    counts: tuple[float, ...] = ()


@dataclass(frozen=True)
class DataSheet:
    """All facts of a data set. `contamination` None: it was not searched for."""

    kind: str = ""
    path: str = ""
    documents: int | None = None
    num_bytes: int | None = None
    tokens: int | None = None
    vocab_size: int | None = None
    seq_len: int | None = None
    splits: tuple[SplitView, ...] = ()
    sources: tuple[SourceView, ...] = ()  # the largest first
    measure: str = "tokens"  # of which shares are told: tokens, bytes or documents
    steps: tuple[StepView, ...] = ()
    lengths: Lengths = Lengths()
    licences: tuple[tuple[str, int], ...] = ()  # the most first
    contamination: Contamination | None = None

    @property
    def documents_in(self) -> int | None:
        """Documents before the first step that counts them."""
        return next((s.documents_in for s in self.steps if s.documents_in is not None), None)

    @property
    def is_mixed(self) -> bool:
        return any(source.times is not None for source in self.sources)


def sheet_of(document: Mapping[str, Any]) -> DataSheet:
    """The sheet of an albor.data.stats document."""
    sources = [mapping_of(one) for one in sequence(document, "sources")]
    measure = next(
        (m for m in _MEASURES if sources and all(integer(s, m) is not None for s in sources)),
        "documents",
    )
    whole = sum(integer(one, measure) or 0 for one in sources)
    found = [_source(one, measure, whole) for one in sources]
    found.sort(key=lambda one: (-(one.share or 0.0), one.name))
    said = document.get("contamination")
    return DataSheet(
        kind=text(document, "kind"),
        path=text(document, "path"),
        documents=integer(document, "documents"),
        num_bytes=integer(document, "bytes"),
        tokens=integer(document, "tokens"),
        vocab_size=integer(document, "vocab_size"),
        seq_len=integer(document, "seq_len"),
        splits=tuple(_split(mapping_of(one)) for one in sequence(document, "splits")),
        sources=tuple(found),
        measure=measure,
        steps=tuple(_step(mapping_of(one)) for one in sequence(document, "steps")),
        lengths=_lengths(mapping(document, "histogram")),
        licences=_counts(mapping(document, "licences")),
        contamination=_contamination(said) if isinstance(said, Mapping) else None,
    )


def _source(one: Document, measure: str, whole: int) -> SourceView:
    measured = integer(one, measure)
    return SourceView(
        name=text(one, "source"),
        documents_in=integer(one, "documents_in"),
        documents=integer(one, "documents"),
        num_bytes=integer(one, "bytes"),
        tokens=integer(one, "tokens"),
        share=measured / whole if measured is not None and whole else None,
        times=finite_of(one.get("weight")),
        dropped=tuple(pair for pair in _counts(mapping(one, "dropped")) if pair[0] != OTHER_PART),
        duplicates=integer(one, "duplicates"),
    )


def _step(one: Document) -> StepView:
    examples, counts = mapping(one, "examples"), _counts(mapping(one, "dropped"))
    dropped = tuple(
        Dropped(reason, count, _texts(sequence(examples, reason)))
        for reason, count in counts
        if reason != OTHER_PART
    )
    return StepView(
        name=text(one, "step"),
        splits=_texts(sequence(one, "splits")),
        settings=tuple(_settings(mapping(one, "settings"))),
        documents_in=integer(one, "documents_in"),
        documents=integer(one, "documents"),
        elsewhere=dict(counts).get(OTHER_PART, 0),
        dropped=dropped,
    )


def _split(one: Document) -> SplitView:
    return SplitView(
        name=text(one, "name"),
        documents=integer(one, "documents"),
        tokens=integer(one, "tokens"),
        sequences=integer(one, "sequences"),
        seq_len=integer(one, "seq_len"),
        data_hash=text(one, "data_hash"),
    )


def _lengths(one: Document) -> Lengths:
    """Nothing where edges and counts do not fit each other."""
    edges = [finite_of(value) for value in sequence(one, "edges")]
    counts = [finite_of(value) for value in sequence(one, "counts")]
    whole_edges = tuple(value for value in edges if value is not None)
    whole_counts = tuple(value for value in counts if value is not None)
    is_sound = len(whole_edges) == len(edges) == len(counts) + 1
    is_sound = is_sound and len(whole_counts) == len(counts)
    is_sound = is_sound and list(whole_edges) == sorted(set(whole_edges))
    unit = text(one, "unit") or "tokens"
    return Lengths(unit, whole_edges, whole_counts) if is_sound else Lengths(unit)


def _contamination(one: Document) -> Contamination:
    said = (mapping_of(hit) for hit in sequence(one, "hits"))
    hits = (
        ContaminationHit(text(hit, "document"), text(hit, "task"), finite(hit, "share"))
        for hit in said
    )
    return Contamination(
        against=_texts(sequence(one, "against")),
        hits=tuple(sorted(hits, key=lambda hit: -(hit.share or 0.0))),
        checked=integer(one, "checked_documents"),
    )


def _counts(one: Document) -> tuple[tuple[str, int], ...]:
    found = [(str(key), n) for key, value in one.items() if (n := whole_of(value)) is not None]
    return tuple(sorted(found, key=lambda pair: (-pair[1], pair[0])))


def _texts(values: Sequence[Any]) -> tuple[str, ...]:
    return tuple(value for value in values if isinstance(value, str))


def _settings(said: Document) -> Iterator[tuple[str, str]]:
    """Settings as name and value, nested ones by their own names; a list of mappings by its
    length."""
    for key, value in said.items():
        if isinstance(value, Mapping):
            yield from _settings(value)
        elif isinstance(value, list):
            is_plain = not any(isinstance(part, Mapping | list) for part in value)
            if value:
                yield key, ",".join(map(_short, value)) if is_plain else str(len(value))
        elif value is not None and value is not False and value != "":
            yield key, "yes" if value is True else _short(value)


def _short(value: Any) -> str:
    """A value as it is; of a hash the beginning."""
    words = str(value)
    return words[:12] if re.fullmatch(r"[0-9a-f]{40,}", words) else words
