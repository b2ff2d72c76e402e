"""The figures of a soak as text."""

from __future__ import annotations

import statistics
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from soak import Outcome

_FOR_P99 = 100  # with fewer values the 99th of a hundred is the worst one


def render(outcome: Outcome, tenths: list[int], faults: int) -> str:
    struck = Counter(kind for kind, _ in outcome.struck)
    missed = Counter(outcome.missed)
    lines = [
        f"seed {outcome.seed}: {len(outcome.struck)} of {faults} faults landed over"
        f" {outcome.steps:,} steps in {outcome.seconds:,.0f} s; {outcome.deaths} trainers died,"
        f" {outcome.reads} reads beside them, {outcome.points:,} points compared",
        "  in each tenth of the run: " + " ".join(map(str, tenths)),
    ]
    for kind in sorted(struck | missed):
        lines.append(
            f"  {struck[kind]:4} {kind}" + (f" ({missed[kind]} missed)" if missed[kind] else "")
        )
    lines.append("  seconds until it went on: median, worst")
    lines += [f"  {_times(what, values)}" for what, values in sorted(outcome.recoveries.items())]
    lines.append(f"  violations: {len(outcome.violations)}")
    lines += [f"  - {text}" for text in outcome.violations]
    return "\n".join(lines)


def _times(what: str, values: list[float]) -> str:
    text = f"{what} ({len(values)}): {statistics.median(values):.2f}, {max(values):.2f}"
    if len(values) >= _FOR_P99:
        text += f", p99 {statistics.quantiles(values, n=100)[-1]:.2f}"
    return text
