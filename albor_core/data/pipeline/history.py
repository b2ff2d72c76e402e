"""What the records of a corpus' steps say of its sources, put together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from albor_core.data.mix.split import OTHER_PART

History = Sequence[Mapping[str, Any]]
"""Records of steps, oldest first, as `CorpusRecord.steps` gives them."""

N = TypeVar("N", int, float)


@dataclass
class SourceStats:
    """Counts of one source. `documents_in`: before the first step; `dropped`: by all steps."""

    documents_in: int | None = None
    documents: int = 0
    bytes: int | None = None
    tokens: int | None = None
    weight: float | None = None
    """Copies of each document that a mix made; None where nothing was mixed."""
    dropped: Counter[str] = field(default_factory=Counter)
    duplicates: int | None = None
    """Of `dropped`, by the search for duplicates; None where there was none."""

    def merge(self, other: SourceStats) -> None:
        """Take in another part of the same documents: what went in, both say of the whole; what
        is left, each of itself. What went out is told by the steps of both: `add_drops`.
        """
        self.documents_in = _larger(self.documents_in, other.documents_in)
        self.weight = _larger(self.weight, other.weight)
        self.documents += other.documents
        self.bytes = _sum(self.bytes, other.bytes)
        self.tokens = _sum(self.tokens, other.tokens)

    def add_drops(self, step: str, dropped: Mapping[str, int]) -> None:
        """Take in why one step left documents out."""
        self.dropped.update(dropped)
        if step == "dedup":
            self.duplicates = (self.duplicates or 0) + sum(dropped.values())


def sources_of(steps: History) -> dict[str, SourceStats]:
    """Sources by name. Sources whose remaining documents all went to other parts of a split are
    left out."""
    found: dict[str, SourceStats] = {}
    for step in steps:
        for name, counts in step.get("sources", {}).items():
            one = found.setdefault(name, SourceStats(counts["documents_in"]))
            one.documents, one.bytes = counts["documents"], counts.get("bytes")
            one.add_drops(step["step"], counts["dropped"])
            if step["step"] == "mix" and counts["documents_in"]:
                one.weight = counts["documents"] / counts["documents_in"]
    return {
        name: one for name, one in found.items() if one.documents or not one.dropped[OTHER_PART]
    }


def source_facts(steps: History) -> dict[str, Mapping[str, Any]]:
    """Facts of each source from the imports: commit, licence, origin."""
    return {
        str(fact["source"]): fact
        for step in steps
        if step["step"] == "import"
        for fact in step.get("settings", {}).get("sources", ())
        if isinstance(fact, Mapping) and "source" in fact
    }


def contamination_of(steps: History, step_splits: Sequence[Sequence[str]]) -> dict[str, Any] | None:
    """What all searches for tasks found; None where there was none. `step_splits`: of each step
    the splits that it made, empty where it made all. `checked_documents`: each counts once, be it
    searched several times.
    """
    found = [
        ({**step.get("settings", {}), **step.get("findings", {}), **step}, tuple(splits))
        for step, splits in zip(steps, step_splits, strict=True)
        if step["step"] == "contamination"
    ]
    if not found:
        return None
    checked: dict[tuple[str, ...], int] = {}
    for said, splits in found:
        number = said.get("checked_documents", _came_in(said))
        checked[splits] = max(number, checked.get(splits, 0))
    of_all = checked.pop((), 0)
    return {
        "against": list(
            dict.fromkeys(one for said, _ in found for one in said.get("against") or ())
        ),
        "hits": [hit for said, _ in found for hit in said.get("hits") or ()],
        "checked_documents": max(of_all, sum(checked.values())),
    }


def step_summary(step: Mapping[str, Any], splits: Sequence[str] = ()) -> dict[str, Any]:
    """A record over all sources. `splits`: those that it made, where it did not make all."""
    sources = list(step.get("sources", {}).values())
    dropped: Counter[str] = Counter()
    for one in sources:
        dropped.update(one["dropped"])
    return {
        "step": step["step"],
        "splits": list(splits),
        "settings": step.get("settings", {}),
        "documents_in": _came_in(step),
        "documents": step.get("documents", sum(one["documents"] for one in sources)),
        "dropped": dict(sorted(dropped.items())),
        "examples": step.get("examples", {}),
    }


def _came_in(step: Mapping[str, Any]) -> int:
    return sum(one["documents_in"] for one in step.get("sources", {}).values())


def _larger(a: N | None, b: N | None) -> N | None:
    known = [value for value in (a, b) if value is not None]
    return max(known) if known else None


def _sum(a: int | None, b: int | None) -> int | None:
    known = [value for value in (a, b) if value is not None]
    return sum(known) if known else None
