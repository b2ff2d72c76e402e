"""What needs a person now: every entry, the worst first, with what stands behind it and the key
that helps."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Container
from textual.content import Content
from textual.widgets import Static

from albor_core.feed.attention.item import AttentionItem, AttentionList
from albor_core.feed.view.run_view import LOADING, RunView
from albor_core.run.errors import AlborError
from albor_core.store.rows.series import Series
from albor_tui.messages import EvidenceFound
from albor_tui.model.source import RunFollower
from albor_tui.screens.base.run_actions import MEANS, RunActionsScreen
from albor_tui.screens.charts.curves import preview_keys, single_chart
from albor_tui.screens.dialogs.confirm import ChoiceScreen
from albor_tui.widgets import attention_panels
from albor_tui.widgets.attention_panels import (
    AttentionDetail,
    AttentionHead,
    AttentionTable,
    EvidenceView,
    nothing,
    whose,
)
from albor_tui.widgets.base import styled
from albor_tui.widgets.base.line_list import LineList
from albor_tui.widgets.chart.chart import Chart
from albor_tui.widgets.key_bar import KeyBar
from albor_tui.widgets.status_bar import StatusBar, TopBar

AGAIN_S = 5.0  # between two looks at what stands behind the same entry
POINTS = 300
LEAST_ROWS, BODY_ROWS = 5, 12  # of the list with its frame; of what is below it
MUTES = (
    ("1", "3600", "1 hour"),
    ("8", "28800", "8 hours"),
    ("d", "86400", "a day"),
    ("w", "604800", "a week"),
)
ON_ITEMS = frozenset({"open", "acknowledge", "acknowledge_all", "mute", "log"})
ON_RUNS = frozenset({"open", "log", *MEANS})


class MuteScreen(ChoiceScreen):
    """For how long; enter is the first of the choices."""

    BINDINGS = [Binding("enter", "first", "1 hour"), Binding("n,escape,q", "leave", "No")]

    def action_first(self) -> None:
        self.dismiss(MUTES[0][1])


class AttentionScreen(RunActionsScreen):
    """Shows what the app knows of attention; its thread reads what stands behind one entry."""

    BINDINGS = [
        Binding("escape,q,backspace", "back", "Back", tooltip="To the runs, or where you were"),
        Binding("enter", "open", "Open", tooltip="Open the run of this entry"),
        Binding("R", "retry", "Retry", tooltip="Start a dead run again; says how and asks first"),
        Binding("x", "stop", "Stop", tooltip="Stop; says how and asks first"),
        Binding("p", "pause", "Pause", tooltip="Pause or resume, through the guard"),
        Binding("c", "checkpoint", "Save", tooltip="Write a checkpoint now"),
        Binding("a", "acknowledge", "Seen", tooltip="Say that you have seen this entry"),
        Binding("m", "mute", "Mute", tooltip="Leave it out for an hour, or longer"),
        Binding("l", "log", "Log", tooltip="The log of its run"),
        Binding("A", "acknowledge_all", "All seen", show=False,
                tooltip="Say that you have seen every listed entry; asks first"),
        Binding("o", "seen", "Seen too", show=False, tooltip="Show seen and muted entries too"),
        Binding("z", "zoom", "Zoom", show=False, tooltip="The focused panel alone, and back"),
    ]  # fmt: skip

    def __init__(self) -> None:
        super().__init__()
        self._found = AttentionList(is_complete=False)
        self._views: Mapping[str, RunView] = {}
        self._open_only = True
        self._asked: tuple[AttentionItem, RunView | None] | None = None  # read by the thread, whole
        self.behind: EvidenceFound | None = None
        self._titled: tuple[object, ...] = ()

    @property
    def current(self) -> AttentionItem | None:
        """The entry that the cursor stands on."""
        return self.query_one(AttentionTable).current

    def compose(self) -> ComposeResult:
        yield TopBar("runs", "attention")
        yield AttentionHead(id="attention-head")
        with Container(id="list"):
            yield AttentionTable(id="attention-table")
            yield Static(id="empty", markup=False)
        with Container(id="attention-body"):
            with Container(id="attention-left"):
                yield AttentionDetail(id="attention-detail")
                yield Chart(id="attention-chart")
            yield EvidenceView(id="attention-evidence")
        yield StatusBar()
        yield KeyBar()

    def on_mount(self) -> None:
        self.query_one(AttentionTable).focus()
        self.watch(self.app, "attention", self.show_attention, init=False)
        self.show_attention()
        super().on_mount()

    def on_unmount(self) -> None:
        super().on_unmount()
        self.desk.note_look()

    # -- what the thread does -------------------------------------------------------------------

    def follow(self) -> None:
        told: EvidenceFound | None = None
        at, follower = 0.0, None
        try:
            for _ in self.ticking():
                if self._asked is None:
                    continue
                item, view = self._asked
                is_new = told is None or told.item != item
                if not is_new and (item.is_open is False or time.monotonic() - at < AGAIN_S):
                    continue
                at = time.monotonic()
                if follower is not None and (view is None or follower[0] != view.id):
                    follower[1].close()
                    follower = None
                if view is not None and follower is None:
                    follower = self._follower(view)
                found = self._look_behind(item, view, None if follower is None else follower[1])
                if found != told:
                    told = found
                    self.post_message(found)
        finally:
            if follower is not None:
                follower[1].close()

    def _follower(self, view: RunView) -> tuple[str, RunFollower] | None:
        try:
            return view.id, self.source.follow(view)
        except AlborError:
            return None  # its folder is gone: the entry itself is all there is

    def _look_behind(
        self, item: AttentionItem, view: RunView | None, follower: RunFollower | None
    ) -> EvidenceFound:
        lines = self.desk.evidence(item)
        if follower is None:
            return EvidenceFound(item, lines, *_measured(self.desk.gpu_past(item)))
        mains = () if view is None else follower.main_metrics(view)
        wanted = (item.metric,) if item.metric else preview_keys(mains)
        curves = follower.curves(wanted, POINTS)
        key = next(iter(curves), "")
        return EvidenceFound(item, lines, key, curves.get(key))

    # -- what is shown --------------------------------------------------------------------------

    def runs_changed(self) -> None:
        self.show_attention()

    def show_attention(self) -> None:
        """Whatever the app knows now."""
        self._found, self._views = self.attention, self.cockpit.attended
        self.query_one(AttentionHead).found = self._found
        self._arrange()

    def _arrange(self) -> None:
        table = self.query_one(AttentionTable)
        shown = self._found.open if self._open_only else self._found.items
        self.show_empty(None if shown else self._nothing(), table)
        table.items = shown
        self._title(len(shown))
        self._share_room()
        self.show_entry()

    def _nothing(self) -> Content:
        names = {view.id: self.name_of(view) for view in self._views.values()}
        return nothing(self._found, names, len(self._found.items))

    def _title(self, shown: int) -> None:
        total = len(self._found.items)
        since = self._found.since_last_looked.sentence if self._found.is_complete else ""
        mark = (shown, total, since, self._open_only)
        if mark == self._titled:
            return
        self._titled = mark
        listing = self.query_one("#list")
        hidden = f"{total - shown} seen or muted" if total > shown else ""
        listing.border_title = styled.heading("now", hidden)
        words = f"since you last looked: {since}" if since else ""
        listing.border_subtitle = Content.assemble(styled.text(words, "$ink-muted"))

    def _share_room(self) -> None:
        """Make the list as high as its entries, as long as the part below fits."""
        listing, table = self.query_one("#list"), self.query_one(AttentionTable)
        if self.has_class("-empty"):
            listing.styles.height = None
            return
        most = max(LEAST_ROWS, self.size.height - 3 - max(BODY_ROWS, self.size.height // 2))
        listing.styles.height = min(max(table.count() + 2, LEAST_ROWS), most)

    def on_resize(self) -> None:
        self._share_room()

    @on(LineList.Moved)
    def show_entry(self) -> None:
        """The entry under the cursor; what stands behind it comes when it was read."""
        item = self.current
        view = None if item is None else self._views.get(item.run_id)
        detail = self.query_one(AttentionDetail)
        detail.item, detail.run, detail.helps = item, view, self._helps(item, view)
        is_same = item is not None and self._asked is not None and self._asked[0].id == item.id
        self._asked = None if item is None else (item, view)
        if not is_same:
            self._show_behind(None)
            self.poll_now()
        self.refresh_key_bar()

    def draw_offers(self) -> None:
        self.show_entry()

    def _helps(self, item: AttentionItem | None, view: RunView | None) -> str:
        """The effect of an entry's key now, which depends on the state of its run."""
        if item is None or self.cockpit.is_read_only:
            return ""
        if item.key == "a":
            return "you have seen it"
        if view is None:
            return ""
        action = next((name for name, key in _KEYS.items() if key == item.key), "")
        if not action:
            return ""
        offered = self.seems_offered(view, action)
        return f"{action}: it {offered.does}" if offered.is_possible else ""

    @on(EvidenceFound)
    def take_evidence(self, message: EvidenceFound) -> None:
        item = self.current
        if item is not None and message.item.id == item.id:
            self._show_behind(message)

    def _show_behind(self, found: EvidenceFound | None) -> None:
        self.behind = found
        item, evidence = self.current, self.query_one(EvidenceView)
        if found is None or item is None:
            evidence.tell((), LOADING if item is not None and item.path else "")
        else:
            evidence.tell(found.lines, _no_evidence(item))
        self._show_curve(found, item)

    def _show_curve(self, found: EvidenceFound | None, item: AttentionItem | None) -> None:
        """Show the curve as a chart if it fits, else within the detail."""
        chart, detail = self.query_one("#attention-chart", Chart), self.query_one(AttentionDetail)
        curve = None if found is None else found.curve
        view = None if item is None else self._views.get(item.run_id)
        is_drawn = curve is not None and not curve.is_empty and self.has_class("-high")
        chart.display = is_drawn
        values = () if curve is None or is_drawn else tuple(curve.mean)
        detail.past = ("" if found is None else found.metric, values)
        if is_drawn and found is not None:
            if str(chart.border_title) != found.metric:
                chart.border_title = Content.styled(found.metric, "bold $ink")
            shown = view or RunView(id="")
            chart.data = single_chart(shown, curve, "main")

    # -- what is done ---------------------------------------------------------------------------

    def acted_on(self) -> Sequence[RunView]:
        item = self.current
        view = None if item is None else self._views.get(item.run_id)
        return [] if view is None else [view]

    def shows_key(self, action: str) -> bool:
        item = self.current
        if action in ON_ITEMS and item is None:
            return False
        if action in ("open", "log") and not self.acted_on():
            return False
        if action in ("acknowledge", "mute") and item is not None and item.acked_by:
            return False
        return super().shows_key(action)

    def name_of(self, view: RunView) -> str:
        return view.name or view.id

    @on(LineList.Chosen)
    def action_open(self) -> None:
        self._open("")

    def action_log(self) -> None:
        self._open("logs")

    def _open(self, tab: str) -> None:
        views = self.acted_on()
        if views:
            self.app.push_screen(self.cockpit.run_screen(views[0], tab))
        elif self.current is not None:
            self.show_message("this entry is of no run", "$ink-muted")

    def ask(self, views: Sequence[RunView], action: str, decline: str = "no, leave it") -> None:
        if views:
            super().ask(views, action, decline)
        elif self.current is not None:
            self.show_message("this entry is of no run", "$ink-muted")

    def action_acknowledge(self) -> None:
        item = self.current
        if item is not None and not item.acked_by:
            self._mark("seen", (item,), self.desk.acknowledge)

    def action_acknowledge_all(self) -> None:
        items = tuple(item for item in self.query_one(AttentionTable).items if not item.acked_by)
        if items:
            self.ask_to_acknowledge(
                len(items),
                "their runs",
                lambda: self._mark("seen", items, self.desk.acknowledge),
                noun="entry",
            )

    def action_mute(self) -> None:
        item = self.current
        if item is None:
            return

        def mute(seconds: str | None) -> None:
            if seconds is not None:
                until = attention_panels.now_wall() + float(seconds)
                self._mark("mute", (item,), lambda one: self.desk.mute(one, until))

        question = Content.assemble(
            ("Mute ", "bold $ink"), styled.text(f"{item.word} {whose(item)}", "bold $accent"),
            ("?", "bold $ink"),
        )  # fmt: skip
        words = "It is left out of the list and of the count for so long. enter is 1 hour."
        self.app.push_screen(MuteScreen(question, words, MUTES), mute)

    def _mark(
        self, cmd: str, items: Sequence[AttentionItem], write: Callable[[AttentionItem], object]
    ) -> None:
        cockpit = self.cockpit

        def job() -> str:
            for item in items:
                write(item)
            cockpit.refresh_attention()
            return items[0].word if len(items) == 1 else f"{len(items)} entries"

        name = whose(items[0]) if len({whose(item) for item in items}) == 1 else "all"
        self.act(cmd, name, job)

    def action_seen(self) -> None:
        self._open_only = not self._open_only
        self._arrange()


_KEYS = {"retry": "R", "stop": "x", "pause": "p", "checkpoint": "c"}


def _no_evidence(item: AttentionItem) -> str:
    if not item.path:
        return "albor gpu shows all of the machine" if item.kind.startswith("gpu") else ""
    return "no log, no report and no stacks are kept of this run"


def _measured(found: tuple[str, Sequence[float]]) -> tuple[str, Series | None]:
    key, values = found
    if not values:
        return "", None
    steps = tuple(range(len(values)))
    return key, Series(key, steps, tuple(values), tuple(values), tuple(values), is_raw=True)
