"""One medium of a run after the other: a picture in half blocks, a histogram over the steps, a
table, a text; of sound and other files what they are, where they lie and what opens them.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding
from textual.color import Color
from textual.containers import Container
from textual.content import Content
from textual.message import Message
from textual.screen import ModalScreen
from textual.widgets import Static

from albor_core.feed.archive.archive import RunArchive
from albor_core.feed.archive.media import PICTURES, MediumView, MediumWanted
from albor_core.feed.archive.media_content import Bins, BinsOverSteps, TableSheet, TextSheet
from albor_core.feed.archive.pixels import Pixels
from albor_core.feed.view.run_view import RunView
from albor_core.run.values.clean import clean
from albor_tui.look import glyphs, quantity
from albor_tui.model.cockpit import as_cockpit
from albor_tui.screens.dialogs.prompt import PromptScreen
from albor_tui.widgets.base import styled
from albor_tui.widgets.base.line_list import LineList
from albor_tui.widgets.base.scrolled_lines import ScrolledLines
from albor_tui.widgets.distribution.heat_map import HeatData, HeatMap
from albor_tui.widgets.distribution.histogram import Histogram, HistogramData
from albor_tui.widgets.media.half_blocks import HalfBlocks
from albor_tui.widgets.media.sheet_list import MeasuredSheet, SheetList, measured

_HEAT_ROWS = 4  # of a heat map beside its values
PERIOD_S = 2.0  # between two looks whether a run that lives has kept more


@dataclass(frozen=True)
class MediumShown:
    """A medium with what is dear to make of it, made in the thread: the lines of a text at a width,
    the widths of a table."""

    view: MediumView
    lines: tuple[Content, ...] = ()
    table: MeasuredSheet | None = None


def prepared(view: MediumView, width: int) -> MediumShown:
    """What the screen draws, `width` cells wide."""
    if isinstance(view.content, TextSheet):
        return MediumShown(view, tuple(wrapped(view.content, width)))
    if isinstance(view.content, TableSheet):
        return MediumShown(view, table=measured(view.content))
    return MediumShown(view)


def wrapped(text: TextSheet, width: int) -> list[Content]:
    """Its lines as rows; a control character is seen and not obeyed."""
    rows: list[Content] = []
    for line in text.lines:
        folded = styled.text(line.expandtabs(4).rstrip("\r"), "$ink").wrap(max(8, width))
        rows += [row.rstrip() for row in folded] or [Content("")]
    return rows


class MediaScreen(ModalScreen[None]):
    """The media of one key, the newest first on the screen."""

    BINDINGS = [
        Binding("escape,q,enter", "dismiss", "Close"),
        Binding("comma,less_than_sign", "turn(-1)", "Before", tooltip="The step before"),
        Binding("full_stop,greater_than_sign", "turn(1)", "Next", tooltip="The step after"),
        Binding("g", "go", "Go to", tooltip="Go to a step"),
        Binding("y", "copy", "Copy", tooltip="Copy the path of the file"),
    ]

    @dataclass
    class MediumRead(Message):
        """What a thread read."""

        wanted: MediumWanted
        shown: MediumShown

    def __init__(self, view: RunView, key: str, kind: str) -> None:
        super().__init__()
        self._run = view
        self._wanted = MediumWanted(key, kind)
        self._shown: MediumShown | None = None
        self._is_left = False
        self._hurry = threading.Event()

    def compose(self) -> ComposeResult:
        self.set_class(glyphs.current.is_ascii, "-ascii")
        with Container(id="media") as frame:
            frame.border_title = styled.heading(
                clean(self._wanted.key, limit=200), clean(self._wanted.kind, limit=20)
            )
            yield Static(styled.loading(), id="medium-step", markup=False)
            kind = self._wanted.kind
            if kind in PICTURES:
                yield HalfBlocks(id="medium-picture")
            elif kind == "histogram":
                yield Histogram("", id="medium-bins")
                yield HeatMap("how full a bin is beside the fullest of its step", id="medium-steps")
            elif kind == "table":
                yield Static(id="medium-head", markup=False)
                yield SheetList(id="medium-table")
            else:
                yield ScrolledLines(id="medium-text")
            yield Static(id="medium-words", markup=False)
            yield Static(id="medium-facts", markup=False)

    def on_mount(self) -> None:
        self.query_one("#medium-words").display = False
        self._name_keys(1)
        self.call_after_refresh(self._begin)

    def on_unmount(self) -> None:
        self._is_left = True
        self._hurry.set()

    def on_resize(self) -> None:
        if self._shown is not None:
            self.call_after_refresh(self._ask)

    def _begin(self) -> None:
        self._ask()
        self._follow()

    # -- what is asked for ---------------------------------------------------------------------

    def _ask(self, **changes: int | None) -> None:
        """Want another medium, or the same for another room."""
        width = max(8, self.query_one("#medium-step").content_size.width)
        room = (width, max(2, self.size.height // 2 - _HEAT_ROWS - 4))  # no row shared by two steps
        for picture in self.query(HalfBlocks):
            room = picture.room if all(picture.room) else room
        ground = Color.parse(self.app.theme_variables.get("surface", "#000000"))
        colour = (0, 0, 0) if ground.ansi is not None else ground.rgb
        self._wanted = replace(self._wanted, room=room, ground=colour, **changes)  # type: ignore[arg-type]
        self._hurry.set()

    @work(thread=True, exclusive=True, group="medium", exit_on_error=False)
    def _follow(self) -> None:
        """Read what is wanted, and again now and then, until the screen is left."""
        source = as_cockpit(self.app).source
        archive: RunArchive | None = None
        last: tuple[object, ...] = ()
        try:
            while not self._is_left:
                self._hurry.clear()
                wanted = self._wanted
                try:
                    archive = archive or source.archive(self._run)
                    view = archive.medium(wanted)
                except Exception as error:  # it belongs on the screen
                    words = f"cannot read this: {type(error).__name__}: {error}"
                    view = MediumView(wanted.key, wanted.kind, problem=words)
                if (wanted, view) != last:
                    last = wanted, view
                    self.post_message(self.MediumRead(wanted, prepared(view, wanted.room[0])))
                self._hurry.wait(PERIOD_S)
        finally:
            if archive is not None:
                archive.close()

    @property
    def _view(self) -> MediumView | None:
        return None if self._shown is None else self._shown.view

    def action_turn(self, by: int) -> None:
        view = self._view
        if view is None or not view.count:
            return
        at = view.nth if self._wanted.nth < 0 or self._wanted.step is not None else self._wanted.nth
        self._ask(nth=min(max(0, at + by), view.count - 1), step=None)

    def action_go(self) -> None:
        """Ask for a step; the medium that is nearest to it is shown."""
        question = Content.styled("Go to step", "bold $ink")
        self.app.push_screen(PromptScreen(question, "the nearest one there is"), self._go)

    def _go(self, said: str | None) -> None:
        if said is None:
            return
        digits = said.replace(",", "").replace("_", "")
        if digits.isascii() and digits.isdigit():
            self._ask(step=int(digits[:18]))
        else:
            self._tell(
                f"cannot go to {clean(said, limit=20)!r}: a step is a whole number", "$warning"
            )

    def action_copy(self) -> None:
        path = "" if self._view is None else self._view.path
        if path:
            self.app.copy_to_clipboard(clean(path))
            self._tell(f"copied {clean(path)}", "$ink")
        else:
            self._tell("nothing to copy: it has no file", "$ink-muted")

    # -- what is shown -------------------------------------------------------------------------

    @on(MediumRead)
    def _show_arrived(self, message: MediumRead) -> None:
        message.stop()
        if message.wanted != self._wanted:
            return  # another is on its way
        view = message.shown.view
        self._shown = message.shown
        if self._wanted.nth < 0 or self._wanted.step is not None:
            self._wanted = replace(self._wanted, nth=max(0, view.nth), step=None)
            self._hurry.set()
        self._name_keys(view.count)
        self.query_one("#medium-step", Static).update(place_line(view))
        self._show_content(message.shown)
        words = self.query_one("#medium-words", Static)
        words.display = bool(view.problem)
        words.update(way_to_open(view) if view.problem else "")
        self._tell_facts()

    def _show_content(self, shown: MediumShown) -> None:
        view = shown.view
        for widget in self.query("#medium-picture, #medium-bins, #medium-steps, #medium-table,"
                                 " #medium-head, #medium-text"):  # fmt: skip
            widget.display = not view.problem
        content = view.content
        if isinstance(content, Pixels):
            self.query_one(HalfBlocks).show(content)
        elif isinstance(content, Bins):
            self.query_one(Histogram).data = HistogramData(
                content.edges, content.counts, content.nonfinite, empty="it has no values"
            )
            heat = self.query_one(HeatMap)
            heat.display = view.others is not None and len(view.others.steps) > 1
            if view.others is not None:
                heat.styles.height = len(view.others.steps) + _HEAT_ROWS
                heat.data = shares_by_step(view.others, view.place)
        elif shown.table is not None:
            self.query_one(SheetList).show(shown.table)
            self._show_head()
        elif isinstance(content, TextSheet):
            self.query_one(ScrolledLines).show(shown.lines)

    @on(LineList.Moved)
    def _show_head(self) -> None:
        for table in self.query(SheetList):
            self.query_one("#medium-head", Static).update(table.head)

    def _tell_facts(self) -> None:
        view = self._view
        if view is not None:
            self._tell("  ".join((*view.facts, *omissions(view))), "$ink-muted")

    def _tell(self, words: str, tone: str) -> None:
        line = self.query_one("#medium-facts", Static)
        room = line.content_size.width or 80
        line.update(styled.fit(styled.text(words, tone), room))

    def _name_keys(self, count: int) -> None:
        turn = ", . another step   g go to a step   " if count > 1 else ""
        keys = f"{turn}y copy the path   esc back"
        self.query_one("#media").border_subtitle = Content(keys)


def place_line(view: MediumView) -> Content:
    """The step, which of how many it is, and its caption."""
    step = "no step" if view.step is None else f"step {view.step:,}"
    count = f"  {view.nth + 1:,} of {view.count:,}" if view.count else ""
    parts: list[Content] = [Content.styled(step if view.count else "", "bold $ink")]
    parts.append(Content.styled(count, "$ink-muted"))
    if view.caption:
        parts.append(styled.text(f"  {view.caption}", "$ink"))
    return Content("").join(parts)


def way_to_open(view: MediumView) -> Content:
    """Why nothing is drawn, and how to open the file."""
    rows = [styled.text(view.problem, "$warning" if not view.path else "$ink")]
    if view.path:
        host = os.uname().nodename
        rows += [Content(""), styled.text(view.path, "$ink-muted"), Content("")]
        rows.append(Content.styled("open it   ", "$ink-muted") + styled.text(view.opener, "$ink"))
        command = f"scp {host}:{view.opener.partition(' ')[2]} ."
        rows.append(Content.styled("fetch it  ", "$ink-muted") + styled.text(command, "$ink"))
    return styled.rows(rows)


def omissions(view: MediumView) -> Sequence[str]:
    """What of it is not on the screen."""
    content = view.content
    if isinstance(content, TableSheet) and content.is_cut:
        return (f"the first {quantity.counted(len(content.rows), 'row')} are here",)
    if isinstance(content, TextSheet) and content.is_cut:
        return ("only its beginning is here",)
    if isinstance(content, Pixels) and content.frames > 1:
        return (f"the first of {content.frames:,} frames",)
    return ()


def shares_by_step(over: BinsOverSteps, place: int) -> HeatData:
    """A row for each step, the newest at the bottom; the one that is shown is pointed at."""
    marks = [glyphs.current.crumb if at == place else " " for at in range(len(over.steps))]
    middles = [(a + b) / 2 for a, b in zip(over.edges, over.edges[1:], strict=False)]
    return HeatData(
        tuple(
            mark + ("" if step is None else quantity.count(step))
            for mark, step in zip(marks, over.steps, strict=True)
        ),
        tuple(f"{middle:.3g}" for middle in middles),
        tuple(tuple(one / (max(row) or 1.0) for one in row) for row in over.shares),
        low=0.0,
        high=1.0,
        empty="",
    )
