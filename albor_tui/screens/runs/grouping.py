"""Runs in groups by the value of a column: a heading for each, with what it says of them. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from textual.content import Content

from albor_core.feed.runs.cells import RunCells
from albor_core.feed.runs.column_values import UNREAD, column_values
from albor_core.feed.view.run_view import LOADING, RunView
from albor_core.feed.workspace.groups import RunGroup, group_runs
from albor_core.run.status import SILENT, worst_status
from albor_core.run.values.lenient import real
from albor_core.store.query.group import Band, band
from albor_tui.look import glyphs
from albor_tui.look.digits import NumberFormat, number_format
from albor_tui.look.themes import STATE_TONE
from albor_tui.screens.runs.order import better_side
from albor_tui.widgets.base import styled
from albor_tui.widgets.run_columns import BUILT_IN
from albor_tui.widgets.run_list.lines import GroupLine, GroupLines

MOST_PARAMS = 8  # of those, in turn; the chooser has all
NOT_READ = f"{LOADING} "  # a label that no value of a run is
_NOISE = 1e-9  # of a mean: what adding up leaves of a spread of nothing
_PLUS_MINUS = "\u00b1"


def column_title(key: str) -> str:
    """What a group is called by its column."""
    return BUILT_IN[key].title if key in BUILT_IN else key


def grouped(
    rows: Sequence[RunView],
    key: str,
    cells: RunCells,
    *,
    metric: str = "",
    own: Sequence[str] = (),
    sort: str = "",
    is_falling: bool = False,
) -> tuple[tuple[RunView, ...], GroupLines]:
    """The same rows with those of a group together, and the headings, all folded: with the mean of
    the metric, and of the user's `own` columns that are figures. The groups stand in the order of
    their values, or as `sort` says of their mean metrics ("mean") or their first runs ("first").
    """
    values = column_values(rows, key, cells)
    for run, value in values.items():
        if value is UNREAD:
            values[run] = NOT_READ
    others = [name for name in own if name not in {metric, key, *cells.params}]
    figures = {name: _figures(rows, name, cells) for name in (metric, *others) if name}
    by_id = {view.id: view for view in rows}
    found = group_runs(
        [*by_id],
        values,
        figures.get(metric, {}),
        {view.id: _word(view) for view in rows},
    )
    place = {view.id: at for at, view in enumerate(rows)} if sort == "first" else {}
    if sort == "first":
        found = tuple(sorted(found, key=lambda group: place[group.runs[0]]))
    elif sort == "mean":
        found = tuple(sorted(found, key=lambda group: _place_by_mean(group, is_falling)))
    found = tuple(sorted(found, key=lambda group: group.label == NOT_READ))
    texts = _Texts(found, figures, metric, better_side(metric, rows))
    lines, arranged = [], list[RunView]()
    for at, group in enumerate(found):
        views = [by_id[run] for run in group.runs]
        cells_of = texts.cells(at, _states(views))
        lines.append(GroupLine(group.label.strip(), len(arranged), len(views), True, cells_of))
        arranged += views
    return tuple(arranged), GroupLines((column_title(key), *texts.titles), tuple(lines))


def _place_by_mean(group: RunGroup, is_falling: bool) -> tuple[bool, float]:
    mean = group.band.mean
    return mean is None, 0.0 if mean is None else -mean if is_falling else mean


def _figures(rows: Sequence[RunView], key: str, cells: RunCells) -> Mapping[str, float | None]:
    return {run: _number(value) for run, value in column_values(rows, key, cells).items()}


class _Texts:
    """What the headings say of the figures of their groups, each figure written alike."""

    def __init__(
        self,
        groups: Sequence[RunGroup],
        figures: Mapping[str, Mapping[str, float | None]],
        metric: str,
        better: str,
    ) -> None:
        self._groups, self._bands = groups, list[tuple[str, list[Band]]]()
        for key, known in figures.items():
            bands = [
                one.band if key == metric else band(known.get(run) for run in one.runs)
                for one in groups
            ]
            if key == metric or any(one.n or one.nonfinite for one in bands):
                self._bands.append((key, bands))
        self._formats = {key: _format_of(bands, key) for key, bands in self._bands}
        self._metric = metric if metric in figures else ""
        means = [one.band.mean for one in groups if one.band.mean is not None]
        best = {"min": min, "max": max}.get(better)
        self._best = best(means) if best is not None and means and self._metric else None

    @property
    def titles(self) -> tuple[str, ...]:
        own = [column_title(key) for key, _ in self._bands if key != self._metric]
        metric = (column_title(self._metric),) if self._metric else ()
        delta = ("vs best",) if self._best is not None else ()
        return ("n", *metric, *delta, "state", *own)

    def cells(self, at: int, states: Content) -> tuple[Content, ...]:
        """The cells of a heading, one for each title."""
        found = [Content.styled(f"{len(self._groups[at].runs):,}", "$ink-muted")]
        others: list[Content] = []
        for key, bands in self._bands:
            tone = "$ink" if key == self._metric else "$ink-muted"
            cell = _band(bands[at], self._formats[key], tone)
            (found if key == self._metric else others).append(cell)
            if key == self._metric and self._best is not None:
                found.append(self._delta(bands[at].mean))
        return (*found, states, *others)

    def _delta(self, mean: float | None) -> Content:
        if mean is None or self._best is None:
            return Content.styled(glyphs.current.missing, "$ink-faint")
        if mean == self._best:
            return Content.styled("best", "$success")
        shape = self._formats[self._metric]
        far = mean - self._best
        return Content.styled(f"{'+' if far > 0 else ''}{shape.text(far)}", "$ink-muted")


def _format_of(bands: Sequence[Band], key: str) -> NumberFormat:
    """Means are told apart, and a spread has two digits at least."""
    shape = number_format((one.mean for one in bands), key)
    spreads = [s for one in bands if (s := one.std) and s > _NOISE * abs(one.mean or 0.0)]
    if shape.has_exponent or shape.is_bytes or not spreads or not math.isfinite(min(spreads)):
        return shape
    digits = min(7, max(shape.digits, 1 - math.floor(math.log10(min(spreads)))))
    return NumberFormat(min(digits, shape.digits + 2))


def _band(one: Band, shape: NumberFormat, tone: str) -> Content:
    odd = f" {one.nonfinite} not finite" if one.nonfinite else ""
    if one.mean is None:
        return Content.styled(odd.strip() or glyphs.current.missing, "$error" if odd else tone)
    spread = ""
    if one.std is not None:
        sign = "+-" if glyphs.current.is_ascii else _PLUS_MINUS
        spread = f" {sign} {shape.text(one.std)}"
    return Content.assemble((shape.text(one.mean), tone), (spread, "$ink-muted"), (odd, "$error"))


def _states(views: Sequence[RunView]) -> Content:
    """How many runs are in which state, the worst first."""
    count, parts = Counter(map(_word, views)), []
    left = set(count)
    while left:
        word = worst_status(left)
        left.remove(word)
        tone = STATE_TONE.get("stalled" if word == SILENT else word, "$ink-muted")
        glyph = styled.state_glyph("stalled" if word == SILENT else word)
        parts.append(Content.assemble((f"{glyph} ", tone), (f"{count[word]:,}", "$ink")))
    return Content("  ").join(parts)


def _word(view: RunView) -> str:
    return SILENT if view.is_silent else view.status


def _number(value: object) -> float | None:
    return real(value) if isinstance(value, int | float) else None
