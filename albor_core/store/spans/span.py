"""One span, as this house thinks of it; `otlp` writes it down."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

Scalar = str | bool | int | float


@dataclass(frozen=True)
class SpanEvent:
    """Something that happened within a span."""

    name: str
    time_ns: int
    attributes: Mapping[str, Scalar] = field(default_factory=dict)


@dataclass(frozen=True)
class Span:
    """Times are nanoseconds since 1970. `error` is why it failed; None: it did not, as far as
    anybody knows. `dropped_events` is how many more it had than are kept.
    """

    name: str
    span_id: str
    parent_id: str
    start_ns: int
    end_ns: int
    attributes: Mapping[str, Scalar] = field(default_factory=dict)
    events: tuple[SpanEvent, ...] = ()
    dropped_events: int = 0
    error: str | None = None


def nanoseconds(wall: float) -> int:
    """Nanoseconds since the epoch of UTC seconds."""
    return round(wall * 1e9)


def known(attributes: Mapping[str, Scalar | None]) -> dict[str, Scalar]:
    """The attributes that have a value."""
    return {name: value for name, value in attributes.items() if value is not None}


def laid_out(
    start_ns: int, end_ns: int, lengths_ns: Mapping[str, float]
) -> dict[str, tuple[int, int]]:
    """The parts of a span one after the other from its start: what is known of them is how long
    they took in all. Parts that are longer together than the whole are shortened alike.
    """
    total = sum(lengths_ns.values())
    scale = min(1.0, (end_ns - start_ns) / total) if total > 0 else 0.0
    places, at = {}, 0.0
    for name, length in lengths_ns.items():
        begin, at = at, at + length * scale
        places[name] = (start_ns + int(begin), min(end_ns, start_ns + int(at)))
    return places
