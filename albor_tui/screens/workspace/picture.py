"""What the charts of a workspace show: one metric a chart, in it the lines of many runs. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from textual.content import Content

from albor_core.feed.view.run_view import RunView
from albor_core.feed.workspace.bands import CurveBand, curve_band
from albor_core.run.values.directions import Direction, direction
from albor_core.run.values.quantity import counted
from albor_core.store.query.group import band as spread_of
from albor_core.store.rows.series import Series
from albor_tui.look import glyphs
from albor_tui.screens.workspace.marks import LineMark
from albor_tui.screens.workspace.reading import Bands, Curves
from albor_tui.widgets.base import styled
from albor_tui.widgets.chart.chart import FINE_POINTS, FinerLines
from albor_tui.widgets.chart.curves import is_measured, trace
from albor_tui.widgets.chart.data import ChartData, Trace
from albor_tui.widgets.chart.reading import exact
from albor_tui.widgets.chart_grid.whole_run import WholeRun

if TYPE_CHECKING:
    from albor_core.feed.workspace.overlay import OverlayFeed

LABEL = 24  # cells of a name beside a value
_MOST_POINTS, _LEAST_POINTS = 100_000, 1_000  # in a file: of all lines, of each
_GOES_ON = 0.8  # of the steps of a run: a curve that went so far is still logged


class _Made(NamedTuple):
    source: object
    rest: tuple[object, ...]
    lines: tuple[Trace, ...]


class LineCache:
    """The lines that were made of curves, and how far each of them goes.

    A line is made once of a curve, whatever is hidden or lifted meanwhile: a chart of which no line
    changed equals the one before, and is not drawn again.
    """

    def __init__(
        self,
        whole: Mapping[str, WholeRun] = MappingProxyType({}),
        extents: Mapping[tuple[str, str], tuple[float, float]] = MappingProxyType({}),
    ) -> None:
        self._made: dict[tuple[str, str], _Made] = {}
        self._whole = dict(whole)
        self._extents = dict(extents)  # by key and run
        self._learned: dict[str, Mapping[str, Series]] = {}  # by run, the curves that came last

    def beside(self) -> LineCache:
        """One without lines that knows the same extents."""
        return LineCache(self._whole, self._extents)

    def lines(
        self,
        key: str,
        line: str,
        source: object,
        rest: tuple[object, ...],
        make: Callable[[], tuple[Trace, ...]],
    ) -> tuple[Trace, ...]:
        """What `make` makes of a curve, or made of the same one."""
        known = self._made.get((key, line))
        if known is None or known.source is not source or known.rest != rest:
            known = self._made[key, line] = _Made(source, rest, make())
        return known.lines

    def learn(self, views: Sequence[RunView], curves: Curves) -> None:
        """Know the extent of each run, and its other measures of the way."""
        for view in views:
            own = {key: found[view.id] for key, found in curves.items() if view.id in found}
            old = self._learned.get(view.id, {})
            if own and (own.keys() != old.keys() or any(own[key] is not old[key] for key in own)):
                self._learned[view.id] = own
                self.whole(view.id).learn(view, own)
                for key, curve in own.items():
                    if not curve.is_empty:
                        self._widen(key, view.id, curve.steps[0], curve.steps[-1])

    def _widen(self, key: str, run: str, first: float, last: float) -> None:
        low, high = self._extents.get((key, run), (first, last))
        self._extents[key, run] = min(low, first), max(high, last)

    def extent(self, key: str, run: str, *, does_grow: bool) -> tuple[float, float] | None:
        """The first and the last step that is known of a curve, also beyond a window; of one that
        still goes on to the present step of its run."""
        found, whole = self._extents.get((key, run)), self.whole(run).extent
        if found is None or whole is None or not does_grow or found[1] < whole[1] * _GOES_ON:
            return found
        return found[0], max(found[1], whole[1])

    def whole(self, run: str) -> WholeRun:
        """What is known of a run beyond a window."""
        return self._whole.setdefault(run, WholeRun())


@dataclass(frozen=True, eq=False)
class OverlayPicture:
    """The lines that are drawn, runs or groups, from the first of the legend on."""

    cache: LineCache
    views: Sequence[RunView] = ()
    keys: tuple[str, ...] = ()
    is_read: bool = False
    pins: tuple[str, ...] = ()
    curves: Curves = field(default_factory=dict)
    bands: Bands | None = None  # of groups; None: each run is drawn
    members: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The runs of each line that is drawn."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """By run, a name that no other one has."""
    names: Mapping[str, str] = field(default_factory=dict)
    """By run, its name in full."""
    marks: Mapping[str, LineMark] = field(default_factory=dict)
    """Of each run or group."""
    lifted: str = ""
    """The label of the line that lies before the others."""
    ways: Mapping[str, Direction | None] = field(default_factory=dict)
    """In which direction metrics are better, where that was declared."""
    metric: str = ""
    figures: Mapping[str, float | None] = field(default_factory=dict)
    """What the legend says of each line: the newest value of `metric`, of a group their mean."""
    growing: frozenset[str] = frozenset()
    """The runs that go on."""
    group: str = ""
    """The param that the lines are groups by."""
    _charts: dict[str, ChartData] = field(default_factory=dict)

    @property
    def subject(self) -> str:
        return "workspace"

    def chart(self, key: str) -> ChartData:
        if key not in self._charts:
            self._charts[key] = self._chart(key)
        return self._charts[key]

    def _chart(self, key: str) -> ChartData:
        if key not in self.curves:
            return ChartData(empty="loading", subject=key)
        lines = self._bands(key) if self.bands is not None else self._runs(key)
        return ChartData(
            lines,
            not self.growing.isdisjoint(self.curves[key]),
            extent=self._extent(key),
            subject=key,
            lifted=self.lifted,
            empty=self._why_blank(key),
            names=self._full_names(),
            about=self._spreads(key),
        )

    def _full_names(self) -> dict[str, str]:
        """The names of lines by their labels, in the order of the legend."""
        if self.bands is not None:
            return {group_name(self.group, line): line for line in self.members}
        runs = [run for runs in self.members.values() for run in runs]
        return {self.labels.get(run, run): self.names.get(run, run) for run in runs}

    def _spreads(self, key: str) -> dict[str, str]:
        """What the line of each group is, by its label."""
        if self.bands is None:
            return {}
        found = self.bands.get(key, {})
        return {
            group_name(self.group, line): _spread(found[line])
            for line in self.members
            if line in found
        }

    def finer(self, key: str, lo: int | None, hi: int | None) -> FinerLines:
        shown = frozenset(run for runs in self.members.values() for run in runs)
        views = [view for view in self.views if view.id in shown]
        most = _MOST_POINTS // max(len(views), 1)
        points = min(max(most, _LEAST_POINTS), FINE_POINTS)
        cache = self.cache.beside()

        def read(feed: OverlayFeed) -> tuple[Trace, ...]:
            curves = feed.curves(views, [key], lo=lo, hi=hi, points=points)
            bands = None
            if self.bands is not None:
                found = curves.get(key, {})
                bands = {
                    key: {
                        line: curve_band([found[run] for run in runs if run in found], most=points)
                        for line, runs in self.members.items()
                    }
                }
            return (
                replace(self, cache=cache, curves=curves, bands=bands, _charts={}).chart(key).traces
            )

        return read

    def _why_blank(self, key: str) -> str:
        """The text of a chart without lines: those it has may lie beside the window."""
        if not self.members:
            return "all hidden"
        return "no points at these steps" if self._extent(key) is not None else ""

    def _runs(self, key: str) -> tuple[Trace, ...]:
        found, lines = self.curves[key], []
        for line, runs in self.members.items():
            for run in runs:
                if run in found and line in self.marks:
                    lines.append(self._run(key, run, found[run], self.marks[line]))
        return tuple(reversed(lines))

    def _run(self, key: str, run: str, curve: Series, mark: LineMark) -> Trace:
        label, along = self.labels.get(run, run), self.cache.whole(run).rulers

        def make() -> tuple[Trace, ...]:
            made = trace(mark.tone, curve, label, is_noisy=is_measured(key), along=along)
            return (replace(made, dash=mark.dash, letter=mark.letter),)

        return self.cache.lines(key, run, curve, (mark, label, along), make)[0]

    def _bands(self, key: str) -> tuple[Trace, ...]:
        assert self.bands is not None
        found, spreads, means = self.bands.get(key, {}), [], []
        for line in self.members:
            band, mark = found.get(line), self.marks.get(line)
            if band is None or mark is None or not band.steps:
                continue

            newest = self._mean_newest(key, line)

            def make(
                band: CurveBand = band,
                mark: LineMark = mark,
                line: str = line,
                newest: float = newest,
            ) -> tuple[Trace, ...]:
                spread, mean = _band_lines(band, mark, group_name(self.group, line))
                return spread, replace(mean, last=newest)

            spread, mean = self.cache.lines(
                key, f"group {line}", band, (mark, self.group, newest), make
            )
            spreads.append(spread)
            means.append(mean)
        return (*reversed(spreads), *reversed(means))

    def _mean_newest(self, key: str, line: str) -> float:
        """The mean of what the runs of a group logged last, as its row in the legend has it."""
        known = self.curves.get(key, {})
        newest = spread_of(known[run].newest for run in self.members[line] if run in known)
        return math.nan if newest.mean is None else newest.mean

    def _extent(self, key: str) -> tuple[float, float] | None:
        """The first and the last step of the lines of a chart, whatever the window."""
        runs = [run for runs in self.members.values() for run in runs]
        found = [self.cache.extent(key, run, does_grow=run in self.growing) for run in runs]
        known = [one for one in found if one is not None]
        if not known:
            return None
        return min(low for low, _ in known), max(high for _, high in known)

    def key_curves(self, key: str) -> Sequence[Series]:
        found = self.curves.get(key, {})
        return [found[run] for runs in self.members.values() for run in runs if run in found]

    def title(self, key: str) -> Content:
        """The key, and the newest value of what is lifted, else the best newest value."""
        title = styled.text(key)
        found = {line.label: line for line in self.chart(key).traces if line.label and line.y}
        newest = {label: line.newest for label, line in found.items()}
        if key == self.metric:
            figures = {self._label(line): value for line, value in self.figures.items()}
            newest = {k: v if (own := figures.get(k)) is None else own for k, v in newest.items()}
        known = {label: value for label, value in newest.items() if math.isfinite(value)}
        if self.lifted in found:
            value = newest[self.lifted]
            words = (f"  {exact(value)}", "$ink" if math.isfinite(value) else "$error")
            return Content.assemble(title, words, styled.text(f" {self.lifted}", "$ink-muted"))
        way = self.ways.get(key) or direction(key)
        if way is None or len(known) < 2:
            return title
        best = (min if way == "min" else max)(known, key=lambda label: known[label])
        words = (f"  {exact(known[best])}", "$ink")
        return Content.assemble(title, words, styled.text(f" best, {best}", "$ink-muted"))

    def _label(self, line: str) -> str:
        """What a line is called in charts."""
        return self.labels.get(line, line) if self.bands is None else group_name(self.group, line)

    def why_empty(self, words: str) -> str:
        if not self.is_read:
            return "loading"
        if words:
            return f"none of {counted(len(self.keys), 'metric')} matches {words}"
        return "no metrics"


def _spread(band: CurveBand) -> str:
    """What the line of a group is, and of how many runs."""
    counts = sorted({count for count in band.n if count})
    if not counts:
        return ""
    few, many = counts[0], counts[-1]
    if many == 1:
        return "n 1"
    count = f"{many}" if few == many else f"{few} to {many}"
    return f"mean {glyphs.current.plus_minus} sd, n {count}"


def short_label(name: str) -> str:
    """A name that has room beside a value."""
    return styled.fit_middle(styled.text(name), LABEL).plain


def group_name(group: str, label: str) -> str:
    """A value by which runs are grouped, with its param, beside other values."""
    param = styled.fit_middle(styled.text(group.rpartition("/")[2] or group), LABEL // 2).plain
    return short_label(f"{param} {label}" if param else label)


def short_labels(names: Mapping[str, str]) -> dict[str, str]:
    """Names that have room beside a value, by run; those that begin and end alike are numbered."""
    labels: dict[str, str] = {}
    used: Counter[str] = Counter()
    for run, name in names.items():
        short = short_label(name)
        used[short] += 1
        labels[run] = short if used[short] == 1 else f"{short} {used[short]}"
    return labels


def _band_lines(band: CurveBand, mark: LineMark, label: str) -> tuple[Trace, ...]:
    """The band, and the mean that lies on it."""
    steps, mean = tuple(band.steps), tuple(band.mean)
    line = Trace(mark.tone, steps, mean, label=label, letter=mark.letter, dash=mark.dash)
    spread = Trace(mark.tone, steps, mean, tuple(band.low), tuple(band.high), label, is_band=True)
    return spread, line
