"""Lines to braille, in one thread.

Each line is drawn by itself, as the dots that it touches, and lies over those before it; colour
stays a matter of the stylesheet. Where many lines share a chart the dots of each are kept, so that
a line that comes or goes costs no more than itself.
"""

from __future__ import annotations

import math
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache, partial
from typing import Any, NamedTuple, TypeVar

from albor_core.run.light_dataclass import dataclass
from albor_tui.widgets.chart.dashes import dashed
from albor_tui.widgets.chart.ticks import Range

_T = TypeVar("_T")
_BRAILLE = 0x2800
_BITS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))  # of a dot, by column and row
_EDGE = 0.5016  # of a cell, between the ends of an axis and those of the canvas
MANY = 8  # lines of a chart: beyond that those of each are kept
MOST_KEPT = 2_000
TOGETHER_S = 0.05  # the first of many charts waits no longer
_asked: deque[tuple[Callable[[], Any], Future[Any]]] = deque()
_drawn: list[tuple[float, Callable[[], None]]] = []  # when, and who gives it back; one thread's
LETTER_CELLS = 4  # of a chart for one letter, at the least
FAINT = ("raw", "-faint")  # how the tones end that lie under another line


@dataclass(frozen=True)
class PlotLine:
    """One series. `tone` names the stylesheet class that colours it.

    Values that are not finite break the line. `low` and `high`, where given, are the envelope of
    each bucket: a spike inside a bucket is drawn although the mean hides it. A `letter` stands on
    the line, for a chart of more lines than there are colours. A `dash` that is not 0 leaves parts
    of it out. A band is what lies between `low` and `high`, shaded.
    """

    tone: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    label: str = ""
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    letter: str = ""
    dash: int = 0
    is_band: bool = False

    def level_at(self, place: float) -> float | None:
        """The value where the line is drawn at a place of the x axis; None where it is not."""
        i = bisect_left(self.x, place)
        if i == len(self.x) or (i == 0 and self.x[0] > place):
            return None
        before = max(0, i - 1)
        span = self.x[i] - self.x[before]
        share = (place - self.x[before]) / span if span > 0 else 1.0
        level = self.y[before] + (self.y[i] - self.y[before]) * share
        return level if math.isfinite(level) else None


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
Dots = dict[int, int]  # bits by cell


class _Place(NamedTuple):
    x: int
    y: int
    dash: int
    width: int
    height: int
    across: Range
    up: Range
    ascii: bool


_kept: dict[_Place, tuple[PlotLine, Dots]] = {}  # the latest drawn last; one thread's


def submit(job: PlotJob) -> Future[Canvas]:
    """Draw in the plotting thread. What is asked for together is given back together: each chart by
    itself would be a frame of its own."""
    return work(partial(paint, job))


def work(do: Callable[[], _T]) -> Future[_T]:
    """Do something else that a chart waits for in the plotting thread."""
    promise: Future[_T] = Future()
    _asked.append((do, promise))
    _thread().submit(_do_next)
    return promise


def _do_next() -> None:
    do, promise = _asked.popleft()
    if promise.set_running_or_notify_cancel():
        try:
            give: Callable[[], None] = partial(promise.set_result, do())
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
    bits = [0] * (job.width * job.height)
    texts = [" "] * len(bits)
    tones = [""] * len(bits)
    keeps = len(job.lines) > MANY
    for line in job.lines:
        if line.is_band:
            _shade(line, job, texts, tones)
            continue
        mark = line.letter or ("." if line.tone.endswith(FAINT) else "*")
        for cell, dots in (_kept_dots if keeps else _dots)(line, job).items():
            if job.ascii:
                texts[cell] = mark
            else:
                bits[cell] = dots | bits[cell] if tones[cell] == line.tone else dots
                texts[cell] = chr(_BRAILLE + bits[cell])
            tones[cell] = line.tone
    _lay_letters(texts, tones, job)
    return tuple(
        _runs(texts[row : row + job.width], tones[row : row + job.width])
        for row in range(0, len(texts), job.width)
    )


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


def _dots(line: PlotLine, job: PlotJob) -> Dots:
    """The cells that a line touches, each with the bits of its dots; in ASCII they have one."""
    across, up = (1, 1) if job.ascii else (2, 4)
    bits = ((1,),) if job.ascii else _BITS
    columns, top = job.width, job.height * up - 1
    left, wide = _EDGE * across, (job.width - 2 * _EDGE) * across / job.x.span
    bottom, high = _EDGE * up, (job.height - 2 * _EDGE) * up / job.y.span
    found: Dots = {}
    x0 = y0 = 0.0
    for x, y, is_joined in zip(*_points(line, job.x), strict=True):
        x1 = left + wide * (x - job.x.low)
        y1 = bottom + high * (min(max(y, job.y.low), job.y.high) - job.y.low)
        count = 1
        if is_joined:
            count = max(abs(int(x1) - int(x0)), abs(int(y1) - int(y0)), 1)
        for i in range(1, count + 1):
            share = i / count
            column, row = int(x0 + (x1 - x0) * share), top - int(y0 + (y1 - y0) * share)
            if i == count:
                column, row = int(x1), top - int(y1)
            cell = row // up * columns + column // across
            found[cell] = found.get(cell, 0) | bits[column % across][row % up]
        x0, y0 = x1, y1
    return _cut(found, line.dash, job) if line.dash else found


def _cut(dots: Dots, dash: int, job: PlotJob) -> Dots:
    """The dots that the pattern of a dash leaves."""
    base = 0 if job.ascii else _BRAILLE
    cells = [chr(base + dots[i]) if i in dots else " " for i in range(job.width * job.height)]
    rows = ["".join(cells[i : i + job.width]) for i in range(0, len(cells), job.width)]
    left = "".join(dashed(rows, dash, is_ascii=job.ascii))
    return {i: ord(one) - base for i, one in enumerate(left) if one != " "}


def _kept_dots(line: PlotLine, job: PlotJob) -> Dots:
    """The dots of a line, or those that were made of the same values on the same canvas."""
    place = _Place(
        id(line.x), id(line.y), line.dash, job.width, job.height, job.x, job.y, job.ascii
    )
    known = _kept.pop(place, None)
    if known is None or known[0].x is not line.x or known[0].y is not line.y:
        known = line, _dots(line, job)
    _kept[place] = known
    if len(_kept) > MOST_KEPT:
        del _kept[next(iter(_kept))]
    return known[1]


def _shade(line: PlotLine, job: PlotJob, texts: list[str], tones: list[str]) -> None:
    """Cells between the low and the high edge of a band, which lies under all that comes later."""
    for column in range(job.width):
        place = job.x.low + (column + 0.5) / job.width * job.x.span
        edges = _edges(line, place)
        if edges is None:
            continue
        levels = [min(max(y, job.y.low), job.y.high) - job.y.low for y in edges]
        rows = [job.height - 1 - int(y / job.y.span * (job.height - 1e-9)) for y in levels]
        for row in range(max(0, rows[1]), min(rows[0], job.height - 1) + 1):
            cell = row * job.width + column
            texts[cell], tones[cell] = ":" if job.ascii else "\u2591", line.tone


def _edges(line: PlotLine, place: float) -> tuple[float, float] | None:
    """The low and the high edge of a band at a place; None beside it and where it has a gap."""
    i = bisect_left(line.x, place)
    if i == len(line.x) or (i == 0 and line.x[0] > place):
        return None
    before = max(0, i - 1)
    span = line.x[i] - line.x[before]
    share = (place - line.x[before]) / span if span > 0 else 1.0
    low = line.low[before] + (line.low[i] - line.low[before]) * share
    high = line.high[before] + (line.high[i] - line.high[before]) * share
    return (low, high) if math.isfinite(low + high) else None


def _lay_letters(texts: list[str], tones: list[str], job: PlotJob) -> None:
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
            cell = row * job.width + column
            texts[cell], tones[cell] = line.letter, line.tone


def _runs(texts: list[str], tones: list[str]) -> tuple[CellRun, ...]:
    runs: list[CellRun] = []
    start = 0
    for end in range(1, len(texts) + 1):
        if end == len(texts) or tones[end] != tones[start]:
            runs.append(CellRun("".join(texts[start:end]), tones[start]))
            start = end
    return tuple(runs)
