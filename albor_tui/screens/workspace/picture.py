"""What the charts of a workspace show: one metric a chart, in it the lines of many runs. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from textual.content import Content

from albor_core.feed.view.run_view import RunView
from albor_core.feed.workspace.bands import CurveBand
from albor_core.run.values.directions import Direction, direction
from albor_core.run.values.quantity import counted
from albor_core.store.query.group import band as spread_of
from albor_core.store.rows.series import Series
from albor_tui.screens.workspace.marks import LineMark
from albor_tui.screens.workspace.reading import Bands, Curves
from albor_tui.widgets.base import styled
from albor_tui.widgets.chart.curves import is_measured, trace
from albor_tui.widgets.chart.data import ChartData, Trace
from albor_tui.widgets.chart.reading import exact
from albor_tui.widgets.chart_grid.whole_run import WholeRun

LABEL = 24  # cells of a name beside a value


class _Made(NamedTuple):
    source: object
    rest: tuple[object, ...]
    lines: tuple[Trace, ...]


class LineCache:
    """The lines that were made of curves, and how far each run goes.

    A line is made once of a curve, whatever is hidden or lifted meanwhile: a chart of which no line
    changed equals the one before, and is not drawn again.
    """

    def __init__(self) -> None:
        self._made: dict[tuple[str, str], _Made] = {}
        self._whole: dict[str, WholeRun] = {}
        self._learned: dict[str, Mapping[str, Series]] = {}  # by run, the curves that came last

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

    def whole(self, run: str) -> WholeRun:
        """What is known of a run beyond a window."""
        return self._whole.setdefault(run, WholeRun())


@dataclass(frozen=True, eq=False)
class OverlayPicture:
    """The lines that are drawn, runs or groups, from the first of the legend on."""

    cache: LineCache
    keys: tuple[str, ...] = ()
    is_read: bool = False
    pins: tuple[str, ...] = ()
    curves: Curves = field(default_factory=dict)
    bands: Bands | None = None  # of groups; None: each run is drawn
    members: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The runs of each line that is drawn."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """By run, a name that no other one has."""
    marks: Mapping[str, LineMark] = field(default_factory=dict)
    """Of each run or group."""
    lifted: str = ""
    """The label of the line that lies before the others."""
    ways: Mapping[str, Direction | None] = field(default_factory=dict)
    """In which direction metrics are better, where that was declared."""
    is_growing: bool = False
    metric: str = ""
    figures: Mapping[str, float | None] = field(default_factory=dict)
    """What the legend says of each line: the newest value of `metric`, of a group their mean."""
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
            self.is_growing,
            extent=self._extent(),
            subject=key,
            lifted=self.lifted,
            empty="" if self.members else "all hidden",
        )

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
                spread, mean = _band_lines(band, mark, short_label(line))
                return spread, replace(mean, last=newest)

            spread, mean = self.cache.lines(key, f"group {line}", band, (mark, newest), make)
            spreads.append(spread)
            means.append(mean)
        return (*reversed(spreads), *reversed(means))

    def _mean_newest(self, key: str, line: str) -> float:
        """The mean of what the runs of a group logged last, as its row in the legend has it."""
        known = self.curves.get(key, {})
        newest = spread_of(known[run].newest for run in self.members[line] if run in known)
        return math.nan if newest.mean is None else newest.mean

    def _extent(self) -> tuple[float, float] | None:
        """The first and the last step of all that is drawn, whatever the window."""
        runs = [run for runs in self.members.values() for run in runs]
        known = [one for run in runs if (one := self.cache.whole(run).extent) is not None]
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
        return self.labels.get(line, line) if self.bands is None else short_label(line)

    def why_empty(self, words: str) -> str:
        if not self.is_read:
            return "loading"
        if words:
            return f"none of {counted(len(self.keys), 'metric')} matches {words}"
        return "no metrics"


def short_label(name: str) -> str:
    """A name that has room beside a value."""
    return styled.fit_middle(styled.text(name), LABEL).plain


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
