"""A filter that was understood: conditions that a run must all fulfil, as values, and the words
of its language. filter.py reads one from text, conditions.py makes SQL of it.
"""

from __future__ import annotations

from typing import NamedTuple

MAX_CHARS = 256
HAS = ("nan", "alert", "note", "tag", "artifact", "params", "parent", "end")
TEXT_FIELDS = (
    *("tag", "experiment", "name", "id", "host", "kind", "commit", "parent"),
    *("group", "job_type"),
)
TIME_FIELDS = ("since", "before")
FIELDS = ("status", *TEXT_FIELDS, "has", *TIME_FIELDS)
STATS = ("last", "best", "min", "max", "count")


class Term(NamedTuple):
    """One condition. `kind` says how `values` are read: words, flag, status, text, has, time,
    number (values are floats) or param (values are texts). `at` is its column, counted from 1.
    """

    kind: str
    field: str
    op: str
    values: tuple[str | float, ...]
    at: int
    negated: bool = False
    stat: str = ""


class Filter(NamedTuple):
    """A filter that was understood; without terms it keeps every run."""

    terms: tuple[Term, ...] = ()

    @property
    def needs_status(self) -> bool:
        """Whether it asks what a run is doing now, which no store can know."""
        return any(term.kind == "status" for term in self.terms)
