"""A run diff as text for people: overlay first, then what differs, how far, and the verdict."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from albor_core.cli.output import clean, duration, number, table

_BARS = "".join(chr(0x2581 + level) for level in range(8))  # one eighth block to a full one
_WIDTH = 48
_SHOWN = ("train/", "val/", "perf/tokens_per_s", "perf/mfu")


def render_diff(made: Mapping[str, Any]) -> str:
    """The albor.runs.diff/1 document as a page."""
    names = [str(run["id"]) for run in made["runs"]]
    return "\n".join(
        [
            *_overlay(made, names),
            *_changes("config", made["config"], names),
            *_changes("code", made["code"], names),
            *_changes("environment", made["environment"], names),
            *_metrics(made, names),
            *map(_reach, made["reach"]),
            "",
            *_verdicts(made),
        ]
    )


def _overlay(made: Mapping[str, Any], names: Sequence[str]) -> Iterator[str]:
    """The compared curve of each run on one scale of steps and values."""
    curves = made["curves"].get(made["metric"]) or []
    values = [v for curve in curves for v in curve["mean"] if v is not None]
    steps = [step for curve in curves for step in curve["steps"]]
    if not values:
        return
    low, high, last = min(values), max(values), max(steps)
    yield f"{made['metric']}  {number(high)} at the top, {number(low)} below, to step {last:,}"
    width = max(map(len, names))
    for name, curve in zip(names, curves, strict=True):
        yield f"  {clean(name):<{width}}  {_sparkline(curve, low, high, last)}"
    yield ""


def _sparkline(curve: Mapping[str, Any], low: float, high: float, last: int) -> str:
    cells = [" "] * _WIDTH
    for step, value in zip(curve["steps"], curve["mean"], strict=True):
        if value is not None:
            level = 0 if high == low else round(7 * (value - low) / (high - low))
            cells[min(_WIDTH - 1, step * _WIDTH // max(last, 1))] = _BARS[level]
    for index in range(1, _WIDTH):  # a sparse curve holds its value until the next point
        if cells[index] == " ":
            cells[index] = cells[index - 1]
    return "".join(cells).rstrip()


def _changes(
    title: str, changes: Sequence[Mapping[str, Any]], names: Sequence[str]
) -> Iterator[str]:
    if not changes:
        yield f"{title}: the same"
        yield ""
        return
    rows = [(c["key"], *("-" if v is None else str(v) for v in c["values"])) for c in changes]
    yield table((title, *names), rows)
    yield ""


def _metrics(made: Mapping[str, Any], names: Sequence[str]) -> Iterator[str]:
    rows = [
        (key, *("-" if s is None else f"{number(s['last'])} / {number(s['best'])}" for s in stats))
        for key, stats in made["metrics"].items()
        if key.startswith(_SHOWN)
    ]
    yield table(("last / best", *names), rows)
    yield ""


def _reach(reach: Mapping[str, Any]) -> str:
    goal = f"{reach['run']} gets to {number(reach['target'], '.4f')}, where {reach['other']} ends"
    if reach["step"] is None:
        return f"{clean(goal)}: never"
    return (
        f"{clean(goal)}: after {number(reach['tokens'], ',.0f')} tokens,"
        f" {reach['step']:,} steps, {duration(reach['seconds'])}"
    )


def _verdicts(made: Mapping[str, Any]) -> Iterator[str]:
    for verdict in made["verdicts"]:
        outcome = verdict["outcome"].replace("_", " ")
        word = {"better": "better than", "worse": "worse than"}.get(outcome, f"{outcome} from")
        yield f"verdict: {clean(verdict['run'])} is {word} {clean(verdict['against'])}"
        if verdict["interval"] is not None:
            low, high = verdict["interval"]
            yield (
                f"  difference {number(verdict['difference'], '+.4f')},"
                f" {verdict['confidence']:.0%} interval {low:+.4f} to {high:+.4f},"
                f" by {verdict['method']}"
            )
        yield f"  {clean(verdict['detail'])}"
