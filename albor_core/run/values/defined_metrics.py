"""What a program said of its metrics with `run.define_metric`: what each is drawn over, and which
of its values stands for the run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from albor_core.run.errors import UsageError
from albor_core.run.headlines import HOUSE_NAMES
from albor_core.run.values.metrics import MAX_KEY_CHARS, safe_key

EVENT, FACT = "run.metric", "defined_metrics"  # in the journal, and among the facts of a run
SUMMARIES = ("last", "min", "max", "none")
MOST = 1000


class Defined(NamedTuple):
    """One metric. `x` is the metric that it is drawn over, "" for the step; a `summary` of "none"
    never stands for the run.
    """

    x: str = ""
    summary: str = "last"


def recorded_name(metric: object, what: str) -> str:
    """The name that `log` gives to a key. Raises UsageError for what is not one."""
    if not isinstance(metric, str) or not metric.strip():
        raise UsageError(f"cannot define a metric: {what} {metric!r} is not a name")
    if "*" in metric:
        raise UsageError(
            f"cannot define a metric: {what} {metric!r} is a pattern, and one metric is named",
            hint="call define_metric once for each",
        )
    name = safe_key(metric.strip())
    return HOUSE_NAMES.get(name, name)


def definition(metric: object, x: object, summary: object) -> dict[str, str]:
    """The data of the event that says it. Raises UsageError."""
    said = {"metric": recorded_name(metric, "metric")}
    if x is not None:
        said["x"] = "" if x == "step" else recorded_name(x, "x")
    if summary is not None:
        if summary not in SUMMARIES:
            raise UsageError(
                f"cannot define {said['metric']!r}: summary {summary!r}: one of"
                f" {', '.join(SUMMARIES)}"
            )
        said["summary"] = str(summary)
    return said


def defined_by(found: object) -> dict[str, Defined]:
    """The definitions in the facts of a run, which may hold anything. Raises nothing."""
    if not isinstance(found, Mapping):
        return {}
    return {
        name: Defined(_name(about.get("x")), _word(about.get("summary")))
        for name, about in found.items()
        if _name(name) and isinstance(about, Mapping)
    }


def _name(value: Any) -> str:
    return value if isinstance(value, str) and len(value) <= MAX_KEY_CHARS else ""


def _word(value: Any) -> str:
    return value if value in SUMMARIES else "last"
