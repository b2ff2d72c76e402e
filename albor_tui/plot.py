"""Lines to braille, by plotext, in one thread.

plotext keeps one figure per process and is not thread-safe, so one thread owns it; it is imported
there too, which keeps its 0.25 s out of the first paint. Each line is drawn on its own canvas and
the canvases are laid over each other here, so that colour stays a matter of the stylesheet.
"""

from __future__ import annotations

import math
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from albor_tui.ticks import Range

_BLANK = frozenset(" \u2800")


@dataclass(frozen=True)
class Line:
    """One series. `tone` names the stylesheet class that colours it.

    Values that are not finite break the line. `low` and `high`, where given, are the envelope of
    each bucket: a spike inside a bucket is drawn although the mean hides it.
    """

    tone: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    label: str = ""
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()


@dataclass(frozen=True)
class Job:
    """What to draw: lines from the bottom layer to the top, canvas size in cells, data limits."""

    lines: tuple[Line, ...]
    width: int
    height: int
    x: Range
    y: Range
    ascii: bool = False


@dataclass(frozen=True)
class Run:
    """Neighbouring cells of one tone; an empty tone is background."""

    text: str
    tone: str


Canvas = tuple[tuple[Run, ...], ...]


def submit(job: Job) -> Future[Canvas]:
    """Draw in the plotting thread."""
    return _thread().submit(paint, job)


@lru_cache(maxsize=1)
def _thread() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix="plot")


def paint(job: Job) -> Canvas:
    """Rows of runs, exactly `height` rows of `width` cells. Plotting thread only."""
    cells = [[(" ", "")] * job.width for _ in range(job.height)]
    for line in job.lines:
        xs, ys, joined = _points(line, job.x)
        if xs:
            _lay(cells, _draw(job, xs, ys, joined), line.tone)
    return tuple(_runs(row) for row in cells)


def _points(line: Line, limits: Range) -> tuple[list[float], list[float], list[bool]]:
    """What to connect: with an envelope every bucket is a stroke from its low to its high."""
    xs: list[float] = []
    ys: list[float] = []
    joined: list[bool] = []
    unbroken = False
    for i, (x, y) in enumerate(zip(line.x, line.y, strict=True)):
        if not (math.isfinite(y) and limits.low <= x <= limits.high):
            unbroken = False
            continue
        marks = [y]
        if line.low and line.high[i] > line.low[i] and math.isfinite(line.high[i] - line.low[i]):
            up = bool(ys) and ys[-1] <= y
            marks = [line.low[i], line.high[i]] if up else [line.high[i], line.low[i]]
        for mark in marks:
            xs.append(x)
            ys.append(mark)
            joined.append(unbroken)
            unbroken = True
    return xs, ys, joined


def _draw(job: Job, xs: list[float], ys: list[float], joined: list[bool]) -> list[str]:
    figure = _figure()
    figure.clear()
    figure.plot_size(job.width, job.height)
    figure.axes(False)
    figure.legend(False)
    figure.ruler("x", "lower").lim(job.x.low, job.x.high).frequency(0)
    figure.ruler("y", "left").lim(job.y.low, job.y.high).frequency(0)
    clipped = [min(max(y, job.y.low), job.y.high) for y in ys]
    signal = figure.signal(xs, clipped, marker="*" if job.ascii else "braille")
    signal.lines(True)
    for i, connected in enumerate(joined):
        if not connected:
            signal.line(i, False)
    figure.draw(signal)
    return str(figure.build().string(colorless=True)).splitlines()


@lru_cache(maxsize=1)
def _figure() -> Any:
    import plotext  # 0.25 s: only when the first chart is drawn, and only in its thread

    plotext.terminal.limit(False, False)
    return plotext.figure


def _lay(cells: list[list[tuple[str, str]]], drawn: list[str], tone: str) -> None:
    for row, text in zip(cells, drawn, strict=False):
        for column, character in enumerate(text[: len(row)]):
            if character not in _BLANK:
                row[column] = (character, tone)


def _runs(row: list[tuple[str, str]]) -> tuple[Run, ...]:
    runs: list[Run] = []
    start = 0
    for i in range(1, len(row) + 1):
        if i == len(row) or row[i][1] != row[start][1]:
            runs.append(Run("".join(c for c, _ in row[start:i]), row[start][1]))
            start = i
    return tuple(runs)
