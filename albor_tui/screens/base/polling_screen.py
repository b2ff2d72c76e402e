"""What every screen that follows something shares: a poll thread that never dies in silence.

A worker touches no widget, it posts; a screen that is covered polls nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from textual import on, work
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static
from textual.worker import Worker, WorkerState, get_current_worker

from albor_core.feed.attention.item import AttentionList
from albor_core.feed.view.run_view import RunView
from albor_core.run.errors import AlborError
from albor_tui.look import glyphs
from albor_tui.messages import CommandReport
from albor_tui.model.cockpit import Cockpit, as_cockpit
from albor_tui.model.desk import LiveDesk
from albor_tui.model.source import LiveSource
from albor_tui.terminal.textual_private import FrameScreen
from albor_tui.widgets.base import styled
from albor_tui.widgets.chart.chart import Chart
from albor_tui.widgets.status_bar import StatusBar

if TYPE_CHECKING:
    from albor_tui.widgets.chart.chart import FinerLines
    from albor_tui.widgets.chart.data import Trace
    from albor_tui.widgets.media.chart_picture import ChartSketch

RETRY_S = 2.0


class PollingScreen(FrameScreen):
    """A screen with a status bar and a poll thread; subclasses write `follow` and call `ticking` in
    it.

    Numbers change once per PERIOD_S: a person cannot read them more often, and each change is bytes
    on the link. `period_s` may be raised where nothing moves any more.
    """

    PERIOD_S = 0.8
    COVERED_S: float | None = None
    """How often a covered screen polls, for what others show of it; None: not at all."""
    ALLOW_IN_MAXIMIZED_VIEW = "TopBar, StatusBar, KeyBar"  # keys act there too, and say so

    def __init__(self) -> None:
        super().__init__()
        self.period_s = self.PERIOD_S
        self._uncovered = threading.Event()
        self._wanted = threading.Event()  # a caller waits for news
        self._is_left = False
        self.is_dark = False  # whether the first frame is still to come
        self._lost: Widget | None = None  # had the focus when it hid, and nothing has it since

    @property
    def cockpit(self) -> Cockpit:
        """The app that the screen is on."""
        return as_cockpit(self.app)

    @property
    def source(self) -> LiveSource:
        return self.cockpit.source

    @property
    def desk(self) -> LiveDesk:
        return self.cockpit.desk

    @property
    def attention(self) -> AttentionList:
        """The present attention list of the app."""
        return self.cockpit.attention

    def defer_first_frame(self, seconds: float) -> None:
        """Draw nothing until `has_picture`, or for so long once mounted: at a start each frame of
        half a picture costs as much time as the whole."""
        self.is_dark, self._dark_s = True, seconds

    def has_picture(self) -> bool:
        """Whether what is known is worth the first frame."""
        return True

    def _light(self) -> None:
        self.is_dark = False
        self.draw_frame()

    def may_draw(self) -> bool:
        if self.is_dark and self.has_picture():
            self.is_dark = False
        return not self.is_dark

    def on_mount(self) -> None:
        self.set_class(glyphs.current.is_ascii, "-ascii")
        if self.is_dark:
            self.set_timer(self._dark_s, self._light)
        self._uncovered.set()
        self._poll()

    def on_screen_suspend(self) -> None:
        self._uncovered.clear()
        for bar in self.query(StatusBar):
            bar.dismiss()

    def on_screen_resume(self) -> None:
        self._uncovered.set()
        self.poll_now()

    def on_unmount(self) -> None:
        self._is_left = True
        self._uncovered.set()
        self.poll_now()

    def set_focus(
        self, widget: Widget | None, scroll_visible: bool = True, from_app_focus: bool = False
    ) -> None:
        self._lost = (self.focused or self._lost) if widget is None else None
        super().set_focus(widget, scroll_visible, from_app_focus)

    def on_idle(self) -> None:
        """Give the focus back to a list that hid because it was empty: without it no key moves."""
        lost = self._lost
        if lost is not None and self.app.app_focus and lost in self.focus_chain:
            self.set_focus(lost, scroll_visible=False)

    def poll_now(self) -> None:
        """Poll now instead of at the end of the period."""
        self._wanted.set()

    def shows_key(self, action: str) -> bool:
        """Whether a key does something now, and would not only be refused."""
        return True

    def key_word(self, action: str) -> str:
        """The present label of an action in the key bar; "" for the label of its binding."""
        return ""

    def effect_of(self, action: str) -> str:
        """The present effect of an action; "" if its label is enough."""
        return ""

    @property
    def chart_subject(self) -> str:
        """The run or the runs that its charts are of, for the title of a picture; "" where each
        chart says it."""
        return ""

    def read_places(self) -> None:
        """Read what `places` finds besides what the screen knows. In any thread."""

    def places(self) -> Iterable[tuple[str, str, Callable[[], object]]]:
        """What the palette finds on this screen besides its keys: a title, what it is, and the
        function that shows it.
        """
        return ()

    def follow(self) -> None:
        """Poll and post until cancelled. Runs in a thread."""
        raise NotImplementedError

    def ticking(self) -> Iterator[None]:
        """One turn per period while the screen is on top, and per COVERED_S while it is not, until
        the worker is cancelled."""
        worker = get_current_worker()
        while not (self._is_left or worker.is_cancelled):
            is_on_top = self._uncovered.wait(0.0 if self.COVERED_S else 1.0)
            if (is_on_top or self.COVERED_S) and not self._is_left:
                self._wanted.clear()
                yield
                self._wanted.wait(self.period_s if is_on_top else self.COVERED_S)

    @work(thread=True, exclusive=True, group="poll", exit_on_error=False)
    def _poll(self) -> None:
        self.follow()

    @work(thread=True, group="command", exit_on_error=False)
    def send_command(self, view: RunView, cmd: str, argument: str = "") -> None:
        """Deliver a command; each stage is shown."""
        for report in self.source.command(view, cmd, argument):
            self.post_message(report)

    @on(CommandReport)
    def show_report(self, message: CommandReport) -> None:
        self.query_one(StatusBar).report(message)

    @on(Worker.StateChanged)
    def report_failure(self, event: Worker.StateChanged) -> None:
        if event.state is not WorkerState.ERROR or event.worker.node is not self:
            return
        error = event.worker.error
        words = (
            error.message if isinstance(error, AlborError) else f"{type(error).__name__}: {error}"
        )
        self.log.error(f"{event.worker.group}: {error!r}")
        self.query_one(StatusBar).show_message(f"{event.worker.group}: {words}", "$error")
        if event.worker.group == "poll":
            self.set_timer(RETRY_S, self._poll)

    @property
    def is_on_top(self) -> bool:
        """Whether nothing covers it. May be asked in its thread."""
        return self._uncovered.is_set()

    def action_back(self) -> None:
        if self.maximized is not None:
            self.minimize()
        else:
            self.app.pop_screen()

    def action_zoom(self) -> None:
        if self.maximized is not None:
            self.minimize()
        elif self.focused is not None:
            self.maximize(self.focused)

    def show_empty(self, words: Content | None, *instead_of: Widget) -> None:
        """Say in a list's place why it has nothing; None: it has something."""
        is_empty = words is not None
        if is_empty != self.has_class("-empty"):
            self.set_class(is_empty, "-empty")
            self.refresh_bindings()
        for widget in instead_of:
            widget.display = not is_empty
        empty = self.query_one("#empty", Static)
        empty.display = is_empty
        if words is not None:
            empty.update(words)

    @property
    def is_free_to_tell(self) -> bool:
        """Whether a notice has a place: no command waits there for its answer."""
        return not self.query_one(StatusBar).is_waiting

    def show_notice(self, line: Content) -> None:
        """Show a line in the status bar about an event on another screen."""
        self.query_one(StatusBar).show_line(line)

    def runs_changed(self) -> None:
        """The app knows other figures of the runs that attention is about."""

    @on(Chart.PictureAsked)
    def ask_for_picture(self, message: Chart.PictureAsked) -> None:
        """Ask for the file that the picture of a chart is written to."""
        message.stop()
        from albor_core.picture.save import check_format
        from albor_tui.widgets.media.chart_picture import ChartSketch, file_stem

        sketch = ChartSketch.from_chart(message.chart, self.chart_subject)
        if sketch is None:
            self.show_message("cannot make a picture: nothing is drawn here", "$ink-muted")
            return
        from albor_tui.screens.dialogs.prompt import PromptScreen

        title = styled.text(sketch.title, "bold $accent")
        question = Content.assemble(("Picture of ", "bold $ink"), title)

        def write(name: str | None) -> None:
            if name is not None:
                self._write_picture(sketch, message.finer, Path(name))

        value = f"{file_stem(sketch.title)}.svg"
        hint = ".svg, .png or .csv"
        self.app.push_screen(PromptScreen(question, hint, value, check_format), write)

    @work(thread=True, group="picture", exit_on_error=False)
    def _write_picture(self, sketch: ChartSketch, finer: FinerLines | None, name: Path) -> None:
        lines: tuple[Trace, ...] = ()
        if finer is not None:
            feed = self.source.overlay()
            try:
                lines = finer(feed)
            finally:
                feed.close()
        out = name.expanduser().absolute()
        try:
            self.desk.draw(sketch.picture(lines), out)
        except AlborError as error:
            why = f"{error.message} ({error.hint})" if error.hint else error.message
            report = CommandReport(out.name, "picture", "refused", why)
        else:
            report = CommandReport(out.name, "picture", "done", str(out))
        self.post_message(report)

    @on(Chart.NoExtreme)
    def show_no_extreme(self) -> None:
        self.show_message("no point stands out", "$ink-muted")

    def show_message(self, words: str, tone: str = "$ink") -> None:
        """Show a line in the status bar."""
        self.query_one(StatusBar).show_message(words, tone)

    def withdraw_message(self, words: str) -> bool:
        """Show a line no longer; whether it was shown."""
        return any(bar.withdraw(words) for bar in self.query(StatusBar))
