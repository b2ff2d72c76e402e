"""The Data screen: every data set that is known here, and of the one under the cursor what it
holds, what it lost on the way, how long its documents are, and what is known of its bytes.

`albor data stats` counts, in a process of its own: the cockpit reads no Parquet.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Container
from textual.content import Content
from textual.message import Message
from textual.widgets import Static

from albor_core.feed.data.folder import SEALED
from albor_core.feed.data.known import DataSetView, DataShelf
from albor_core.feed.data.sheet import DataSheet
from albor_core.run.errors import AlborError
from albor_tui.messages import RunFound
from albor_tui.model.command import Cancelled, CommandFailed
from albor_tui.screens.base.polling_screen import PollingScreen
from albor_tui.screens.data.set_parts import PART_KEYS, PARTS, SetParts
from albor_tui.widgets.base import styled
from albor_tui.widgets.base.line_list import LineList
from albor_tui.widgets.data import set_list
from albor_tui.widgets.data.columns import Headed
from albor_tui.widgets.data.set_list import DataSetList, SetRow, Verification, rows_of
from albor_tui.widgets.data.source_list import SourceList
from albor_tui.widgets.key_bar import KeyBar
from albor_tui.widgets.status_bar import StatusBar, TopBar
from albor_tui.widgets.tab_bar import TabBar

REST_S = 0.3  # the cursor stands still this long before a data set is read
LOOK_S = 10.0  # between two looks at which data sets there are
LEAST_ROWS, MOST_SHARE = 4, 0.3  # of the list with its frame; of the screen
_ON_SETS = frozenset({"read", "verify", "again", "open_run", "part", "turn", "sort", "zoom"})


class DataScreen(PollingScreen):
    """A list, and four parts about the data set under the cursor: all at once where there is room,
    else one at a time."""

    BINDINGS = [
        Binding("escape,q,backspace", "back", "Back", tooltip="Back to where you were"),
        Binding("enter", "read", "Read", tooltip="Go to what it holds; enter again goes back"),
        Binding(
            "right_square_bracket",
            "turn(1)",
            "Part",
            tooltip="Next part; 1 to 4 choose one",
        ),
        Binding("left_square_bracket", "turn(-1)", "Part back", show=False, tooltip="Part before"),
        *(Binding(part.stroke, f"part({part.key!r})", show=False) for part in PARTS),
        Binding("v", "verify", "Verify", tooltip="Read every byte against its hashes, now"),
        Binding("s", "sort", "Sort", tooltip="Sources by share, by what they lost, by name"),
        Binding("o", "open_run", "Run", tooltip="Open the newest run that read it"),
        Binding("r", "again", "Again", tooltip="Look at the list and at this data set again"),
        Binding("z", "zoom", "Zoom", show=False, tooltip="The focused panel alone, and back"),
    ]

    @dataclass
    class Listed(Message):
        """The data sets that are known now."""

        shelf: DataShelf

    @dataclass
    class Counted(Message):
        """The counted contents of a data set, or the error."""

        path: str
        found: DataSheet | CommandFailed

    @dataclass
    class Verified(Message):
        """The result of reading every byte of a data set."""

        path: str
        check: Verification

    def __init__(self, path: str = "") -> None:
        super().__init__()
        self.period_s = LOOK_S
        self._wanted_path = path  # to stand on, when it is listed
        self._shelf: DataShelf | None = None
        self._sheets: dict[str, DataSheet | CommandFailed] = {}
        self._checks: dict[str, Verification] = {}
        self._part = PART_KEYS[0]
        self._asked = ""  # the data set that is being read, or was last
        self._unwanted = threading.Event()  # the answer to that
        self._left = threading.Event()

    @property
    def current(self) -> SetRow | None:
        """The data set that the cursor stands on."""
        return self.query_one(DataSetList).current

    def compose(self) -> ComposeResult:
        yield TopBar("runs", "data")
        with Container(id="list"):
            yield Headed(DataSetList(id="data-sets"), id="data-list")
            yield Static(id="empty", markup=False)
        yield TabBar(PARTS, self._part)
        yield SetParts()
        yield StatusBar()
        yield KeyBar()

    def on_mount(self) -> None:
        self._arrange()
        self.query_one(DataSetList).focus()
        super().on_mount()

    def on_unmount(self) -> None:
        super().on_unmount()
        self._left.set()
        self._unwanted.set()

    def on_resize(self) -> None:
        self.call_later(self._arrange)  # the breakpoint classes are set after this event

    # -- what the threads do --------------------------------------------------------------------

    def follow(self) -> None:
        for _ in self.ticking():
            self.post_message(self.Listed(self.desk.data_sets()))

    @work(thread=True, group="stats", exit_on_error=False)
    def _count(self, path: str, unwanted: threading.Event) -> None:
        try:
            found: DataSheet | CommandFailed = self.desk.data_stats(path, unwanted)
        except Cancelled:
            return
        except AlborError as error:
            found = CommandFailed(error.message, error.hint)
        self.post_message(self.Counted(path, found))

    @work(thread=True, group="verify", exit_on_error=False)
    def _verify(self, path: str) -> None:
        try:
            problems = self.desk.verify_data(path, self._left)
        except Cancelled:
            return
        except AlborError as error:
            check = Verification(set_list.now_wall(), why_not=error.message)
        else:
            check = Verification(set_list.now_wall(), problems)
        self.post_message(self.Verified(path, check))

    @work(thread=True, group="find", exit_on_error=False)
    def _find(self, run_id: str) -> None:
        self.post_message(RunFound(self.desk.find(run_id)))

    # -- what is shown --------------------------------------------------------------------------

    @on(Listed)
    def show_list(self, message: Listed) -> None:
        if message.shelf == self._shelf:
            return
        before, self._shelf = self._shelf, message.shelf
        known = {} if before is None else {view.path: view.folder for view in before.sets}
        for view in message.shelf.sets:
            if known.get(view.path, view.folder) != view.folder:
                self._forget(view.path)  # what was found out is of other bytes
        if message.shelf.problem:
            self.show_message(message.shelf.problem, "$warning")
        self._arrange()

    def _forget(self, path: str) -> None:
        self._sheets.pop(path, None)
        self._checks.pop(path, None)
        self._asked = "" if self._asked == path else self._asked

    @on(Counted)
    def take_sheet(self, message: Counted) -> None:
        self._sheets[message.path] = message.found
        self._arrange()

    @on(Verified)
    def take_check(self, message: Verified) -> None:
        if message.path in self._checks:  # else other bytes lie there by now
            self._checks[message.path] = message.check
            self._arrange()

    def _known_sheets(self) -> Mapping[str, DataSheet]:
        return {p: found for p, found in self._sheets.items() if isinstance(found, DataSheet)}

    @property
    def shows_all(self) -> bool:
        """Whether there is room for all parts at once."""
        return self.has_class("-wide") and not self.has_class("-short")

    def _arrange(self) -> None:
        sets = () if self._shelf is None else self._shelf.sets
        listing, frame = self.query_one(DataSetList), self.query_one("#data-list", Headed)
        listing.show(rows_of(sets, self._known_sheets(), self._checks))
        if self._wanted_path and listing.stand_on(self._wanted_path):
            self._wanted_path = ""
        self.show_empty(None if sets else _nothing(self._shelf), frame)
        self._title(sets)
        self._share_room(len(sets))
        self._show_parts()
        frame.tell_heads()
        self.show_set()

    def _title(self, sets: tuple[DataSetView, ...]) -> None:
        gone = sum(view.folder.state == "gone" for view in sets)
        broken = sum(view.folder.state == "damaged" for view in sets)
        listing = self.query_one("#list")
        listing.border_title = Content.assemble(
            ("data sets ", "bold $ink"),
            ("" if self._shelf is None else str(len(sets)), "$ink-muted"),
            (f"   {gone} gone", "$error") if gone else "",
            (f"   {broken} damaged", "$error") if broken else "",
        )

    def on_descendant_focus(self) -> None:
        self.query_one(SetParts).show_source()

    def _share_room(self, count: int) -> None:
        """Lists as high as their lines, for as long as the rest has room."""
        half = (self.size.height - 3) * 2 // 5
        self.query_one(SetParts).fit_sources(half if self.shows_all else None)
        listing = self.query_one("#list")
        if self.has_class("-empty"):
            listing.styles.height = None
            return
        most = max(LEAST_ROWS, int(self.size.height * MOST_SHARE))
        listing.styles.height = min(max(count + 3, LEAST_ROWS), most)

    def _show_parts(self) -> None:
        is_empty = self.has_class("-empty")
        self.query_one(TabBar).display = not is_empty and not self.shows_all
        self.query_one(TabBar).current = self._part
        self.query_one(SetParts).show_parts(PART_KEYS if self.shows_all else (self._part,))

    @on(LineList.Moved)
    def show_set(self) -> None:
        """Show known facts of the data set under the cursor, and ask for the others."""
        row = self.current
        if row is None:
            return
        found = self._sheets.get(row.view.path)
        offers_check = self.cockpit.permits("verify")
        self.query_one(SetParts).show(row, found, offers_check=offers_check)
        self._share_room(len(self.query_one(DataSetList).rows))
        self.refresh_bindings()
        if found is None and row.view.folder.state != "gone" and self._asked != row.view.path:
            self._ask(row.view.path)

    def _ask(self, path: str) -> None:
        self._asked = path
        self._unwanted.set()
        self._unwanted = unwanted = threading.Event()

        def begin() -> None:
            if not unwanted.is_set():
                self._count(path, unwanted)

        self.set_timer(REST_S, begin)

    # -- what is done ---------------------------------------------------------------------------

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action in _ON_SETS and self.has_class("-empty"):
            return False
        return super().check_action(action, parameters)

    def shows_key(self, action: str) -> bool:
        if action == "verify":
            return self._can_verify(self.current)
        if action == "open_run":
            row = self.current
            return row is not None and bool(row.view.users)
        return super().shows_key(action)

    def _can_verify(self, row: SetRow | None) -> bool:
        if row is None or row.view.folder.state != "here":
            return False
        is_under_way = row.check is not None and row.check.wall is None
        return row.view.folder.kind in SEALED and not is_under_way

    def action_verify(self) -> None:
        row = self.current
        if row is None:
            return
        if not self._can_verify(row):
            self.show_message(_why_not_verified(row), "$ink-muted")
            return
        self._checks[row.view.path] = Verification()
        self._verify(row.view.path)
        self._arrange()

    def action_again(self) -> None:
        row = self.current
        if row is not None:
            self._sheets.pop(row.view.path, None)
            self._asked = ""
        self.poll_now()
        self._arrange()

    def action_sort(self) -> None:
        self.query_one(SourceList).next_order()
        self.show_set()

    def action_open_run(self) -> None:
        row = self.current
        if row is not None and row.view.users:
            self._find(row.view.users[0].id)
        elif row is not None:
            self.show_message("no run of this home read it", "$ink-muted")

    @on(RunFound)
    def open_run(self, message: RunFound) -> None:
        self.app.push_screen(self.cockpit.run_screen(message.view))

    def action_read(self) -> None:
        """Move the focus to the shown part, or back to the list."""
        listing = self.query_one(DataSetList)
        if listing.has_focus:
            self.query_one(SetParts).inside(self._part).focus()
        else:
            listing.focus()

    def action_part(self, key: str) -> None:
        if self.maximized is not None:
            self.minimize()
        had_list = self.query_one(DataSetList).has_focus
        self._part = key
        self._show_parts()
        if self.shows_all or not had_list:
            self.query_one(SetParts).inside(key).focus()

    def action_turn(self, by: int) -> None:
        self.action_part(PART_KEYS[(PART_KEYS.index(self._part) + by) % len(PART_KEYS)])

    @on(TabBar.Chosen)
    def choose_part(self, message: TabBar.Chosen) -> None:
        self.action_part(message.key)


def _why_not_verified(row: SetRow) -> str:
    if row.check is not None and row.check.wall is None:
        return "it is being verified"
    if row.view.folder.state != "here":
        return f"cannot verify it: {row.view.folder.why}"
    return "only shards are verified here; albor data provenance checks a corpus"


def _nothing(shelf: DataShelf | None) -> Content:
    if shelf is None:
        return styled.loading()
    lines = [Content.styled("No data set is known here.", "bold $ink")]
    if shelf.problem:
        lines.append(styled.text(shelf.problem, "$warning"))
    lines += [
        Content(""),
        Content.styled("From source trees to verified shards, in one command:", "$ink-muted"),
        Content.styled("albor data build python-sources", "bold $accent"),
    ]
    return styled.rows(lines)
