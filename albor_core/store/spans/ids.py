"""The ids of a run's spans: hashes of what they are of, so that whoever derives them again, today
or from a copy of the run, gives the same ones.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from albor_core.run.values.traceparent import FACT, parse_traceparent

RUN = "run"


@dataclass(frozen=True)
class SpanIds:
    """`trace_id` is 32 hexadecimal digits, `parent_id` (of the run's own span) 16 or ""."""

    key: str
    trace_id: str
    parent_id: str = ""
    is_sampled: bool = True

    @classmethod
    def of(cls, about: Mapping[str, Any]) -> SpanIds:
        """The ids of a run by its run.json; below the span of TRACEPARENT, if it was started in
        one."""
        key = "\0".join(str(about.get(name)) for name in ("id", "host", "created"))
        above = parse_traceparent(about.get(FACT))
        if above is None:
            return cls(key, _digits("trace", key, 16))
        return cls(key, above.trace_id, above.span_id, above.is_sampled)

    def span(self, *parts: object) -> str:
        """16 hexadecimal digits for the span that `parts` name within the run."""
        return _digits("span", "\0".join((self.key, *map(str, parts))), 8)

    @property
    def run(self) -> str:
        return self.span(RUN)

    def attempt(self, number: int) -> str:
        return self.span("attempt", number)

    def rows(self, attempts: Iterable[int]) -> list[tuple[str, str, str]]:
        """(name, trace id, span id) of the run and its attempts, as the table span_ids has them."""
        named = [(RUN, self.run), *((f"attempt {n}", self.attempt(n)) for n in attempts)]
        return [(name, self.trace_id, span_id) for name, span_id in named]


def _digits(kind: str, text: str, size: int) -> str:
    return hashlib.sha256(f"albor {kind}\0{text}".encode(errors="backslashreplace")).hexdigest()[
        : 2 * size
    ]
