""".albor/spans.json (schema albor.spans/1): which spans of a run its collector has got.

Written whole by the run's index process with each batch that arrived. `memory` is where the next
one goes on (store/spans/reading.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from albor_core.run.files.whole_file import write_json
from albor_core.run.rundir import RunDir, read_json
from albor_core.run.values.lenient import finite_of, mapping_of, text_of, whole_of

SCHEMA = "albor.spans/1"
_MOST_BYTES = 8 << 20


@dataclass(frozen=True)
class SpansSent:
    """`sent` arrived, `dropped` were refused for good, `unsent` were left when the run ended. `why`
    is what is wrong now, or was at the end; `refusal` is why the last that were dropped were, and
    `warning` the last that the collector said of spans that it took. `place` is the collector's,
    without its path. `told` is what the log of the index process has.
    """

    place: str = ""
    sent: int = 0
    dropped: int = 0
    unsent: int = 0
    why: str = ""
    refusal: str = ""
    warning: str = ""
    wall: float | None = None
    told: str = ""
    memory: Mapping[str, Any] | None = None

    def summary(self) -> dict[str, Any]:
        """The summary of sent spans for people."""
        return {name: value for name, value in asdict(self).items() if name in _SHOWN}


_SHOWN = ("place", "sent", "dropped", "unsent", "why", "refusal", "warning", "wall")


def write_spans_sent(run: RunDir, sent: SpansSent) -> None:
    """Replace it. Raises OSError, ValueError."""
    write_json(run.spans, {"schema": SCHEMA, **asdict(sent)})


def read_spans_sent(run: RunDir) -> SpansSent | None:
    """The sent spans; None if none were ever to be sent, or if the file is unreadable."""
    found = read_json(run.spans, _MOST_BYTES) or {}
    if found.get("schema") != SCHEMA:
        return None
    return SpansSent(
        place=text_of(found.get("place")) or "",
        sent=whole_of(found.get("sent")) or 0,
        dropped=whole_of(found.get("dropped")) or 0,
        unsent=whole_of(found.get("unsent")) or 0,
        why=text_of(found.get("why")) or "",
        refusal=text_of(found.get("refusal")) or "",
        warning=text_of(found.get("warning")) or "",
        wall=finite_of(found.get("wall")),
        told=text_of(found.get("told")) or "",
        memory=mapping_of(found.get("memory")) or None,
    )
