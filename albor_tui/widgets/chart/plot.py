"""Lines to braille, by plotext, in one thread.

plotext keeps one figure per process and is not thread-safe, so one thread owns it; it is imported
there too, which keeps its 0.06 s out of the first paint. Each line is drawn on its own canvas and
the canvases are laid over each other here, so that colour stays a matter of the stylesheet.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache, partial
from itertools import groupby
from operator import itemgetter
from typing import Any

from albor_core.run.light_dataclass import dataclass
from albor_tui.widgets.chart.dashes import dashed
from albor_tui.widgets.chart.ticks import Range

_BLANK = frozenset(" \u2800")
TOGETHER_S = 0.05  # the first of many charts waits no longer
_asked: deque[tuple[PlotJob, Future[Canvas]]] = deque()
_drawn: list[tuple[float, Callable[[], None]]] = []  # when, and who gives it back; one thread's
LETTER_CELLS = 4  # of a chart for one letter, at the least
FAINT = ("raw", "-faint")  # how the tones end that lie under another line


@dataclass(frozen=True)
class PlotLine:
    """One series. `tone` names the stylesheet class that colours it.

    Values that are not finite break the line. `low` and `high`, where given, are the envelope of
    each bucket: a spike inside a bucket is drawn although the mean hides it. A `letter` stands on
    the line, for a chart of more lines than there are colours. A `dash` that is not 0 leaves parts
    of it out.
    """

    tone: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    label: str = ""
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    letter: str = ""
    dash: int = 0


@dataclass(frozen=True)
class PlotJob:
    """A drawing job: lines from the bottom layer to the top, canvas size in cells, data limits."""

    lines: tuple[PlotLine, ...]
    width: int
    height: int
    x: Range
    y: Range
    ascii: bool = False


@dataclass(frozen=True)
class CellRun:
    """Neighbouring cells of one tone; an empty tone is background."""

    text: str
    tone: str


Canvas = tuple[tuple[CellRun, ...], ...]


def submit(job: PlotJob) -> Future[Canvas]:
    """Draw in the plotting thread. What is asked for together is given back together: each chart by
    itself would be a frame of its own."""
    promise: Future[Canvas] = Future()
    _asked.append((job, promise))
    _thread().submit(_draw_next)
    return promise


def _draw_next() -> None:
    job, promise = _asked.popleft()
    if promise.set_running_or_notify_cancel():
        try:
            give: Callable[[], None] = partial(promise.set_result, paint(job))
        except Exception as error:  # whoever asked is told
            give = partial(promise.set_exception, error)
        _drawn.append((time.monotonic(), give))
    if _drawn and (not _asked or time.monotonic() - _drawn[0][0] > TOGETHER_S):
        for _, give in _drawn:
            give()
        _drawn.clear()


@lru_cache(maxsize=1)
def _thread() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix="plot")


def paint(job: PlotJob) -> Canvas:
    """Rows of runs, exactly `height` rows of `width` cells. Plotting thread only."""
    cells = [[(" ", "")] * job.width for _ in range(job.height)]
    for line in job.lines:
        xs, ys, joined = _points(line, job.x)
        if xs:
            plain = line.letter or ("." if line.tone.endswith(FAINT) else "*")
            marker = plain if job.ascii else "braille"
            drawn = _draw(job, marker, xs, ys, joined)
            _lay(cells, dashed(drawn, line.dash, is_ascii=job.ascii), line.tone)
    _lay_letters(cells, job)
    return tuple(_runs(row) for row in cells)


def _points(line: PlotLine, limits: Range) -> tuple[list[float], list[float], list[bool]]:
    """The points to connect: with an envelope every bucket is a stroke from its low to its high."""
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


def _draw(
    job: PlotJob, marker: str, xs: list[float], ys: list[float], joined: list[bool]
) -> list[str]:
    plotext = _plotext()
    figure = plotext.figure
    figure.clear()
    figure.plot_size(job.width, job.height)
    figure.axes(False)
    figure.legend(False)
    figure.ruler("x", "lower").lim(job.x.low, job.x.high).frequency(0)
    figure.ruler("y", "left").lim(job.y.low, job.y.high).frequency(0)
    clipped = [min(max(y, job.y.low), job.y.high) for y in ys]
    # one marker for each point and more: fewer are copied until there are enough, half of the time
    same = [plotext.marker(marker)] * (len(xs) + 2)
    signal = figure.signal(xs, clipped, marker=same)
    signal.lines(True)
    for i, connected in enumerate(joined):
        if not connected:
            signal.line(i, False)
    figure.draw(signal)
    return str(figure.build().string(colorless=True)).splitlines()


@lru_cache(maxsize=1)
def _plotext() -> Any:
    from albor_tui.widgets.chart.light_plotext import (
        load,  # only with the first chart, and in its thread
    )

    plotext = load()
    plotext.terminal.limit(False, False)
    return plotext


def _lay(cells: list[list[tuple[str, str]]], drawn: list[str], tone: str) -> None:
    for row, text in zip(cells, drawn, strict=False):
        for column, character in enumerate(text[: len(row)]):
            if character not in _BLANK:
                row[column] = (character, tone)


def _lay_letters(cells: list[list[tuple[str, str]]], job: PlotJob) -> None:
    """Each letter on its line every so many cells, where it can in columns of its own."""
    lines = [line for line in job.lines if line.letter]
    turns = max(1, job.width // (LETTER_CELLS * max(1, len(lines))))
    for number, line in enumerate(lines):
        known = [
            (min(int((x - job.x.low) / job.x.span * job.width), job.width - 1), y)
            for x, y in zip(line.x, line.y, strict=True)
            if math.isfinite(y) and job.x.low <= x <= job.x.high
        ]
        for turn in range(turns if known else 0):
            wanted = int((turn + (number + 0.5) / len(lines)) * job.width / turns)
            column, y = min(known, key=lambda place: abs(place[0] - wanted))
            share = (min(max(y, job.y.low), job.y.high) - job.y.low) / job.y.span
            row = min(int((1 - share) * job.height), job.height - 1)
            cells[row][column] = (line.letter, line.tone)


def _runs(row: list[tuple[str, str]]) -> tuple[CellRun, ...]:
    runs: list[CellRun] = []
    for tone, cells in groupby(row, itemgetter(1)):
        runs.append(CellRun("".join([character for character, _ in cells]), tone))
    return tuple(runs)
