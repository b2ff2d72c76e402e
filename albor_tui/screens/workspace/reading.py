"""What a workspace reads of its runs: their states, curves, figures and params. One thread's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, NamedTuple

from albor_core.feed.runs.cells import CellReader, CellsWanted, RunCells
from albor_core.feed.runs.column_values import GROUPS, UNREAD, column_values, is_stored
from albor_core.feed.view.run_view import LOADING, RunView
from albor_core.feed.workspace.bands import CurveBand, curve_band
from albor_core.feed.workspace.groups import group_label
from albor_core.feed.workspace.my_metric import leading_metric
from albor_core.run.light_dataclass import dataclass
from albor_core.run.values.directions import Direction, direction, is_background
from albor_core.run.values.flatten import nested
from albor_core.run.values.lenient import is_number, real
from albor_core.store.query.group import IGNORED
from albor_core.store.rows.run_row import Param
from albor_core.store.rows.series import Series
from albor_tui.widgets.chart.curves import RULER_KEYS

if TYPE_CHECKING:
    from albor_tui.model.source import LiveSource

Curves = Mapping[str, Mapping[str, Series]]
"""By key, by run id."""
Bands = Mapping[str, Mapping[str, CurveBand]]
"""By key, by the label of a group."""
Groups = tuple[tuple[str, tuple[str, ...]], ...]
"""Labels and the runs of each."""
REMOVED = "removed"
MOST_STEPS = 400  # of a band
_MOST_PARAMS = 200  # to group by


class CurvesWindow(NamedTuple):
    """Which curves the charts on the screen need, and how finely."""

    keys: tuple[str, ...] = ()
    lo: int | None = None
    hi: int | None = None
    points: int = 200


@dataclass(frozen=True)
class WorkspaceQuestion:
    """What is to be known of the runs besides their states."""

    metric: str = ""  # "": the one that stands for most of them
    window: CurvesWindow = CurvesWindow()
    group: str = ""  # the column that runs are grouped by
    groups: Groups = ()  # whose bands are wanted


@dataclass(frozen=True)
class ParamChoice:
    """A param by which the runs differ, and its values as groups name them, the most frequent
    first."""

    key: str
    labels: tuple[str, ...]


@dataclass(frozen=True)
class WorkspaceFacts:
    """Everything that a workspace knows of its runs. None: not read yet."""

    views: tuple[RunView, ...] = ()
    keys: tuple[str, ...] | None = None
    curves: Curves = field(default_factory=dict)
    groups: Groups = ()
    bands: Bands = field(default_factory=dict)
    """Of `groups`."""
    metric: str = ""
    better: Direction | None = None
    figures: Mapping[str, float | None] | None = None
    """The newest value of the metric, by run id."""
    cells: RunCells = RunCells()
    """The values of the metric, and of the column that runs are grouped by."""
    params: Mapping[str, Mapping[str, Param]] | None = None
    """By run id."""
    problem: str = ""


class WorkspaceReader:
    """Follows some runs, named by views that may be old. Belongs to the thread that polls."""

    def __init__(self, source: LiveSource, views: Sequence[RunView]) -> None:
        self._views = {view.id: view for view in views}
        self._ids = tuple(self._views)
        self._overview, self._overlay = source.overview(), source.overlay()
        self._read_cells, self._cells = CellReader(self._overview.store), RunCells()
        self._params: dict[str, Mapping[str, Param]] = {}
        self._bands = BandCache()
        self._facts = WorkspaceFacts(views=tuple(views))

    def close(self) -> None:
        self._overview.close()
        self._overlay.close()

    def poll(self, question: WorkspaceQuestion) -> WorkspaceFacts:
        """What is known now of the runs; the same object as before without news."""
        wanted = frozenset(self._ids)
        seen = self._overview.poll(visible=wanted, wanted=wanted)
        found = {view.id: view for view in seen.rows if view.id in wanted}
        views = tuple(self._now(run, found.get(run), seen.is_complete) for run in self._ids)
        self._views = dict(zip(self._ids, views, strict=True))
        metric = question.metric or leading_metric(main_experiment(views), views, {})
        curves = self._curves(views, question.window)
        self._cells = self._now_in((metric, question.group), views)
        facts = WorkspaceFacts(
            views=views,
            keys=self._overlay.keys(views),
            curves=curves,
            groups=question.groups,
            bands=self._bands.bands(curves, question.groups),
            metric=metric,
            better=self._better(metric, views),
            figures=self._figures(metric, views),
            cells=self._cells,
            params=self._read_params(views),
            problem=seen.problem,
        )
        old = self._facts
        self._facts = old if facts == old else facts
        return self._facts

    def _curves(self, views: Sequence[RunView], window: CurvesWindow) -> Curves:
        if not window.keys:
            return {}
        keys = (*window.keys, *(key for key in RULER_KEYS if key not in window.keys))
        return self._overlay.curves(views, keys, lo=window.lo, hi=window.hi, points=window.points)

    def _now(self, run: str, found: RunView | None, is_complete: bool) -> RunView:
        """The present view of a run; of one that has gone the last one, as removed."""
        last = self._views[run]
        if found is None:
            return replace(last, status=REMOVED, is_live=False) if is_complete else last
        is_worse = found.status == LOADING != last.status  # the list knew it already
        return replace(found, status=last.status) if is_worse else found

    def _better(self, metric: str, views: Sequence[RunView]) -> Direction | None:
        declared = (
            one.better
            for view in views
            for one in view.metrics
            if one.name == metric and one.better
        )
        return next(declared, None) or direction(metric)

    def _now_in(self, columns: Sequence[str], views: Sequence[RunView]) -> RunCells:
        """The values of these columns, as the list reads them."""
        asked = tuple(key for key in dict.fromkeys(columns) if key and is_stored(key))
        wanted = CellsWanted(of_all=asked, visible=frozenset(self._ids))
        return self._read_cells.read(wanted, views) or self._cells

    def _figures(self, metric: str, views: Sequence[RunView]) -> Mapping[str, float | None] | None:
        if not metric:
            return {}
        found = column_values(views, metric, self._cells)
        if any(value is UNREAD for value in found.values()):
            return self._facts.figures if self._facts.metric == metric else None
        return {run: real(value) if is_number(value) else None for run, value in found.items()}

    def _read_params(self, views: Sequence[RunView]) -> Mapping[str, Mapping[str, Param]] | None:
        """Params are recorded once: those of a run that has some are not read again."""
        known = dict(self._params)
        for view in views:
            if not known.get(view.id) and (view.is_active or view.id not in known):
                run = view.id
                params = self._overview.store.ask(lambda reader, run=run: reader.params(run))  # type: ignore[misc]
                known[run] = params or {}
        if known != self._params:
            self._params = known
        return self._params


class BandCache:
    """The bands of groups, each made once of the same curves."""

    def __init__(self) -> None:
        self._made: dict[tuple[str, str], tuple[tuple[Series, ...], CurveBand]] = {}

    def bands(self, curves: Curves, groups: Groups) -> Bands:
        made: dict[tuple[str, str], tuple[tuple[Series, ...], CurveBand]] = {}
        found: dict[str, dict[str, CurveBand]] = {}
        for key, by_run in curves.items() if groups else ():
            if key in RULER_KEYS:
                continue
            for label, runs in groups:
                series = tuple(by_run[run] for run in runs if run in by_run)
                known = self._made.get((key, label))
                if known is None or [*map(id, known[0])] != [*map(id, series)]:
                    known = series, curve_band(series, most=MOST_STEPS)
                made[key, label] = known
                found.setdefault(key, {})[label] = known[1]
        self._made = made
        return found


def main_experiment(views: Sequence[RunView]) -> str:
    """The experiment of most of these runs."""
    found = Counter(view.experiment for view in views)
    return found.most_common(1)[0][0] if found else ""


def judging_metrics(facts: WorkspaceFacts) -> list[str]:
    """The metrics that the runs may be judged by: those of the models, in the order of the charts,
    or all where there are none."""
    keys = [*(facts.keys or ())]
    return [key for key in keys if not is_background(key)] or keys


def param_choices(
    params: Mapping[str, Mapping[str, Param]],
    runs: Sequence[str],
    views: Sequence[RunView] = (),
) -> list[ParamChoice]:
    """The params by which these runs differ, and what else a list is grouped by: params with
    few values first, seeds and names last but for those of which each run has its own.
    """
    whole = {run: _with_lists(params.get(run, {})) for run in runs}
    keys = dict.fromkeys(key for run in runs for key in whole[run] if is_stored(key))
    columns = {key: {run: whole[run].get(key) for run in runs} for key in keys}
    columns |= {key: column_values(views, key, RunCells()) for key in GROUPS if views}
    found = []
    for key, values in columns.items():
        labels = Counter(group_label(values.get(run)) for run in runs)
        if len(labels) > 1:
            found.append(ParamChoice(key, tuple(label for label, _ in labels.most_common())))
    ranks = {**dict.fromkeys(GROUPS, 1), **dict.fromkeys(IGNORED, 2)}
    found.sort(
        key=lambda one: (
            len(one.labels) == len(runs),
            ranks.get(one.key, 0),
            len(one.labels),
            one.key,
        )
    )
    return found[:_MOST_PARAMS]


def _with_lists(params: Mapping[str, Param]) -> dict[str, object]:
    """Params of which those that are items of a list, as `layers.0`, are the list."""
    found: dict[str, object] = {}
    items: dict[str, dict[str, Param]] = {}
    for key, value in params.items():
        name, dot, place = key.rpartition(".")
        if dot and place.isdigit() and f"{name}.0" in params:
            items.setdefault(name, {})[place] = value
        else:
            found[key] = value
    return found | {name: nested(parts) for name, parts in items.items()}
