"""Draws evaluation scores as bars: one chart per score, one bar per run, in the order of the runs.

A bar begins at 0, so that lengths compare. Its whisker is the 95 % interval over items, exact if
each passes or fails, else from the standard error if that is known; it does not cover other
seeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from albor_core.picture.chart import look_of, ticks
from albor_core.run.values.directions import Goals, direction
from albor_core.run.values.lenient import finite_of, mapping_of
from albor_core.run.values.quantity import figure, is_finite
from albor_core.store.index.write import SCORES_EVENT
from albor_core.store.query.reader import Reader

PREFIX = "eval/"
MOST_SCORES = 24
_WIDTH, _LEFT, _RIGHT, _ROW, _TOP = 560, 150, 64, 26, 8
_Z = 1.96  # of a 95 % interval
_CHARS = 22  # of a run's name beside its bar


@dataclass(frozen=True)
class ScoreBar:
    """The newest value of a score of one run. `place`: the index of the run."""

    place: int
    label: str
    value: float
    step: int
    stderr: float | None = None
    interval: tuple[float, float] | None = None
    """The exact one, of a share of passes."""


def newest_scores(reader: Reader, run_id: str, place: int, label: str) -> dict[str, ScoreBar]:
    """The bar of each finite score of a run."""
    errors: dict[tuple[str, int | None], float] = {}
    intervals: dict[tuple[str, int | None], tuple[float, float]] = {}
    for event in reader.events(run_id, names=(SCORES_EVENT,)):
        for name, told in mapping_of(event.data.get("interval")).items():
            ends = [finite_of(one) for one in told] if isinstance(told, list) else []
            if len(ends) == 2 and ends[0] is not None and ends[1] is not None:
                intervals[name, event.step] = ends[0], ends[1]
        for name, told in mapping_of(event.data.get("stderr")).items():
            if (error := finite_of(told)) is not None:
                errors[name, event.step] = error
    found = {}
    for name, stat in reader.summary(run_id).items():
        last, step = stat.last, stat.last_step
        if name.startswith(PREFIX) and step is not None and is_finite(last):
            at = (name, step)
            found[name] = ScoreBar(place, label, last, step, errors.get(at), intervals.get(at))
    return found


def captions(names: Sequence[str], goals: Goals | None = None) -> dict[str, str]:
    """The caption of the chart of each score."""
    words = {"min": ", lower is better", "max": ", higher is better", None: ""}
    return {name: name.removeprefix(PREFIX) + words[direction(name, goals)] for name in names}


def bars_svg(title: str, bars: Sequence[ScoreBar]) -> str:
    """The bar chart as SVG, with a text alternative for screen readers."""
    told = ", ".join(f"{bar.label} {figure(bar.value)}" for bar in bars)
    ends = [end for bar in bars for end in _whisker(bar)]
    low, high = min(0.0, *ends), max(0.0, *ends)
    if low == high:
        high = low + 1.0
    height = _TOP + _ROW * len(bars) + 22
    parts = [
        f'<svg viewBox="0 0 {_WIDTH} {height}" role="img">',
        f"<title>{escape(f'{title}: {told}')}</title>",
    ]
    for value, words in ticks(low, high):
        x = _x(value, low, high)
        parts.append(
            f'<line class="grid" x1="{x}" x2="{x}" y1="{_TOP}" y2="{height - 20}"/>'
            f'<text x="{x}" y="{height - 6}" text-anchor="middle">{words}</text>'
        )
    for row, bar in enumerate(bars):
        parts += _bar(bar, _TOP + row * _ROW, low, high)
    return "".join((*parts, "</svg>"))


def _bar(bar: ScoreBar, top: int, low: float, high: float) -> list[str]:
    zero, end = _x(0.0, low, high), _x(bar.value, low, high)
    middle, (least, most) = top + _ROW // 2, _whisker(bar)
    label = bar.label if len(bar.label) <= _CHARS else bar.label[: _CHARS - 1] + "\u2026"
    text = f'<text x="{_LEFT - 8}" y="{middle + 4}" text-anchor="end">{escape(label)}</text>'
    start, width = min(zero, end), abs(end - zero)
    right = max(zero, end, _x(most, low, high)) + 6
    parts = [
        text,
        f'<rect class="{look_of(bar.place)}" x="{start}" y="{top + 5}" width="{width:.1f}"'
        f' height="{_ROW - 10}"><title>step {bar.step:,}</title></rect>',
        f'<text x="{right}" y="{middle + 4}">{figure(bar.value)}</text>',
    ]
    if least < most:
        left, far = _x(least, low, high), _x(most, low, high)
        parts.append(f'<line class="whisker" x1="{left}" x2="{far}" y1="{middle}" y2="{middle}"/>')
    return parts


def _whisker(bar: ScoreBar) -> tuple[float, float]:
    """The exact 95 % interval, or that of the standard error; just the value if neither is
    known."""
    half = 0.0 if bar.stderr is None else _Z * bar.stderr
    return bar.interval or (bar.value - half, bar.value + half)


def _x(value: float, low: float, high: float) -> float:
    return round(_LEFT + (value - low) / (high - low) * (_WIDTH - _LEFT - _RIGHT), 1)
