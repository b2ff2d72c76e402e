"""The data and the view of a chart, as frozen values."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import field, replace

from albor_core.run.light_dataclass import dataclass
from albor_core.store.rows.ruler import Ruler
from albor_tui.widgets.chart.plot import PlotLine
from albor_tui.widgets.chart.ticks import Range

X_AXES = ("step", "tokens", "time")
# weight of a point per thousandth of the axis that it is away: the same look at every zoom and
# every spacing of points
SMOOTHINGS = (0.0, 0.8, 0.9, 0.95, 0.97, 0.98, 0.99, 0.995)
DEFAULT_SMOOTHING = 3
DEEPEST = 1e-9  # of the whole axis: beyond it neighbours are the same float


@dataclass(frozen=True)
class Trace:
    """One series of one run, over steps: the points or, in buckets, their mean, low and high.

    `tone` names the stylesheet class. Where it is noisy the points are drawn in the tone "raw" (or
    `tone` again where several runs share a chart) and a smoothed line in `tone` over them.
    """

    tone: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    label: str = ""
    nonfinite: tuple[int, ...] = ()
    is_noisy: bool = False
    letter: str = ""
    rulers: Mapping[str, Ruler] = field(default_factory=dict)
    unit: str = "step"  # of `x`; seconds where a run has no steps
    dash: int = 0  # see PlotLine
    is_band: bool = False  # what lies between low and high, shaded
    last: float | None = None  # the value logged last, where the last of `y` is a mean

    @property
    def newest(self) -> float:
        """The value that was logged last; NaN of a line without points."""
        if self.last is not None:
            return self.last
        return self.y[-1] if self.y else math.nan

    def nearest(self, step: float) -> int | None:
        """The place of the point at `step` or next to it."""
        if not self.x:
            return None
        i = bisect_left(self.x, step)
        near = [k for k in (i - 1, i) if 0 <= k < len(self.x)]
        return min(near, key=lambda k: abs(self.x[k] - step))

    def x_at(self, step: float, axis: str) -> float:
        """The position of a step on an axis; on the axis of steps if the other measure is
        unknown."""
        ruler = self.rulers.get(axis)
        return step if ruler is None else ruler.at(step)

    def step_at(self, x: float, axis: str) -> float:
        """The step at a place of an axis."""
        ruler = self.rulers.get(axis)
        return x if ruler is None else ruler.step_at(x)


@dataclass(frozen=True)
class Mark:
    """Something that happened at a step. Kinds: alert, warning, restart, rewind, checkpoint,
    phase."""

    kind: str
    step: float
    words: str


@dataclass(frozen=True)
class ChartData:
    """Lines from the bottom layer to the top; a growing chart reserves room at its right. Those
    whose label is `lifted` lie on top of all, and the others are faint.

    `extent` is the first and last step of the run where it reaches beyond the lines, so that
    several charts share an axis. Another `subject` is another picture: it is drawn at once.
    `names` are those of lines in full, by their labels, in the order of a legend; `about` is what
    a legend says besides.
    """

    lines: tuple[Trace | PlotLine, ...] = ()
    is_growing: bool = True
    empty: str = "loading"
    marks: tuple[Mark, ...] = ()
    extent: tuple[float, float] | None = None
    subject: str = ""
    lifted: str = ""
    names: Mapping[str, str] = field(default_factory=dict)
    about: Mapping[str, str] = field(default_factory=dict)

    @property
    def traces(self) -> tuple[Trace, ...]:
        """The lines; plain ones as they are."""
        return tuple(
            line
            if isinstance(line, Trace)
            else Trace(
                *(line.tone, line.x, line.y, line.low, line.high, line.label),
                letter=line.letter,
                dash=line.dash,
                is_band=line.is_band,
            )
            for line in self.lines
        )

    def draws_alike(self, other: ChartData) -> bool:
        """Whether it shows the lines of other data in the same way, with whatever points."""
        labels, others = ([line.label for line in one.lines] for one in (self, other))
        return self.lifted == other.lifted and labels == others

    @property
    def newest(self) -> float:
        """The last step known; 0 where there is none."""
        ends = [line.x[-1] for line in self.lines if line.x]
        return max(ends + ([self.extent[1]] if self.extent else []), default=0.0)

    @property
    def has_points(self) -> bool:
        """Whether there is anything finite to draw."""
        return any(math.isfinite(y) for line in self.lines for y in line.y)


@dataclass(frozen=True)
class Look:
    """The view of a chart. `window` is in units of the x axis, None the whole; `cursor`
    is a step. A robust y axis holds the first to the last hundredth of what is shown."""

    is_log: bool = False
    is_robust: bool = False
    axis: str = "step"
    smoothing: int = DEFAULT_SMOOTHING
    window: Range | None = None
    cursor: float | None = None
    is_pinned: bool = False  # the cursor stays when the mouse leaves

    @property
    def weight(self) -> float:
        return SMOOTHINGS[self.smoothing]

    def smoothed(self, by: int) -> Look:
        """More or less smoothing."""
        return replace(self, smoothing=min(max(self.smoothing + by, 0), len(SMOOTHINGS) - 1))

    def zoomed(self, whole: Range, factor: float, share: float) -> Look:
        """The window scaled by `factor` around the point at `share` (0..1) of it; the whole range
        once it is not narrower."""
        old = self.window or whole
        span = old.span * factor
        if span >= whole.span:
            return replace(self, window=None)
        if span < max(whole.span, abs(whole.high)) * DEEPEST:
            return self
        low = old.low + old.span * share - span * share
        return replace(self, window=_inside(low, span, whole))

    def following(self, before: float, newest: float, whole: Range) -> Look:
        """The window moved on by quarters where the newest point has just left it at the right;
        before, it was inside."""
        if self.window is None or not before <= self.window.high < newest:
            return self
        quarters = math.ceil((newest - self.window.high) / (self.window.span / 4))
        return self.panned(whole, quarters / 4)

    def panned(self, whole: Range, share: float) -> Look:
        """The window moved by `share` of its width, never beyond the whole."""
        if self.window is None:
            return self
        low = self.window.low + self.window.span * share
        return replace(self, window=_inside(low, self.window.span, whole))


def _inside(low: float, span: float, whole: Range) -> Range:
    span = min(span, whole.span)  # a window may be of a chart that goes farther
    low = min(max(low, whole.low), whole.high - span)
    return Range(low, low + span)
