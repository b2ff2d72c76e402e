"""The span of a foreign trace that a run belongs to: TRACEPARENT, as W3C has it.

00-TRACE_ID-SPAN_ID-FLAGS    32, 16 and 2 hexadecimal digits; the lowest bit: it is recorded
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

VARIABLE = "TRACEPARENT"
FACT = "traceparent"
"""Its name in run.json."""
_FORM = re.compile(r"(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")


class Traceparent(NamedTuple):
    trace_id: str
    span_id: str
    is_sampled: bool


def parse_traceparent(text: object) -> Traceparent | None:
    """The parsed traceparent; None for an invalid one, such as ids of zeros."""
    found = _FORM.fullmatch(text.strip()) if isinstance(text, str) else None
    if found is None or (found[4] and found[0].startswith("00")):
        return None
    trace_id, span_id = found[1], found[2]
    if not int(trace_id, 16) or not int(span_id, 16):
        return None
    return Traceparent(trace_id, span_id, bool(int(found[3], 16) & 1))


def parent_fact(environment: Mapping[str, str]) -> dict[str, str]:
    """The fields for run.json: the text if it is valid, else none."""
    text = environment.get(VARIABLE, "").strip()
    return {FACT: text} if parse_traceparent(text) is not None else {}
