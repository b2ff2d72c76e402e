"""What the tabs of the Run screen have in common.

A page is composed when it is first shown and does nothing while it is hidden. It draws the RunView
it is sent; for more than that it asks a question, a frozen value, which the screen's archive thread
puts for as long as the page is shown. Only an answer that differs from the one before comes back.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from types import NoneType
from typing import TYPE_CHECKING, ClassVar, Protocol

from textual import on
from textual.containers import Container
from textual.content import Content
from textual.message import Message
from textual.timer import Timer
from textual.widgets import Static

from albor_core.feed.attention.item import AttentionItem, AttentionList
from albor_core.feed.view.run_view import RunView
from albor_core.run.light_dataclass import dataclass
from albor_tui.messages import RunChanged
from albor_tui.terminal.stylesheet import LATER
from albor_tui.terminal.textual_private import dispatch_now
from albor_tui.widgets.base import styled
from albor_tui.widgets.base.error_boundary import ErrorBoundary, words_of

if TYPE_CHECKING:
    from albor_core.feed.archive.archive import RunArchive
    from albor_core.store.rows.rows import AlertRow


class PageRequest(Protocol):
    """A page's request for data of a run: a frozen value."""

    PERIOD_S: ClassVar[float | None]
    """How often it is put again; None: once."""

    def put(self, archive: RunArchive) -> object:
        """The answer, comparable with the one before; `is_partial` in it asks for more at once.
        Runs in the archive thread."""


class Page(ErrorBoundary, Container):
    """The base of a tab. Subclasses compose, and override `enter`, `show_view` and `take`."""

    DEFAULT_CLASSES = f"page -keys {LATER}"  # -keys: the key bar shows what this widget binds

    @dataclass
    class Asks(Message):
        """The page wants to follow the answer to another question; None: to none."""

        page: Page
        question: PageRequest | None

    @dataclass
    class Answered(Message):
        """The newest answer to a page's question, or why there is none."""

        question: PageRequest
        answer: object = None
        problem: str = ""  # why the answer may lack something
        error: Exception | None = None

        def can_replace(self, message: Message) -> bool:
            return isinstance(message, Page.Answered)

    class Shown(Message):
        """The page is on the screen now."""

    def __init__(self, name: str, view: RunView) -> None:
        super().__init__(id=f"page-{name}")
        self.view = view
        self.question: PageRequest | None = None
        self._is_answered = False
        self._excuse = Static(classes="excuse", markup=False)
        self._excuse.display = False
        self._broken_by: type = NoneType
        self._problem = self._flaw = ""  # of the answer, of the run; told while nothing is broken

    def enter(self) -> None:
        """The page is on the screen now: take the focus, say what is to be asked."""

    def show_view(self, view: RunView) -> None:
        """The run as it is now."""

    def has_picture(self) -> bool:
        """Whether what is drawn is worth the cockpit's first frame."""
        return True

    def show_answer(self, answer: object) -> None:
        """The answer to the page's question; one to a former question is not passed on."""

    @property
    def is_loading(self) -> bool:
        """Whether what the page lacks may still come: the run, or its first answer, is unread."""
        return self.view.is_loading or not self._is_answered

    def metrics(self) -> tuple[str, ...]:
        """The metrics that the page knows of."""
        return ()

    def show_metric(self, name: str) -> None:
        """Go to a metric, on a page that shows them."""

    def say_empty(self, empty: Static, words: Callable[[], Content]) -> None:
        """Say in `empty` why nothing is listed; `loading`, in a frame, while it may still come."""
        is_loading = self.is_loading
        empty.set_class(is_loading, "frame")
        empty.border_title = Content.styled(str(self.id).removeprefix("page-"), "bold $ink")
        empty.update(styled.loading() if is_loading else words())

    def key_word(self, action: str) -> str:
        """The present label of an action of the page; "" for the label of its binding."""
        return ""

    @property
    def troubles(self) -> tuple[AttentionItem, ...]:
        """Attention entries of the run, the worst first."""
        found: AttentionList = getattr(self.screen, "attention", AttentionList())
        return found.of_run(self.view.id)

    def alert_at_cursor(self) -> AlertRow | None:
        """The alert that the page's cursor stands on."""
        return None

    async def handle_now(self, message: Message) -> None:
        """Deal with a message now and not when its turn comes, so that what the screen shows of a
        poll and what this page does are one frame."""
        if not (self.is_mounted and self.size):  # it has no place yet: in the order of events
            self.post_message(message)
            return
        await dispatch_now(self, message)

    def ask(self, question: PageRequest | None) -> None:
        """Follow the answer to `question` from now on."""
        if question != self.question:
            self.question = question
            self.post_message(self.Asks(self, question))

    async def on_mount(self) -> None:
        await self.mount(self._excuse, before=0)

    @on(Shown)
    def _shown(self, message: Shown) -> None:
        message.stop()
        self.post_message(self.Asks(self, self.question))
        self.enter()
        self._passed(Page.Shown)

    @on(RunChanged)
    def _run_changed(self, message: RunChanged) -> None:
        message.stop()
        self.view = message.view
        if message.problem != self._flaw:
            self._flaw = message.problem
            self._show_problems()
        self.show_view(message.view)
        self._passed(RunChanged, str)  # a key that failed is history with the next news

    @on(Answered)
    def _answered(self, message: Answered) -> None:
        message.stop()
        if message.error is not None:
            raise message.error
        if message.question == self.question:
            self._is_answered = True
            self.show_answer(message.answer)
            self._passed(Page.Answered)
            self.show_problem(message.problem)

    def show_problem(self, problem: str) -> None:
        """Why what is shown may lack something, as a line above the page; "" takes it away."""
        self._problem = problem
        self._show_problems()

    def _show_problems(self) -> None:
        """Show problems of the run and of the answer; both may come from the store."""
        if self._broken_by is NoneType:
            both = (self._flaw, self._problem if self._problem not in self._flaw else "")
            self._show_line("; ".join(problem for problem in both if problem), "$warning")

    def failed(self, over: object, error: Exception) -> None:
        super().failed(over, error)
        self._broken_by = type(over)

    def broke(self, error: Exception) -> None:
        """The error as a line above the page, until a message of its kind passes again."""
        self._show_line(f"cannot show this: {words_of(error)}", "$error")

    def _passed(self, *kinds: type) -> None:
        if self._broken_by in kinds:
            self._broken_by = NoneType
            self._show_problems()

    def _show_line(self, words: str, tone: str) -> None:
        """Show a line above the page; "" removes it."""
        if words:
            self._excuse.update(styled.text(words, tone))
        self._excuse.display = bool(words)


class PacedPage(Page):
    """A page whose question costs too much to be put whenever the run has gone on."""

    REDRAW_S = 2.5  # charts are what a link spends most on

    def __init__(self, name: str, view: RunView) -> None:
        super().__init__(name, view)
        self._asked_at = -math.inf
        self._later: Timer | None = None

    def question_now(self) -> PageRequest:
        """The question as of the view."""
        raise NotImplementedError

    def enter(self) -> None:
        self.ask_now()

    def show_view(self, view: RunView) -> None:
        self.ask_in_time()

    def ask_now(self) -> None:
        self._asked_at, self._later = time.monotonic(), None
        self.ask(self.question_now())

    def ask_in_time(self) -> None:
        """Now, or when REDRAW_S have gone since the last time."""
        wait = self._asked_at + self.REDRAW_S - time.monotonic()
        if wait <= 0:
            self.ask_now()
        elif self._later is None and self.question_now() != self.question:
            self._later = self.set_timer(wait, self.ask_now)
