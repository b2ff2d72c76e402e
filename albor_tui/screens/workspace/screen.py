"""The workspace: many runs on one screen, their legend beside all their charts."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Container
from textual.content import Content
from textual.message import Message
from textual.timer import Timer
from textual.widgets import Static

from albor_core.feed.view.run_view import RunsView, RunView
from albor_core.feed.workspace.groups import RunGroup
from albor_core.run.values.quantity import counted
from albor_tui.look import glyphs
from albor_tui.messages import PinAsked
from albor_tui.model.workspace import MOST_RUNS, Workspace
from albor_tui.screens.base.metric_choice import MetricRound, choice_note
from albor_tui.screens.base.named_views import NamedViewScreen
from albor_tui.screens.workspace.group_choice import GroupChoice
from albor_tui.screens.workspace.legend import Legend, LegendLine
from albor_tui.screens.workspace.lines import drawn_groups, legend_of_groups, legend_of_runs
from albor_tui.screens.workspace.marks import LineMark, marks_of_groups, marks_of_runs
from albor_tui.screens.workspace.notes import about_x
from albor_tui.screens.workspace.picture import (
    LineCache,
    OverlayPicture,
    group_name,
    short_label,
    short_labels,
)
from albor_tui.screens.workspace.reading import (
    CurvesWindow,
    WorkspaceFacts,
    WorkspaceQuestion,
    WorkspaceReader,
    judging_metrics,
    main_experiment,
    param_choices,
)
from albor_tui.widgets.base import styled
from albor_tui.widgets.chart.chart import Chart
from albor_tui.widgets.chart_grid.grid import ChartGrid
from albor_tui.widgets.data.columns import Headed
from albor_tui.widgets.key_bar import KeyBar
from albor_tui.widgets.run_columns import column_key
from albor_tui.widgets.status_bar import StatusBar, TopBar

LIFT_S = 0.12  # that the cursor rests on a line before its curves are lifted
LEGEND_ROWS = 4, 0.4  # below the charts: the least, and the most of the height


@dataclass
class WorkspaceRead(Message):
    """What is known of the runs now."""

    facts: WorkspaceFacts

    def can_replace(self, message: Message) -> bool:
        return isinstance(message, WorkspaceRead)


class WorkspaceScreen(NamedViewScreen):
    """Draws some runs over each other in every chart. What is hidden, lifted or grouped is drawn
    from what is known; the thread is asked for curves alone."""

    SCREEN = "workspace"
    PERIOD_S = 2.0
    BINDINGS = [
        Binding("escape,q,backspace", "back", "Back", tooltip="Back to the list"),
        Binding("tab,shift+tab", "cross", "Charts", tooltip="Between the legend and the charts"),
        Binding("g", "group", "Group", tooltip="Group the runs by a param: mean and band of each"),
        Binding("m", "metric", "Metric", tooltip="Judge by the chosen chart's metric, or the next"),
        Binding("a", "all", "All", tooltip="Show every run"),
        Binding("o", "open", "Open", tooltip="Open the run under the cursor"),
        Binding("d", "diff", "Diff", tooltip="Compare the runs that are shown"),
        *(
            replace(key, action=f"chart({key.action!r})")
            for key in Chart.BINDINGS
            if isinstance(key, Binding) and not key.action.startswith("shift")
        ),
    ]

    def __init__(
        self, views: Sequence[RunView], names: Mapping[str, str], total: int | None = None
    ) -> None:
        super().__init__()
        self._first = tuple(views[:MOST_RUNS])
        self._names = dict(names)
        self._total = len(views) if total is None else total
        self._facts = WorkspaceFacts(views=self._first)
        self.state = Workspace.begin([view.id for view in self._first])
        self._question = WorkspaceQuestion()  # read by the thread: one reference, atomic
        self._groups: tuple[RunGroup, ...] = ()
        self._pins: tuple[str, ...] | None = None  # None: those of the runs
        self._cache = LineCache()
        self._round = MetricRound()
        self._lifting: Timer | None = None
        self._is_plain = False  # whether the list has no order of the user's
        self._to_order: str | None = None  # the metric that orders the legend once it is read

    def compose(self) -> ComposeResult:
        experiments = Counter(view.experiment for view in self._first if view.experiment)
        crumb = next(iter(experiments), "") if len(experiments) == 1 else ""
        yield TopBar("runs", "workspace", *([crumb] if crumb else []))
        yield Static(id="workspace-notes", markup=False)
        with Container(id="workspace-body"):
            yield Headed(Legend(id="legend-list"), id="workspace-legend")
            yield ChartGrid(id="workspace-charts", classes="-keys")
        yield StatusBar()
        yield KeyBar()

    def on_mount(self) -> None:
        self._adopt_view()
        mine = self.cockpit.views.metrics.get(main_experiment(self._first), "")
        self._question = replace(self._question, metric=mine)
        self._to_order = mine if self._is_plain else None
        self.keep_view(screen="workspace")
        self.query_one("#workspace-notes").display = False
        self.query_one(Legend).focus()
        self._draw()
        super().on_mount()

    def _adopt_view(self) -> None:
        kept = self.cockpit.views.current
        ids = [view.id for view in self._first]
        group = column_key(kept.group)
        self.state = Workspace.begin(ids, kept.hidden, group, total=self._total)
        self._is_plain = kept.sort in ("", "recent") and not kept.is_reversed
        self.query_one(ChartGrid).begin(kept.unfolded, kept.smoothing)

    def on_resize(self) -> None:
        self._share_room()

    # -- what is read ----------------------------------------------------------------------------

    def follow(self) -> None:
        reader = WorkspaceReader(self.source, self._first)
        last: WorkspaceFacts | None = None
        try:
            for _ in self.ticking():
                facts = reader.poll(self._question)
                if facts is not last:
                    last = facts
                    self.post_message(WorkspaceRead(facts))
        finally:
            reader.close()

    def _ask(self, question: WorkspaceQuestion) -> None:
        if question != self._question:
            self._question = question
            self.poll_now()

    @on(WorkspaceRead)
    def show_facts(self, message: WorkspaceRead) -> None:
        self._facts = message.facts
        self._cache.learn(message.facts.views, message.facts.curves)
        is_ordered = self._order_legend()
        self.query_one(TopBar).view = RunsView(rows=message.facts.views)
        self._draw()
        if is_ordered:
            self.query_one(Legend).begin_at_top()

    def _order_legend(self) -> bool:
        """The best run first: once, when the figures have come. Later ones move no line."""
        facts, wanted = self._facts, self._to_order
        if wanted is None or not facts.figures or facts.metric != (wanted or facts.metric):
            return False
        self._to_order = None
        if facts.better is not None:
            self.state = self.state.ordered_by(facts.figures, facts.better)
        return facts.better is not None

    @on(ChartGrid.Wanted)
    def want(self, message: ChartGrid.Wanted) -> None:
        message.stop()
        window = CurvesWindow(tuple(message.keys), message.lo, message.hi, message.points)
        self._ask(replace(self._question, window=window))

    @on(ChartGrid.SectionsChanged)
    def keep_sections(self, message: ChartGrid.SectionsChanged) -> None:
        self.keep_view(unfolded=message.unfolded)

    @on(ChartGrid.SmoothingChanged)
    def keep_smoothing(self, message: ChartGrid.SmoothingChanged) -> None:
        self.keep_view(smoothing=message.smoothing)

    # -- what is drawn ---------------------------------------------------------------------------

    def _draw(self) -> None:
        """Draw what is known now."""
        facts, state = self._facts, self.state
        self._groups = drawn_groups(state, facts)
        names = self._present_names()
        styles = self.cockpit.colours.styles(facts.views)
        has_colour = not self.app.no_color
        if self._groups:
            marks = marks_of_groups((one.label for one in self._groups), has_colour=has_colour)
            lines = legend_of_groups(state, facts, self._groups, marks)
        else:
            marks = marks_of_runs(styles, has_colour=has_colour)
            lines = legend_of_runs(state, facts, names, marks)
        self._show_legend(lines)
        self._show_charts(lines, marks, names)
        self._show_notes()
        self.refresh_bindings()

    def _present_names(self) -> dict[str, str]:
        """The names as the list gave them, of a run that was renamed since its new one."""
        old = {view.id: view.name for view in self._first}
        return {
            view.id: self._names.get(view.id, view.name or view.id)
            if view.name == old[view.id]
            else view.name or view.id
            for view in self._facts.views
        }

    def _show_legend(self, lines: Sequence[LegendLine]) -> None:
        legend, frame = self.query_one(Legend), self.query_one("#workspace-legend", Headed)
        legend.metric, legend.group = self._facts.metric, self.state.group if self._groups else ""
        arrows = {"min": glyphs.current.arrow_down, "max": glyphs.current.arrow_up}
        legend.way = arrows.get(self._facts.better or "", "")
        legend.show(lines)
        frame.tell_heads()
        by = f" by {self.state.group}" if self._groups else ""
        frame.border_title = Content.assemble(
            ("runs ", "bold $ink"), styled.text(f"{self.state.count}{by}", "$ink-muted")
        )
        self._share_room()

    def _show_charts(
        self, lines: Sequence[LegendLine], marks: Mapping[str, LineMark], names: Mapping[str, str]
    ) -> None:
        facts, state = self._facts, self.state
        wanted = tuple(
            (one.label, one.runs)
            for one in self._groups
            if not set(one.runs).isdisjoint(state.shown)
        )
        self._ask(replace(self._question, group=state.group, groups=wanted))
        shown = frozenset(state.shown)
        members = {
            one.key: tuple(run for run in state.listed if run in one.members and run in shown)
            for one in lines
            if one.is_shown
        }
        labels = short_labels(names)
        lifted = next((one for one in lines if state.lifted and one.members == state.lifted), None)
        self.query_one(ChartGrid).picture = OverlayPicture(
            cache=self._cache,
            views=facts.views,
            names=names,
            keys=facts.keys or (),
            is_read=facts.keys is not None,
            pins=self._pinned(),
            curves=facts.curves,
            bands=facts.bands if self._groups and facts.groups == wanted else None,
            members=members,
            labels=labels,
            marks=marks,
            lifted="" if lifted is None else self._label_of(lifted, labels),
            ways={facts.metric: facts.better},
            metric=facts.metric,
            figures=self._legend_figures(),
            growing=frozenset(v.id for v in facts.views if v.is_active and v.id in shown),
            group=state.group if self._groups else "",
        )

    def _label_of(self, line: LegendLine, labels: Mapping[str, str]) -> str:
        """The label of a line in the charts."""
        if line.is_group:
            return group_name(self.state.group, line.label)
        return labels.get(line.key) or short_label(line.key)

    def _legend_figures(self) -> Mapping[str, float | None]:
        """What the legend says of each line."""
        if self._groups:
            return {one.label: one.band.mean for one in self._groups}
        return self._facts.figures or {}

    def _show_notes(self) -> None:
        """What the reader of the charts has to know: x axes that differ, a store with a problem."""
        line = self.query_one("#workspace-notes", Static)
        shown = frozenset(self.state.shown)
        words = [about_x(self._facts.curves, shown, self._present_names()), self._facts.problem]
        text = "; ".join(word for word in words if word)
        line.display = bool(text)
        line.update(styled.text(text, "$warning" if self._facts.problem else "$ink-muted"))

    @property
    def chart_subject(self) -> str:
        by = f" by {self.state.group}" if self._groups else ""
        return f"{counted(len(self.state.shown), 'run')}{by}"

    def _share_room(self) -> None:
        """Below the charts the legend is as high as it needs, and leaves them most of the room."""
        frame, legend = self.query_one("#workspace-legend"), self.query_one(Legend)
        if not self.has_class("-narrow"):
            frame.styles.height = None
            return
        least, share = LEGEND_ROWS
        rows = max(least, min(legend.count(), math.floor(self.size.height * share) - 3))
        frame.styles.height = rows + 3

    # -- keys ------------------------------------------------------------------------------------

    def _change(self, state: Workspace) -> None:
        if state == self.state:
            return
        if state.hidden != self.state.hidden:
            self.keep_view(hidden=tuple(sorted(state.hidden)))
        if state.group != self.state.group:
            self.keep_view(group=state.group)
        self.state = state
        self._draw()

    @on(Legend.HideAsked)
    def toggle(self, message: Legend.HideAsked) -> None:
        self._change(self.state.toggled(message.line.members))

    @on(Legend.SoloAsked)
    def solo(self, message: Legend.SoloAsked) -> None:
        self._change(self.state.alone(message.line.members))

    def action_all(self) -> None:
        self.query_one(Legend).reset_pointer()
        self._change(self.state.with_all())

    @on(Legend.PointerMoved)
    def lift_soon(self) -> None:
        """Lift what the mouse or the cursor points at, once it rests."""
        if self._lifting is not None:
            self._lifting.stop()
        self._lifting = self.set_timer(LIFT_S, self._lift)

    def _lift(self) -> None:
        line = self.query_one(Legend).pointed
        self._change(self.state.lifting(frozenset() if line is None else line.members))

    def action_cross(self) -> None:
        """The focus from the legend to the charts, and back."""
        if self.maximized is None:
            legend = self.query_one(Legend)
            (self.query_one(ChartGrid) if legend.has_focus else legend).focus()

    async def action_chart(self, action: str) -> None:
        """The keys of a chart, also from the legend."""
        await self.query_one(ChartGrid).act(action)

    def action_group(self) -> None:
        if self._facts.params is None:
            self.show_message("params are loading", "$ink-muted")
            return
        choices = param_choices(self._facts.params, self.state.listed, self._facts.views)
        if not choices:
            self.show_message("these runs differ in nothing to group by", "$ink-muted")
            return

        def group(param: str | None) -> None:
            if param is not None:
                self._change(self.state.grouped_by(param))

        self.app.push_screen(GroupChoice(choices, self.state.group), group)

    def action_metric(self) -> None:
        """The metric of the chart that has the focus, from the legend the next one."""
        grid, experiments = self.query_one(ChartGrid), self._experiments
        count = self._round.learn(judging_metrics(self._facts))
        before = self._facts.metric
        mine = self._round.after(before)
        back = self._round.way_back(before, mine)
        if not self.query_one(Legend).has_focus and grid.current is not None:
            mine, count, back = grid.current, 2, "m on its chart"
        if not mine:
            self.show_message("nothing is known yet of what they log", "$ink-muted")
            return
        for experiment in experiments:
            self.cockpit.views.set_metric(experiment, mine)
        self._to_order = mine if self._is_plain else None
        self._ask(replace(self._question, metric=mine))
        said = choice_note(experiments, mine, before=before, way_back=back, is_only=count == 1)
        self.show_message(said, "$ink-muted")

    @property
    def _experiments(self) -> list[str]:
        return list(dict.fromkeys(view.experiment for view in self._first))

    @on(PinAsked)
    def pin(self, message: PinAsked) -> None:
        """A pinned chart is the first of this workspace; nothing is written to the runs."""
        message.stop()
        pins = self._pinned()
        is_pinned = message.metric in pins
        left = tuple(one for one in pins if one != message.metric)
        self._pins = left if is_pinned else (*left, message.metric)
        self._draw()

    def _pinned(self) -> tuple[str, ...]:
        if self._pins is not None:
            return self._pins
        of_runs = (one.name for v in self._facts.views for one in v.metrics if one.is_pinned)
        return tuple(dict.fromkeys(of_runs))

    def action_diff(self) -> None:
        shown = self.state.shown
        if len(shown) < 2:
            self.show_message("two runs at least are compared", "$warning")
            return
        from albor_tui.screens.diff import DiffScreen

        self.app.push_screen(DiffScreen(shown, self._present_names()))

    def action_open(self) -> None:
        line = self.query_one(Legend).current
        if line is None:
            return
        if line.is_group:
            count = counted(len(line.members), "run")
            self.show_message(f"{count} of a group: g, then not grouped", "$ink-muted")
            return
        view = next(view for view in self._facts.views if view.id in line.members)
        self.app.push_screen(self.cockpit.run_screen(view))

    def action_back(self) -> None:
        if self.maximized is None:
            self.keep_view(screen="runs")
        super().action_back()

    def key_word(self, action: str) -> str:
        if action == "cross" and not self.query_one(Legend).has_focus:
            return "Legend"
        if action == "hide":
            line = self.query_one(Legend).current
            return "Show" if line is not None and not line.is_shown else "Hide"
        return super().key_word(action)

    def shows_key(self, action: str) -> bool:
        if action == "all":
            return bool(self.state.solo or self.state.lifted) or len(self.state.shown) != len(
                self.state.listed
            )
        if action == "open":
            line = self.query_one(Legend).current
            return line is not None and not line.is_group
        if action == "diff":
            return len(self.state.shown) > 1
        return super().shows_key(action)
