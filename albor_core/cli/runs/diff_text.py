"""A run diff as text for people: overlay first, then what differs, how far, and the verdict.

Runs are letters, A the one that the others are compared with.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from albor_core.cli.common.output import (
    cell_width,
    clean,
    cut,
    number,
    screen_width,
    table,
)
from albor_core.run.headlines import STORED
from albor_core.run.values.quantity import duration, figure, signed

_BARS = "".join(chr(0x2581 + level) for level in range(8))  # one eighth block to a full one
_CROSS, _ODD = "\u00d7", "NaN/Inf"  # what is not a number, in a curve and in a cell
_WIDTH = 48
_HEAD = 0.1  # of the steps: what falls from 10 to 3 there would flatten all that follows
_MAX_CELL = 24
_CURVES, _OWN = 3, 20  # of runs without a loss: curves, and metrics in the table
_LOSSES = {"train/loss", "val/loss"}
_MACHINE = ("optim/", "perf/", "brick/", "host/", "gpu")
_METRICS = ("train/", "val/", *(one.key for one in STORED))
Document = Mapping[str, Any]


def render_diff(made: Document) -> str:
    """The albor.runs.diff/1 document as a page. Of runs at work it says so: nothing that they have
    not reached is called out of reach.
    """
    limit = screen_width()
    letters = [chr(ord("A") + index) for index in range(len(made["runs"]))]
    parts = (
        _overlay(made, letters, limit or 100),
        _at_work(made, letters, limit or 100),
        _changes(made, letters, limit),
        _metrics(made, letters, limit),
        _reach(made, letters, limit),
        _verdicts(made, letters, limit),
    )
    return "\n\n".join(text for part in parts if (text := "\n".join(part)))


def _overlay(made: Document, letters: Sequence[str], width: int) -> Iterator[str]:
    """Each run: its letter, its name, and the compared curve on one scale for all; of runs that do
    not have what they are compared by, the first curves that all have.
    """
    names = [clean(run["id"]) for run in made["runs"]]
    compared, curves = made["metric"], made["curves"]
    own = [key for key in curves if not key.startswith(_MACHINE)]
    keys = [compared] if compared in curves else (own or [*curves])[:_CURVES]
    scales = {key: scale for key in keys if (scale := _scale(curves[key])) is not None}
    if not scales:
        yield from (f"{letter}  {name}" for letter, name in zip(letters, names, strict=True))
    for index, (key, scale) in enumerate(scales.items()):
        if index:
            yield ""
        yield from _curves_of(key, curves[key], letters, names, scale, width)


def _curves_of(
    metric: str,
    curves: Sequence[Document],
    letters: Sequence[str],
    names: Sequence[str],
    scale: tuple[float, float, int],
    width: int,
) -> Iterator[str]:
    low, high, last = scale
    room = max(map(cell_width, names))
    bars = max(16, min(_WIDTH, width - room - 16))
    lowest, highest = figure(low, metric), figure(high, metric)
    has_above = any(y is not None and y > high for curve in curves for y in curve["mean"])
    told = f" to step {last:,}, bars from {lowest} to {highest}" + " and above" * has_above
    yield cut(clean(metric), max(8, width - len(told))) + told
    for letter, name, curve in zip(letters, names, curves, strict=True):
        gap = " " * (room - cell_width(name))
        line = _sparkline(curve, bars, scale)
        end = _ends_in(curve, metric)
        yield f"{letter}  {name}{gap}  {line:<{bars}}  {end}"


def _ends_in(curve: Document, metric: str) -> str:
    """The newest value: strict JSON has none for what is not finite."""
    mean = curve["mean"]
    return figure(None, metric) if not mean else _told(mean[-1], True, metric)


def _told(value: float | None, is_odd: bool, metric: str) -> str:
    return _ODD if value is None and is_odd else figure(value, metric)


def _at_work(made: Document, letters: Sequence[str], width: int) -> Iterator[str]:
    """Note which runs are active, and their progress: the comparison is of now, not of their
    ends."""
    busy = []
    for letter, run in zip(letters, made["runs"], strict=True):
        if run.get("is_at_work"):
            planned = f" of {run['max_steps']:,}" if run["max_steps"] else ""
            busy.append(f"{letter} ({run['status']}, step {run['last_step'] or 0:,}{planned})")
    if busy:
        yield from textwrap.wrap(f"still active: {', '.join(busy)}", width, subsequent_indent="  ")


def _scale(curves: Sequence[Document]) -> tuple[float, float, int] | None:
    """Lowest and highest value after the head of the curves, and their last step."""
    points = [
        (step, value)
        for curve in curves
        for step, value in zip(curve["steps"], curve["mean"], strict=True)
        if value is not None
    ]
    if not points:
        return None
    last, low = max(step for step, _ in points), min(value for _, value in points)
    high = max(value for curve in curves for value in _after_head(curve))
    return low, high if high > low else max(value for _, value in points), last


def _after_head(curve: Document) -> Iterator[float]:
    """The values of a curve after its head, which depends on its own length: a short run lies
    entirely in the head of a long one."""
    head = _HEAD * max(curve["steps"], default=0)
    for step, value in zip(curve["steps"], curve["mean"], strict=True):
        if value is not None and step >= head:
            yield value


def _sparkline(curve: Document, width: int, scale: tuple[float, float, int]) -> str:
    low, high, last = scale
    cells = [" "] * width
    for step, value in zip(curve["steps"], curve["mean"], strict=True):
        bar = _CROSS if value is None else _BARS[_level(value, low, high)]
        cells[min(width - 1, step * width // max(last, 1))] = bar
    ends = max(curve["steps"], default=0) * width // max(last, 1)
    for index in range(1, min(width, ends + 1)):  # a sparse curve holds its value to the next point
        if cells[index] == " ":
            cells[index] = cells[index - 1]
    return "".join(cells)


def _level(value: float, low: float, high: float) -> int:
    """0 to 7, by where `value` lies; above `high` as on it."""
    span = high / 2 - low / 2  # a half: between the two ends of all floats there is no whole one
    if high <= low or not span:
        return 0
    return 7 if value >= high else round((value / 2 - low / 2) / span * 7)


def _changes(made: Document, letters: Sequence[str], limit: int | None) -> Iterator[str]:
    same: list[str] = []
    unsure: list[str] = []
    for title in ("config", "code", "data", "environment"):
        rows = [(c["key"], *map(_value, c["values"])) for c in made[title]]
        if rows:
            yield from (_columns((title, *letters), rows, limit), "")
        elif title not in made["unrecorded"]:
            is_unknown = any(title in verdict["unknown"] for verdict in made["verdicts"])
            (unsure if is_unknown else same).append(title)
    if same:
        yield f"the same: {', '.join(same)}"
    if unsure:
        yield f"recorded in part, no difference in that: {', '.join(unsure)}"
    unknown = made["unknown_config"]
    silent = [part for part in made["unrecorded"] if part != "config" or not unknown]
    if silent:
        yield f"not recorded by any: {', '.join(silent)}"
    of = {run["id"]: letter for run, letter in zip(made["runs"], letters, strict=True)}
    for one in unknown:
        hint = f"; next: {one['hint']}" if one["hint"] else ""
        yield f"the config of {of[one['run']]} is unknown: {one['reason']}{hint}"


def _value(value: Any) -> str:
    """A value of a config or a fact; of a hash enough to tell it from others."""
    if value is None:
        return "-"
    text = f"{value:g}" if isinstance(value, float) else str(value)
    if len(text) in (40, 64) and not set(text) - set("0123456789abcdef"):
        return text[:12]
    return text if len(text) <= _MAX_CELL else f"\u2026{text[1 - _MAX_CELL :]}"  # paths differ late


def _metrics(made: Document, letters: Sequence[str], limit: int | None) -> Iterator[str]:
    rows = []
    own, left_out = _own_metrics(made)
    for key, stats in made["metrics"].items():
        is_compared = key == made["metric"] or key in own
        if is_compared or key.startswith(_METRICS):
            odd = [bool(s and s["nonfinite"]) for s in stats]
            last = (
                _told(s and s["last"], is_odd, key) for s, is_odd in zip(stats, odd, strict=True)
            )
            rows.append((key, *last))
            has_best = any(s and s["best"] is not None for s in stats)
            if has_best and (is_compared or key.startswith(("val/", "perf/"))):
                rows.append(("  best", *(figure(s and s["best"], key) for s in stats)))
    if rows:
        yield _columns(("metric, last", *letters), rows, limit, right=letters)
    if left_out:
        yield f"and {left_out:,} more: --json"


def _own_metrics(made: Document) -> tuple[Sequence[str], int]:
    """Metrics from evaluations, or all metrics of runs without a loss; and how many more there
    are.
    """
    has_loss = not _LOSSES.isdisjoint(made["metrics"])
    own = [
        key
        for key in made["metrics"]
        if (key.startswith("eval/") if has_loss else not key.startswith(_MACHINE))
    ]
    return own[:_OWN], len(own[_OWN:])


def _reach(made: Document, letters: Sequence[str], limit: int | None) -> Iterator[str]:
    """Steps, tokens and time that each run needs to reach A's end, and A to reach theirs."""
    of = {run["id"]: letter for run, letter in zip(made["runs"], letters, strict=True)}
    at_work = {run["id"] for run in made["runs"] if run.get("is_at_work")}
    rows, others = [], 0
    for reach in made["reach"]:
        who, goal = of[reach["run"]], of[reach["other"]]
        if letters[0] not in (who, goal):
            others += 1
            continue
        end = f"where {goal} is now" if reach["other"] in at_work else f"the end of {goal}"
        row = (f"{who} to {end}, {figure(reach['target'], made['metric'])}",)
        if reach["step"] is None:
            rows.append((*row, "not yet" if reach["run"] in at_work else "never", "", ""))
        else:
            took = figure(reach["tokens"]), duration(reach["seconds"])
            rows.append((*row, f"{reach['step']:,}", *took))
    if rows:
        heads = ("to reach", "steps", "tokens", "time")
        yield table(heads, rows, right=heads[1:], limit=limit)
    if others:
        yield f"{others} more pairs, of runs other than {letters[0]}: --json"


def _columns(
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    limit: int | None,
    right: Sequence[str] = (),
) -> str:
    """A table of a column a run, in as many pieces as the screen needs."""
    columns = zip(heads, *rows, strict=True)
    label, *widths = [max(cell_width(clean(cell)) for cell in column) for column in columns]
    per_piece = len(widths)
    if limit is not None:
        per_piece = max(1, (limit - min(label, limit // 2)) // (max(widths) + 2))
    pieces = []
    for start in range(1, len(heads), per_piece):
        chosen = range(start, min(start + per_piece, len(heads)))
        pieces.append(
            table(
                (heads[0], *(heads[i] for i in chosen)),
                [(row[0], *(row[i] for i in chosen)) for row in rows],
                right=right,
                limit=limit,
            )
        )
    return "\n\n".join(pieces)


_OUTCOMES = {
    "better": "is better than",
    "worse": "is worse than",
    "indistinguishable": "is indistinguishable from",
}


def _verdicts(made: Document, letters: Sequence[str], limit: int | None) -> Iterator[str]:
    verdicts = made["verdicts"]
    if len(verdicts) == 1:
        is_final = not any(run.get("is_at_work") for run in made["runs"])
        yield from _one_verdict(verdicts[0], limit or 100, "" if is_final else " so far")
        return
    rows = [
        (
            letter,
            verdict["outcome"] or "no verdict",
            *(_interval(verdict) or ("-", "-")),
            verdict["detail"],
        )
        for letter, verdict in zip(letters[1:], verdicts, strict=True)
    ]
    level = f"{verdicts[0]['confidence']:.0%} interval"
    heads = ("verdict", f"against {letters[0]}", "by", level, "from")
    yield table(heads, rows, right="by", limit=limit)
    if (count := max(verdict["comparisons"] for verdict in verdicts)) > 1:
        said = f"verdicts and intervals are corrected for {count} comparisons (Holm)"
        yield from _indented(said, limit or 100)
    for method in sorted({v["method"] for v in verdicts} - {"none"}):
        yield from _indented(clean(method), limit or 100)


def _one_verdict(verdict: Document, width: int, until: str) -> Iterator[str]:
    if verdict["outcome"] in _OUTCOMES:
        yield f"verdict: B {_OUTCOMES[verdict['outcome']]} A{until}"
    elif verdict["outcome"] == "contradictory":
        missing = verdict["unjudged"]
        told = f": {clean(missing['metric'])} cannot be judged" if missing else ""
        yield f"verdict: contradictory, B against A{until}{told}"
    else:
        yield f"no verdict: B cannot be judged against A{until}"
    why = [clean(verdict["detail"])]
    if (found := _interval(verdict)) is not None:
        of = f" of {clean(verdict['metric'])}" if verdict["metric"] else ""
        told = f"difference{of} {found[0]}, {verdict['confidence']:.0%} interval {found[1]}"
        why.insert(0, told)
    if verdict["method"] != "none":
        why.append(clean(verdict["method"]))
    for line in why:
        yield from _indented(line, width)


def _indented(line: str, width: int) -> list[str]:
    return textwrap.wrap(line, width, initial_indent="  ", subsequent_indent="  ")


def _interval(verdict: Document) -> tuple[str, str] | None:
    """The middle and the bounds of an interval; None if there is none."""
    if verdict["interval"] is None or None in verdict["interval"]:
        return None
    low, high = verdict["interval"]
    places = _places(high - low)
    spec = f"+,.{places}f"
    middle = verdict["difference"]
    shown = number(middle) if middle is None else signed(middle, spec)
    return shown, f"{signed(low, spec)} to {signed(high, spec)}"


def _places(width: float) -> int:
    """Decimals that show three digits of an interval of this width."""
    if not 0 < width < math.inf:
        return 4
    return min(12, max(0, 2 - math.floor(math.log10(width))))
