"""One run, live, on its tabs. What does not depend on the tab stays: who the run is, how far it is,
its worst open alert, and the keys that act on it.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, cast

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Container
from textual.message import Message
from textual.worker import get_current_worker

from albor_core.feed.view.run_view import LOADING, RunView
from albor_core.run.errors import AlborError
from albor_core.run.values.clean import clean
from albor_tui.messages import CommandReport, CurvesChanged, LogArrived, PinAsked, RunChanged
from albor_tui.model.run_tabs import TABS
from albor_tui.model.source import RunFollower
from albor_tui.screens.base.run_actions import RunActionsScreen
from albor_tui.screens.charts.curves import MAX_POINTS
from albor_tui.screens.charts.overview_choice import keys_of
from albor_tui.screens.tabs.page import Page, PageRequest
from albor_tui.terminal.stylesheet import KeptStylesheet
from albor_tui.widgets.base.error_boundary import ErrorBoundary, words_of
from albor_tui.widgets.key_bar import KeyBar
from albor_tui.widgets.run.alerts import AlertBanner, ordered
from albor_tui.widgets.run.panels import Head
from albor_tui.widgets.status_bar import StatusBar, TopBar
from albor_tui.widgets.tab_bar import TabBar

if TYPE_CHECKING:
    from albor_core.feed.archive.archive import RunArchive
    from albor_core.store.rows.rows import AlertRow

_KEYS = tuple(tab.key for tab in TABS)
_LETTERS = [tab.stroke for tab in TABS if not tab.stroke.isdigit()]
CURVES_S = 2.0  # between two questions for curves; a chart may be three seconds old
ENDED_S = 2.0  # between two looks at a run that has ended


class RunScreen(ErrorBoundary, RunActionsScreen):
    """Follows one run until it is left. Acts on it only through its guard, or by a new one.

    Two threads: one polls what is alive, one answers the questions of the tab that is shown.
    """

    BINDINGS = [
        Binding("escape,q,backspace", "back", "Back", tooltip="Back to the list"),
        *(Binding(tab.stroke, f"tab({tab.key!r})", show=False) for tab in TABS),
        Binding(
            "right_square_bracket",
            "turn(1)",
            "Tab",
            tooltip=f"Next tab; 1 to 9, {' and '.join(_LETTERS)} choose one",
        ),
        Binding("left_square_bracket", "turn(-1)", "Tab back", show=False, tooltip="Tab before"),
        Binding("p", "pause", "Pause", tooltip="Pause or resume, through the guard"),
        Binding("c", "checkpoint", "Checkpoint", tooltip="Write a checkpoint now"),
        Binding("x", "stop", "Stop", tooltip="Stop; says how and asks first"),
        Binding("R", "retry", "Retry", tooltip="Start a dead run again; says how and asks first"),
        Binding("a", "acknowledge", "Ack", tooltip="Acknowledge an open alert; asks which"),
        Binding("A", "acknowledge_all", "Ack all", show=False, tooltip="All of them; asks first"),
        Binding("z", "zoom", "Zoom", tooltip="The focused panel alone, and back"),
    ]

    @property
    def chart_subject(self) -> str:
        return self._view.name or self._view.id

    def __init__(self, view: RunView, tab: str = "") -> None:
        super().__init__()
        self._view = view
        self._tab = tab if tab in _KEYS else _KEYS[0]
        self._pages: dict[str, Page] = {}  # those that were shown, by the keys of their tabs
        self._asked: tuple[Page, PageRequest] | None = None
        self._hurry = threading.Event()  # another question waits
        self._problem = ""  # what is damaged of the run
        self._has_news = False
        self._drawn: tuple[object, ...] | None = None  # what the curves show, and since when
        self._asked_s = -math.inf

    def has_picture(self) -> bool:
        return self._has_news and self.page.has_picture()

    @property
    def tab(self) -> str:
        """The key of the tab that is shown."""
        return self._tab

    @property
    def page(self) -> Page:
        """The page that is shown."""
        return self._pages[self._tab]

    def compose(self) -> ComposeResult:
        yield TopBar("runs", self._view.name or self._view.id)
        yield Head(id="head")
        yield TabBar(TABS, self._tab)
        yield AlertBanner(id="banner")
        with Container(id="pages"):
            yield self._new_page()
        yield StatusBar()
        yield KeyBar()

    def _new_page(self) -> Page:
        """The page of the tab; its module is loaded when it is first shown."""
        (tab,) = (tab for tab in TABS if tab.key == self._tab)
        kind: type[Page] = getattr(import_module(f"albor_tui.screens.tabs.{tab.key}"), tab.page)
        page = self._pages[tab.key] = kind(tab.key, self._page_view)
        return page

    def on_mount(self) -> None:
        self._show()
        self.page.post_message(self._now())
        self.page.post_message(Page.Shown())
        super().on_mount()

    # -- what the threads do -------------------------------------------------------------------

    def follow(self) -> None:
        follower = self.source.follow(self._view)
        try:
            for _ in self.ticking():
                for message in self._news(follower):  # together: they are one picture
                    self.post_message(message)
        finally:
            follower.close()

    def _news(self, follower: RunFollower) -> list[Message]:
        view = follower.poll()
        news: list[Message] = [] if view is None else [RunChanged(view, follower.problem)]
        if self._tab != "overview":  # its curves and its log are not visible
            self._drawn, self._asked_s = None, -math.inf
            return news
        known = view or self._view
        mark = (known.attempt, known.step, known.val_loss, known.terminal)
        if mark != self._drawn and time.monotonic() - self._asked_s >= CURVES_S:
            self._drawn, self._asked_s = mark, time.monotonic()
            news.append(
                CurvesChanged(known.id, follower.curves(keys_of(known.terminal), MAX_POINTS))
            )
        if lines := tuple(follower.log()):
            news.append(LogArrived(self._view.id, lines))
        return news

    @work(thread=True, exclusive=True, group="archive", exit_on_error=False)
    def _answer(self) -> None:
        """Put the question of the page that is shown until there is none."""
        worker = get_current_worker()
        archive: RunArchive | None = None
        last: tuple[object, ...] = ()
        try:
            while not worker.is_cancelled:
                self._hurry.clear()
                asked = self._asked
                if asked is None:
                    return
                if not self._uncovered.wait(1.0):
                    continue
                page, question = asked
                try:
                    archive = archive or self.source.archive(self._view)
                    answer = question.put(archive)
                    told = Page.Answered(question, answer, archive.problem)
                except Exception as error:  # it belongs on the page: see ErrorBoundary
                    told = Page.Answered(question, error=error)
                mark = (page, question, told.answer, told.problem)
                if mark != last or told.error is not None:
                    last = mark
                    page.post_message(told)
                if not getattr(told.answer, "is_partial", False):
                    self._hurry.wait(question.PERIOD_S)
        finally:
            if archive is not None:
                archive.close()

    def on_unmount(self) -> None:
        self._asked = None
        self._hurry.set()

    @on(Page.Asks)
    def take_question(self, message: Page.Asks) -> None:
        message.stop()
        if message.page is not self.page:
            return
        is_idle = self._asked is None
        question = message.question
        self._asked = None if question is None else (message.page, question)
        self._hurry.set()
        if is_idle and question is not None:
            self._answer()

    # -- what is shown -------------------------------------------------------------------------

    @on(RunChanged)
    async def show_run(self, message: RunChanged) -> None:
        self._view, self._problem, self._has_news = message.view, message.problem, True
        chosen = message.view.terminal
        every_s = self.PERIOD_S if chosen is None else chosen.refresh_ms / 1000
        self.period_s = every_s if message.view.is_active else ENDED_S
        self._show()
        await self.page.handle_now(self._now())

    @on(CurvesChanged)
    @on(LogArrived)
    async def pass_on(self, message: CurvesChanged | LogArrived) -> None:
        if (overview := self._pages.get("overview")) is not None:
            await overview.handle_now(
                CurvesChanged(message.run_id, message.curves)
                if isinstance(message, CurvesChanged)
                else LogArrived(message.run_id, message.lines)
            )

    def _now(self) -> RunChanged:
        return RunChanged(self._page_view, self._problem)

    @property
    def _page_view(self) -> RunView:
        """The run for its pages. What a list knows of it is not all: what that lacks is unread."""
        return self._view if self._has_news else replace(self._view, status=LOADING)

    def _show(self) -> None:
        head = self.query_one(Head)
        head.is_read, head.view = self._has_news, self._view
        banner = self.query_one(AlertBanner)
        banner.view = self._view
        self.set_class(banner.display, "-alerted")
        self.refresh_key_bar()

    async def action_tab(self, key: str) -> None:
        """Show a tab; the first time it is composed."""
        if key == self._tab:
            return
        if self.maximized is not None:
            self.minimize()
        self.page.display = False
        self._tab, self._asked = key, None
        self.cockpit.views.update(tab=key)
        self._hurry.set()
        self.poll_now()
        self.query_one(TabBar).current = key
        if (page := self._pages.get(key)) is not None:
            page.display = True
            cast("KeptStylesheet", self.app.stylesheet).freshen(page)
        else:
            await self.query_one("#pages", Container).mount(self._new_page())
        self.page.post_message(self._now())
        self.page.post_message(Page.Shown())

    async def action_turn(self, by: int) -> None:
        """The tab beside this one, round the end."""
        await self.action_tab(_KEYS[(_KEYS.index(self._tab) + by) % len(_KEYS)])

    @on(TabBar.Chosen)
    async def choose_tab(self, message: TabBar.Chosen) -> None:
        await self.action_tab(message.key)

    def broke(self, error: Exception) -> None:
        self.show_message(words_of(error), "$error")

    def places(self) -> Iterator[tuple[str, str, Callable[[], Awaitable[None]]]]:
        """The destinations of the palette: each tab and metric as text, with the function that goes
        there."""
        for tab in TABS:
            if tab.key == self._tab:
                continue
            yield f"Tab: {tab.name}", f"key {tab.stroke}", partial(self.action_tab, tab.key)
        known = [one.name for one in self._view.metrics]
        for page in self._pages.values():
            known += page.metrics()
        for name in dict.fromkeys(known):
            yield f"Metric: {clean(name)}", "its chart", partial(self._show_metric, name)

    async def _show_metric(self, name: str) -> None:
        await self.action_tab("charts")
        self.page.show_metric(name)

    # -- what is done to the run ---------------------------------------------------------------

    @on(PinAsked)
    def pin_metric(self, message: PinAsked) -> None:
        """Pin a metric, or take that back: it stands for the run wherever there is room for few."""
        pinned = [one.name for one in self._view.metrics if one.is_pinned]
        kind = "metric.unpin" if message.metric in pinned else "metric.pin"
        self.annotate([self._view], kind, message.metric)

    def acted_on(self) -> Sequence[RunView]:
        return [self._view]

    def shows_key(self, action: str) -> bool:
        if action in ("acknowledge", "acknowledge_all"):
            return self._view.alerts_open > 0
        return super().shows_key(action)

    def key_word(self, action: str) -> str:
        page = self._pages.get(self._tab)  # none while one is composed
        return (page and page.key_word(action)) or super().key_word(action)

    def _open_alerts(self) -> list[AlertRow]:
        return [alert for alert in ordered(self._view.alerts) if alert.is_open]

    def action_acknowledge(self) -> None:
        """The alert under the cursor of the tab, the only open one, or one from a list."""
        opened = self._open_alerts()
        focused = self.page.alert_at_cursor()
        if not opened:
            self.show_message("no open alert", "$ink-muted")
        elif focused in opened:
            self._acknowledge([focused])
        elif len(opened) == 1:
            self._acknowledge(opened)
        else:
            from albor_tui.screens.dialogs.alert_choice import AlertChoice

            self.app.push_screen(AlertChoice(tuple(opened)), self._chosen)

    def _chosen(self, alerts: tuple[AlertRow, ...] | None) -> None:
        if alerts is not None and len(alerts) > 1:
            self.action_acknowledge_all()
        elif alerts:
            self._acknowledge(alerts)

    def action_acknowledge_all(self) -> None:
        opened = self._open_alerts()
        if not opened:
            self.show_message("no open alert", "$ink-muted")
            return
        self.ask_to_acknowledge(len(opened), "the run", lambda: self._acknowledge(opened))

    def _acknowledge(self, alerts: Iterable[AlertRow]) -> None:
        self._write_acknowledgements(self._view, tuple(alert.id for alert in alerts))

    @work(thread=True, group="acknowledge", exit_on_error=False)
    def _write_acknowledgements(self, view: RunView, ids: tuple[str, ...]) -> None:
        name = view.name or view.id
        try:
            for alert_id in ids:
                self.source.acknowledge(view, alert_id)
        except (AlborError, OSError) as error:
            self.post_message(CommandReport(name, "ack", "refused", str(error)))
        else:
            done = ids[0] if len(ids) == 1 else f"{len(ids)} alerts"
            self.post_message(CommandReport(name, "ack", "done", done))
