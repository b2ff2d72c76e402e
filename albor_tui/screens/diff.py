"""Two or more runs side by side: the verdict, the curves over each other, and what differs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Container
from textual.content import Content
from textual.widgets import Static

from albor_core.run.errors import AlborError
from albor_core.store.diff.compare import MOST_RUNS, is_at_work
from albor_tui.look import glyphs
from albor_tui.look.run_colours import RUN_TONES, RunStyle
from albor_tui.messages import DiffReady
from albor_tui.model.selection import RunSelection
from albor_tui.screens.base.metric_choice import MetricRound, choice_note
from albor_tui.screens.base.polling_screen import PollingScreen
from albor_tui.screens.charts.window_curves import Window, WindowCurves, WindowRead
from albor_tui.widgets.base import styled
from albor_tui.widgets.chart.chart import Chart, ChartData
from albor_tui.widgets.chart.curves import is_measured
from albor_tui.widgets.chart.data import Trace
from albor_tui.widgets.chart_grid.board import margins
from albor_tui.widgets.diff_panels import (
    SECTIONS,
    ChangesPanel,
    DiffPanel,
    MetricsPanel,
    ReachPanel,
    VerdictPanel,
    legend,
    ranked,
    run_style,
    why_of_all,
)
from albor_tui.widgets.key_bar import KeyBar
from albor_tui.widgets.status_bar import StatusBar, TopBar

_NOTHING = "these runs have no metric in common"
CHANGES_ROWS = 11  # at least so many for what differs, where it is needed


class DiffScreen(PollingScreen):
    """Compares runs, and again whenever one of them may have moved."""

    PERIOD_S = 5.0
    BINDINGS = [
        Binding("escape,q,backspace", "back", "Back", tooltip="Back to the list"),
        Binding("m", "metric", "Metric", tooltip="Judge by the next metric, also the next time"),
        Binding("r", "reference", "Reference", tooltip="Compare with the next run instead"),
        Binding("p", "params", "Params", tooltip="What differs, of all runs that were selected"),
        Binding("z", "zoom", "Zoom", tooltip="The focused panel alone, and back"),
    ]

    def __init__(self, run_ids: tuple[str, ...], names: Mapping[str, str]) -> None:
        super().__init__()
        shown, left_out = run_ids[:MOST_RUNS], run_ids[MOST_RUNS:]
        self.selection = RunSelection(shown, cursor=shown[0])  # what the others are compared with
        self._left_out = left_out
        self._names = names
        self._document: dict[str, Any] | None = None
        self._metric: str | None = None  # None: the one of their experiment, or that stands for all
        self._window: Window = (
            None,
            None,
        )  # steps of the curves; None: from the first, to the last
        self._round = MetricRound()
        self._choices = 0

    def compose(self) -> ComposeResult:
        names = " / ".join(self._names.get(i, i) for i in self.selection.listed)
        if self._left_out:
            names = (
                f"{len(self.selection.listed)} runs, {len(self._left_out)} more left out: {names}"
            )
        yield TopBar("runs", "diff", names)
        yield VerdictPanel(id="verdict")
        yield Static(id="legend", markup=False)
        with Container(id="diff-body"):
            yield Chart("loss", id="overlay")
            yield MetricsPanel(id="metrics")
            yield ReachPanel(id="reach")
            yield ChangesPanel(id="changes")
        yield StatusBar()
        yield KeyBar()

    def on_mount(self) -> None:
        self.query_one("#legend").display = False
        chart = self.query_one("#overlay", Chart)
        chart.brings_finer = True
        chart.focus()
        super().on_mount()

    @on(Chart.Looked)
    def zoom_in(self, message: Chart.Looked) -> None:
        """A narrower window of the curves has steps of its own."""
        window = margins(message.chart.steps_shown)
        if window != self._window:
            self._window = window
            self.poll_now()

    def follow(self) -> None:
        seen: dict[str, Any] | None = None
        finer = WindowCurves(self.source)
        for _ in self.ticking():
            try:
                document = self.source.compare(self.selection.from_cursor, self._metric)
            except AlborError as error:
                self.post_message(DiffReady(None, error.message))
                continue
            runs = [{**run, "is_at_work": is_at_work(run)} for run in document["runs"]]
            read = finer.read(runs, str(document["metric"]), self._window)
            document = {**document, "runs": runs, "finer": read}
            if document != seen:
                seen = document
                self.post_message(DiffReady(document))
        finer.close()

    @on(DiffReady)
    def show_diff(self, message: DiffReady) -> None:
        if message.document is None:
            self.show_message(message.problem, "$error")
            self.query_one(VerdictPanel).show_problem(message.problem)
            return
        if self._metric not in (None, message.document["metric"]):
            return  # of the one before, which another key has replaced since
        read = message.document["runs"]
        styles = self.cockpit.colours.styles(
            [(run["id"], str(run.get("experiment") or "")) for run in read]
        )
        runs = [
            {
                **run,
                "name": self._names.get(run["id"]) or run.get("name"),
                "style": styles[run["id"]],
            }
            for run in read
        ]
        self._document = document = {**message.document, "runs": runs}
        self._choices = self._round.learn(self._curves())
        for panel in self.query(DiffPanel):
            panel.document = document
        self._share_room()
        self._draw()
        self.refresh_bindings()

    def on_resize(self) -> None:
        self._share_room()
        self.call_after_refresh(self._draw)  # its legend is as wide as the chart

    def _share_room(self) -> None:
        """If all differences fit, give the rest of the height to the curves."""
        body = self.query_one("#diff-body")
        if self._document is not None:
            verdicts, most = len(self._document["verdicts"]), max(5, self.size.height // 3)
            lines = 3 if verdicts == 1 else verdicts
            if verdicts > 1 and why_of_all(self._document):
                lines = 1 + bool(ranked(self._document))
            self.query_one("#verdict").styles.height = 2 + min(lines, most)
        if self._document is None or self.has_class("-narrow") or self.has_class("-short"):
            body.styles.grid_rows = None
            return
        differing = sum(len(self._document.get(section) or ()) for section in SECTIONS)
        differing += bool(self._document.get("unrecorded"))
        most = max(CHANGES_ROWS, self.size.height // 3)
        body.styles.grid_rows = f"1fr 6 {min(max(differing, 1) + 3, most)}"

    def _draw(self) -> None:
        if self._document is None:
            return
        curves = self._curves()
        chart = self.query_one("#overlay", Chart)
        if not curves:
            chart.border_title = Content.styled("curves", "bold $ink")
            chart.data = ChartData(empty=_NOTHING)
            return
        key = self._shown_metric(curves)
        runs = self._document["runs"]
        styles = [run_style(self._document, index) for index in range(len(runs))]
        names = {
            style.letter: f"{style.letter} {run.get('name') or run['id']}"
            for style, run in zip(styles, runs, strict=True)
        }
        read = self._document.get("finer") or WindowRead()
        found = curves[key] if read.key != key else read.over(curves[key], runs)
        drawn = overlay(found, styles, key)
        chart.data = replace(drawn, extent=_extent(curves[key]), names=names)
        title, rows = Content.styled(f"{key}  ", "bold $ink"), self.query_one("#legend", Static)
        room = max(10, chart.size.width - title.cell_length - 6)
        named = legend(self._document, room)
        rows.display = len(named) > 1  # more than the chart's title holds
        if rows.display:
            rows.update(styled.rows(legend(self._document, max(10, self.size.width - 4))))
        chart.border_title = Content.assemble(title, "" if rows.display else named[0])

    def _curves(self) -> dict[str, Any]:
        """The curves to overlay, by metric."""
        curves: dict[str, Any] = (self._document or {}).get("curves") or {}
        return {key: found for key, found in curves.items() if any(c["steps"] for c in found)}

    def shows_key(self, action: str) -> bool:
        return action != "metric" or self._choices > 1

    def _shown_metric(self, curves: Mapping[str, Any]) -> str:
        wanted = self._metric or str((self._document or {}).get("metric"))
        return wanted if wanted in curves else next(iter(curves))

    def action_reference(self) -> None:
        """The next run comes first, and the others are compared with it."""
        self.selection = self.selection.turned()
        name = self._names.get(self.selection.cursor, self.selection.cursor)
        self.show_message(f"the others are compared with {name}", "$ink-muted")
        self.poll_now()

    def action_params(self) -> None:
        """The params of all runs, also of those that no letter is left for."""
        if self._document is None:
            return
        from albor_tui.screens.compare import CompareScreen

        runs = (*self.selection.from_cursor, *self._left_out)
        metric, better = str(self._document["metric"]), self._document.get("direction")
        self.app.push_screen(CompareScreen(runs, self._names, metric, better))

    def action_metric(self) -> None:
        """The curves at once, the verdict as soon as it is known. From now on the runs of these
        experiments are judged by it everywhere.
        """
        curves = self._curves()
        if self._choices < 2 or not curves or self._document is None:
            return
        before = self._metric or self._shown_metric(curves)
        self._metric = mine = self._round.after(before)
        runs = self._document["runs"]
        experiments = [*dict.fromkeys(str(run.get("experiment") or "") for run in runs)]
        for experiment in experiments:
            self.cockpit.views.set_metric(experiment, mine)
        said = choice_note(
            experiments, mine, before=before, way_back=self._round.way_back(before, mine)
        )
        self.show_message(said, "$ink-muted")
        for panel in (self.query_one(VerdictPanel), self.query_one(ReachPanel)):
            panel.document = None  # until it is known what they say of this metric
        self._draw()
        self.poll_now()


def overlay(curves: list[dict[str, Any]], styles: Sequence[RunStyle], key: str = "") -> ChartData:
    """One line per run, the first on top: it is what the others are compared with. Where there are
    more than colours, or none that count, each has its letter on it."""
    lines = []
    is_lettered = len(curves) > len(RUN_TONES) or glyphs.current.is_ascii
    for curve, style in zip(curves, styles, strict=True):
        steps = tuple(float(s) for s in curve["steps"])
        if steps:
            line = Trace(
                style.tone,
                steps,
                _values(curve["mean"]),
                _values(curve.get("min") or ()),
                _values(curve.get("max") or ()),
                label=style.letter,
                letter=style.letter if is_lettered else "",
                dash=style.dash,
                is_noisy=bool(key) and is_measured(key),
            )
            lines.append(line)
    return ChartData(tuple(reversed(lines)), is_growing=False, subject=key)


def _extent(curves: Sequence[Mapping[str, Any]]) -> tuple[float, float] | None:
    """The first and the last step of curves, whatever window of them is drawn."""
    ends = [float(step) for curve in curves for step in (curve["steps"][:1] + curve["steps"][-1:])]
    return (min(ends), max(ends)) if ends else None


def _values(values: Sequence[float | None]) -> tuple[float, ...]:
    return tuple(math.nan if v is None else float(v) for v in values)
