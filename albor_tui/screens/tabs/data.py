"""What the run reads: its sources and how much it has had of each, the rows of its newest step as
text, and whether the shards are still those that it began with.

`albor data` counts and decodes, in processes of their own: the cockpit knows no tokens.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, cast

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Container
from textual.content import Content
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Static

from albor_core.feed.data.batch import StepRows
from albor_core.feed.data.of_run import RunData
from albor_core.feed.data.sheet import DataSheet
from albor_core.feed.view.run_view import RunView
from albor_core.run.errors import AlborError
from albor_core.run.values.quantity import counted
from albor_tui.look import glyphs, quantity
from albor_tui.model.command import Cancelled, CommandFailed
from albor_tui.model.desk import LiveDesk, reference
from albor_tui.screens.tabs.page import Page
from albor_tui.widgets.base import styled
from albor_tui.widgets.base.line_list import LineList
from albor_tui.widgets.data.batch import BatchList, RowSheet
from albor_tui.widgets.data.columns import Headed
from albor_tui.widgets.data.run_facts import RunFacts
from albor_tui.widgets.data.seen_list import SeenList, rows_of

if TYPE_CHECKING:
    from albor_core.feed.archive.archive import RunArchive
    from albor_tui.screens.base.run_actions import RunActionsScreen

_SIDES = ("sources", "batch")


@dataclass(frozen=True)
class DataWanted:
    """A request for the recorded data of a run, and what is in its place now."""

    PERIOD_S: ClassVar[float | None] = 4.0

    def put(self, archive: RunArchive) -> RunData:
        return archive.data()


class DataPage(Page):
    """Sources and facts at the left, the batch at the right; on a narrow terminal one of them."""

    BINDINGS = [
        Binding("enter", "read", "Read", tooltip="Go to the text of a row; enter again goes back"),
        Binding("r", "again", "Newest", tooltip="Decode the rows of the newest step"),
        Binding("v", "side", "Sources", tooltip="The sources, or the rows of a step"),
        Binding("D", "room", "Data screen", tooltip="Everything about this data set"),
    ]

    @dataclass
    class Decoded(Message):
        """The rows of a step, or why there are none."""

        found: StepRows | CommandFailed

    @dataclass
    class Counted(Message):
        """The counted contents of a data set, or the error."""

        found: DataSheet | CommandFailed

    def __init__(self, name: str, view: RunView) -> None:
        super().__init__(name, view)
        self._data: RunData | None = None
        self._sheet: DataSheet | CommandFailed | None = None
        self._batch: StepRows | CommandFailed | None = None
        self._counting = ""  # the data set that was asked for
        self._is_decoding = False
        self._side = _SIDES[0]
        self._unwanted = threading.Event()

    @property
    def _desk(self) -> LiveDesk:
        return cast("RunActionsScreen", self.screen).desk

    def compose(self) -> ComposeResult:
        with Container(id="run-data"):
            with Container(id="run-data-sources"):
                yield Headed(SeenList(id="seen-list"), id="seen-frame")
                yield RunFacts(id="run-facts")
            with Container(id="run-data-batch"):
                yield Headed(BatchList(id="batch-list"), id="batch-frame")
                yield RowSheet(id="batch-row")
        yield Static(id="no-data", classes="empty", markup=False)

    def enter(self) -> None:
        self.ask(DataWanted())
        self._arrange()
        self._focus()

    def on_unmount(self) -> None:
        self._unwanted.set()

    def on_resize(self) -> None:
        self.call_later(self._arrange)  # the breakpoint classes are set after this event

    # -- what the threads do --------------------------------------------------------------------

    @work(thread=True, group="stats", exit_on_error=False)
    def _count(self, desk: LiveDesk, path: str) -> None:
        try:
            found: DataSheet | CommandFailed = desk.data_stats(path, self._unwanted)
        except Cancelled:
            return
        except AlborError as error:
            found = CommandFailed(error.message, error.hint)
        self.post_message(self.Counted(found))

    @work(thread=True, group="batch", exit_on_error=False)
    def _decode(self, desk: LiveDesk, run: str) -> None:
        try:
            found: StepRows | CommandFailed = desk.data_batch(run, self._unwanted)
        except Cancelled:
            return
        except AlborError as error:
            found = CommandFailed(error.message, error.hint)
        self.post_message(self.Decoded(found))

    # -- what is shown --------------------------------------------------------------------------

    def show_view(self, view: RunView) -> None:
        if self._data is None:
            self._arrange()

    def show_answer(self, answer: object) -> None:
        assert isinstance(answer, RunData)
        is_first, self._data = self._data is None, answer
        if answer.data_set and answer.data_set != self._counting and self._is_there(answer):
            self._counting = answer.data_set
            self._count(self._desk, answer.data_set)
        if is_first and not answer.why_none:
            self._ask_for_batch()
        self._arrange()

    def _is_there(self, data: RunData) -> bool:
        return data.train is not None and data.train.folder.state != "gone"

    def _ask_for_batch(self) -> None:
        if not self._is_decoding:
            self._is_decoding = True
            self._decode(self._desk, reference(self.view))

    @on(Decoded)
    def take_batch(self, message: Decoded) -> None:
        had_rows = self._has_rows
        self._batch, self._is_decoding = message.found, False
        self._arrange()
        if self.query_one(RowSheet).has_focus and not had_rows:
            self._focus()  # it only held the place of the list, which was not there

    @on(Counted)
    def take_sheet(self, message: Counted) -> None:
        self._sheet = message.found
        self._arrange()

    @property
    def _has_rows(self) -> bool:
        return isinstance(self._batch, StepRows) and bool(self._batch.rows)

    @property
    def _shows_both(self) -> bool:
        return self.screen.has_class("-wide")

    def _arrange(self) -> None:
        data = self._data
        is_none = data is None or bool(data.why_none)
        self.query_one("#run-data").display = not is_none
        empty = self.query_one("#no-data", Static)
        empty.display = is_none
        if data is None or is_none:
            self.say_empty(empty, lambda: _nothing(data or RunData()))
            return
        for side in _SIDES:
            shown = self._shows_both or side == self._side
            self.query_one(f"#run-data-{side}").display = shown
        self._show_sources(data)
        self._show_batch()
        self.refresh_bindings()

    def _show_sources(self, data: RunData) -> None:
        sheet = self._sheet if isinstance(self._sheet, DataSheet) else None
        rows = () if self._is_being_read(data) else rows_of(data, sheet)
        frame, listing = self.query_one("#seen-frame", Headed), self.query_one(SeenList)
        listing.show(rows)
        frame.display = bool(rows)
        most = max(6, self.size.height // 2)
        frame.styles.height = min(len(rows) + 3, most)
        what = "mixture" if data.mixture else "sources"
        frame.border_title = Content.assemble(
            (f"{what} ", "bold $ink"), (f"{len(rows)}", "$ink-muted")
        )
        is_weighted = any(row.weight is not None for row in rows)
        weight = f"{glyphs.current.budget} weight" if is_weighted else ""
        seen = "" if data.seen else "what it has seen of each is not recorded"
        words = "   ".join(part for part in (seen, weight) if part)
        frame.border_subtitle = Content.styled(words, "$ink-muted")
        frame.tell_heads()
        self.query_one(RunFacts).tell(data, self._why_no_source(data))

    def _why_no_source(self, data: RunData) -> Content:
        """Why no source is listed, where none is."""
        if isinstance(self._sheet, CommandFailed):
            return _why(self._sheet, "read its sources")
        if self._is_being_read(data):
            return styled.loading()
        is_bare = isinstance(self._sheet, DataSheet) and not self._sheet.sources
        return Content.styled("no source is recorded", "$warning") if is_bare else Content("")

    def _is_being_read(self, data: RunData) -> bool:
        return self._sheet is None and bool(data.data_set) and self._is_there(data)

    def _show_batch(self) -> None:
        found = self._batch if isinstance(self._batch, StepRows) else StepRows()
        listing, frame = self.query_one(BatchList), self.query_one("#batch-frame", Headed)
        listing.show(found.rows)
        frame.display = bool(found.rows)
        frame.styles.height = min(len(found.rows) + 3, max(5, self.size.height // 3))
        behind = "" if not self._is_decoding else "   decoding the newest"
        frame.border_title = Content.assemble(
            ("batch ", "bold $ink"),
            (f"of step {quantity.count(found.step)}", "$ink-muted"),
            (behind, "$secondary"),
        )
        rows = counted(len(found.rows), "row")
        frame.border_subtitle = Content.styled(f"{rows}   r decodes the newest", "$ink-muted")
        frame.tell_heads()
        self._show_row()

    @on(LineList.Moved)
    def _show_row(self) -> None:
        found = self._batch if isinstance(self._batch, StepRows) else StepRows()
        row = self.query_one(BatchList).current if found.rows else None
        excuse = Content.styled("decoding the rows of the newest step", "$ink-muted")
        if not self._is_decoding:
            excuse = Content.styled("no rows: r decodes those of the newest step", "$ink-muted")
            if isinstance(self._batch, CommandFailed):
                excuse = _why(self._batch, "decode its rows")
        self.query_one(RowSheet).tell(found, row, excuse)

    # -- what is done ---------------------------------------------------------------------------

    def key_word(self, action: str) -> str:
        if action == "side":
            return "Rows" if self._side == "sources" else "Sources"
        return ""

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        is_known = self._data is not None and not self._data.why_none
        if action in ("read", "again"):
            return is_known
        if action == "side":
            return is_known and self.is_mounted and not self._shows_both
        if action == "room":
            return self._data is not None and bool(self._data.data_set)
        return super().check_action(action, parameters)

    def _focus(self) -> None:
        batch = BatchList if self._has_rows else RowSheet
        target: type[Widget] = batch if self._shows_both or self._side == "batch" else SeenList
        self.query_one(target).focus()

    def action_side(self) -> None:
        self._side = _SIDES[1 - _SIDES.index(self._side)]
        self._arrange()
        self._focus()

    def action_read(self) -> None:
        if not self._shows_both and self._side == "sources":
            self.action_side()
        sheet = self.query_one(RowSheet)
        if sheet.has_focus:
            self._focus()
        else:
            sheet.focus()

    def action_again(self) -> None:
        self._ask_for_batch()
        self._arrange()

    def action_room(self) -> None:
        if self._data is not None and self._data.data_set:
            from albor_tui.screens.data.screen import DataScreen  # loaded when it is wanted

            self.app.push_screen(DataScreen(self._data.data_set))


def _nothing(data: RunData) -> Content:
    lines = [
        Content.styled("No data is known.", "bold $ink"),
        styled.text(data.why_none, "$ink-muted"),
    ]
    return styled.rows(lines)


def _why(failed: CommandFailed, what: str) -> Content:
    lines = [styled.text(f"cannot {what}: {failed.message}", "$error")]
    if failed.hint:
        lines.append(styled.text(failed.hint, "$ink-muted"))
    return styled.rows(lines)
