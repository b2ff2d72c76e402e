"""What the run is: notes and tags, which are edited where they stand, its code, its relatives, what
it left behind and how it died."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, cast

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Container
from textual.content import Content
from textual.events import DescendantFocus
from textual.geometry import Offset
from textual.widgets import Static

from albor_core.feed.archive.card import Relative, RunCard
from albor_core.feed.view.run_view import RunView
from albor_core.run.values.clean import clean
from albor_core.store.index.annotations import MAX_CHARS
from albor_core.store.rows.rows import NoteRow
from albor_tui.look.naming import name_of
from albor_tui.model.desk import LiveDesk, reference
from albor_tui.screens.dialogs.confirm import ConfirmScreen
from albor_tui.screens.tabs.page import Page
from albor_tui.widgets.base import styled
from albor_tui.widgets.base.line_list import LineList
from albor_tui.widgets.edit_line import EditLine
from albor_tui.widgets.run.card_list import (
    LABEL,
    NEW_NOTE,
    TAGS,
    CardEntry,
    CardList,
    all_of,
    came_of,
    made_of,
)

if TYPE_CHECKING:
    from albor_core.feed.archive.archive import RunArchive
    from albor_tui.screens.base.run_actions import RunActionsScreen

MOST_CELLS = 80  # of a width beyond any terminal
_ON_LINES = frozenset(("open", "note", "tag", "copy", "edit_note", "remove_note", "side"))
_COPIED = 60  # characters in the line that says what was copied
_ASKED = 200  # of a note that is to be taken back
_LONGEST_TAG, _LONGEST_NOTE = MAX_CHARS["tag"], MAX_CHARS["note"]


@dataclass(frozen=True)
class CardWanted:
    """The card of the run."""

    PERIOD_S: ClassVar[float | None] = 2.0

    def put(self, archive: RunArchive) -> RunCard:
        return archive.card()


class CardPage(Page):
    """The tab with the inputs of a run and, beside or below them, its results."""

    BINDINGS = [
        Binding(
            "enter",
            "open",
            "Open",
            tooltip="Edit the note, open the run, the medium or the crash report",
        ),
        Binding("N", "note", "Note", tooltip="Write a note"),
        Binding("T", "tag", "Tags", tooltip="Edit the tags; quote one that has spaces"),
        Binding("y", "copy", "Copy", tooltip="Copy the line's path, command or text"),
        Binding("e", "edit_note", "Edit", show=False, tooltip="Edit the note under the cursor"),
        Binding("D", "remove_note", "Remove", show=False, tooltip="Take a note back; asks first"),
        Binding("left,right", "side", "Side", show=False, tooltip="The other side"),
    ]

    def __init__(self, name: str, view: RunView) -> None:
        super().__init__(name, view)
        # made here: the screen asks for the keys of their lines before they are mounted
        self._made, self._came = CardList(id="card-made-list"), CardList(id="card-came-list")
        self._card: RunCard | None = None
        self._edited: CardEntry | None = None  # what is being written
        self._keep: Callable[[str], str] = lambda _: ""
        self._new_after: int | None = None  # notes that there were before one was written
        self._named: CardEntry | None = None  # whose keys the key bar names

    def compose(self) -> ComposeResult:
        with Container(id="card-body"):
            yield Container(self._made, id="card-made", classes="frame")
            yield Container(self._came, id="card-came", classes="frame")
        yield Static(id="no-card", classes="empty", markup=False)
        yield EditLine(id="card-edit")

    @property
    def _edit(self) -> EditLine:
        return self.query_one(EditLine)

    @property
    def _current(self) -> CardEntry | None:
        listing = self._came if self._came.has_focus else self._made
        return listing.current

    @property
    def _screen(self) -> RunActionsScreen:
        return cast("RunActionsScreen", self.screen)

    # -- what is shown -------------------------------------------------------------------------

    def enter(self) -> None:
        self.ask(CardWanted())
        self._arrange()
        self._made.focus()

    def show_answer(self, answer: object) -> None:
        assert isinstance(answer, RunCard)
        self._card = answer
        self._arrange()

    def on_resize(self) -> None:
        self.call_later(self._arrange)  # the breakpoint classes are set after this event

    def _arrange(self) -> None:
        card = self._card
        self.query_one("#card-body").display = card is not None
        self.query_one("#no-card").display = card is None
        if card is None:
            self.say_empty(self.query_one("#no-card", Static), styled.loading)
            return
        beside = self.query_one("#card-came")
        is_beside = bool(came_of(card, MOST_CELLS)) and not self.screen.has_class("-narrow")
        if beside.display != is_beside:
            beside.display = is_beside
            if not is_beside and self._came.has_focus:
                self.screen.set_focus(self._made)
        self.call_after_refresh(self._fill)

    @on(CardList.Widened)
    def _fill(self) -> None:
        card = self._card
        if card is None:
            return
        is_beside = self.query_one("#card-came").display
        lines = made_of if is_beside else all_of
        self._made.show(lines(card, self._made.room, self._edited))
        self._came.show(came_of(card, self._came.room) if is_beside else [])
        self.query_one("#card-made").border_title = Content.styled("card", "bold $ink")
        self.query_one("#card-came").border_title = Content.styled("what came of it", "bold $ink")
        if self._new_after is not None and len(card.notes) > self._new_after:
            self._new_after = None
            self._made.stand_on_line(self._last_note())
        if self._edit.is_open:
            self._place_edit()

    def _last_note(self) -> int:
        notes = [i for i, line in enumerate(self._made.lines) if line.entry and line.entry.note]
        last = self._made.lines[notes[-1]].entry
        return next(i for i in notes if self._made.lines[i].entry == last)

    # -- what the keys do now --------------------------------------------------------------------

    @on(LineList.Moved)
    @on(DescendantFocus)
    def _name_keys(self) -> None:
        if self._current != self._named:
            self._named = self._current
            self.refresh_bindings()

    def key_word(self, action: str) -> str:
        entry = self._current
        if action != "open" or entry is None:
            return ""
        return {"note": "edit", "tags": "edit", "fact": "copy"}.get(entry.kind, "open")

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action in _ON_LINES and not self._is_shown:
            return False
        entry = self._current if self._is_shown else None
        if action in ("edit_note", "remove_note"):
            return entry is not None and entry.note is not None
        if action == "copy" or (action == "open" and entry is not None and entry.kind == "fact"):
            return entry is not None and bool(entry.copies)
        if action == "side":
            return bool(self.query_one("#card-came").display)
        return super().check_action(action, parameters)

    @property
    def _is_shown(self) -> bool:
        return self.is_mounted and self._card is not None

    # -- what is opened and copied -------------------------------------------------------------

    @on(LineList.Chosen)
    async def action_open(self) -> None:
        entry = self._current
        if entry is None:
            return
        if entry.kind == "note":
            await self.app.run_action("edit_note", self)
        elif entry.kind == "tags":
            await self.app.run_action("tag", self)
        elif entry.kind == "crash" and self._card is not None:
            from albor_tui.screens.dialogs.crash import CrashScreen  # loaded when it is wanted

            self.app.push_screen(CrashScreen(self._card.crashes))
        elif entry.relative is not None:
            self._open_relative(entry.relative)
        elif entry.medium is not None:
            from albor_tui.screens.dialogs.media import MediaScreen  # loaded when it is wanted

            self.app.push_screen(MediaScreen(self.view, *entry.medium))
        else:
            self.action_copy()

    def _open_relative(self, one: Relative) -> None:
        if not one.path:
            self._tell(f"no store here knows {clean(one.id)}", "$warning")
            return
        view = RunView(id=one.id, name=one.name, path=one.path, status=one.status, step=one.step)
        self.app.push_screen(self._screen.cockpit.run_screen(view, "card"))

    def action_copy(self) -> None:
        entry = self._current
        if entry is None or not entry.copies:
            self._tell("nothing to copy on this line", "$ink-muted")
            return
        words = clean(entry.copies, keep="\n\t")  # pasted text must not be executed
        self.app.copy_to_clipboard(words)
        self._tell(f"copied {clean(words, limit=_COPIED)}", "$ink")

    def action_side(self) -> None:
        if self.query_one("#card-came").display:
            self.screen.set_focus(self._made if self._came.has_focus else self._came)

    # -- what is written -----------------------------------------------------------------------

    def action_note(self) -> None:
        self._begin(NEW_NOTE, "", "a note", self._keep_note)

    def action_edit_note(self) -> None:
        note = self._note_at_cursor("edit")
        if note is not None:
            self._begin(CardEntry("note", note=note), note.text, "a note", self._keep_note)

    def action_remove_note(self) -> None:
        note = self._note_at_cursor("take back")
        if note is None or note.number is None:
            return
        number = note.number

        def decide(yes: bool | None) -> None:
            if yes:
                self._write("note", lambda desk, run: desk.edit_note(run, number, ""))

        question = Content.styled(f"Take note {number} back?", "bold $ink")
        words = f"{clean(note.text, limit=_ASKED)}\nIt goes from every list and search."
        self.app.push_screen(ConfirmScreen(question, words, decline="no, keep it"), decide)

    def action_tag(self) -> None:
        tags = () if self._card is None else self._card.tags
        self._begin(TAGS, shlex.join(tags), "tags, with spaces between them", self._keep_tags)

    def _note_at_cursor(self, verb: str) -> NoteRow | None:
        """The note that can be changed; says why there is none."""
        entry = self._current
        note = None if entry is None else entry.note
        if note is None:
            self._tell(f"cannot {verb}: no note under the cursor", "$ink-muted")
        elif note.number is None:
            self._tell(f"cannot {verb} a note: the run's folder is gone", "$warning")
            return None
        return note

    def _begin(self, entry: CardEntry, text: str, what: str, keep: Callable[[str], str]) -> None:
        """Have a text typed where it stands. `keep` takes it, or says why it cannot."""
        if self._card is None:
            return
        if self.screen.maximized is not None:
            self.screen.minimize()
        self._edited, self._keep = entry, keep
        self._fill()
        self._made.stand_on_line(self._edited_line())
        self._edit.open(text, f"{what}; enter keeps it, esc leaves it")
        self.call_after_refresh(self._place_edit)

    def _edited_line(self) -> int:
        """The first line of what is being written."""
        edited = self._edited
        number = edited.note.number if edited is not None and edited.note is not None else None
        for at, line in enumerate(self._made.lines):
            entry = line.entry
            if entry is None or edited is None or entry.kind != edited.kind:
                continue
            if edited.kind == "tags" or (entry.note and entry.note.number) == number:
                return at
        return 0

    @on(CardList.Scrolled)
    def _place_edit(self) -> None:
        if not self._edit.is_open:
            return
        listing, page = self._made, self.content_region
        area = listing.content_region
        row = self._edited_line() - round(listing.scroll_y)
        row = min(max(0, row), max(0, area.height - 1))
        at = Offset(area.x - page.x + 1 + LABEL, area.y - page.y + row)
        self._edit.place(at, max(8, listing.room - LABEL))

    @on(EditLine.Left)
    def _leave(self) -> None:
        self._edit.close()
        self._edited = None
        self.screen.set_focus(self._made)
        self._fill()

    @on(EditLine.Kept)
    def _take(self, message: EditLine.Kept) -> None:
        message.stop()
        why_not = self._keep(message.text)
        if why_not:
            self._tell(why_not, "$warning")
        else:
            self._leave()

    def _keep_note(self, text: str) -> str:
        note = None if self._edited is None else self._edited.note
        if not text.strip():
            return "" if note is None else "cannot keep an empty note: esc, then D takes it back"
        if len(text) > _LONGEST_NOTE:
            return f"cannot keep a note of {len(text):,} characters: {_LONGEST_NOTE:,} at most"
        if note is None:
            self._new_after = len(self._card.notes) if self._card is not None else None
            self._write("note", lambda desk, run: desk.annotate(run, "note", text))
        elif text != note.text and note.number is not None:
            number = note.number
            self._write("note", lambda desk, run: desk.edit_note(run, number, text))
        return ""

    def _keep_tags(self, text: str) -> str:
        try:
            tags = tuple(dict.fromkeys(tag for tag in shlex.split(text) if tag.strip()))
        except ValueError as error:
            return f"cannot keep the tags: {str(error).lower()}"
        if long := [tag for tag in tags if len(tag) > _LONGEST_TAG]:
            return f"cannot keep {clean(long[0], limit=20)!r}: {_LONGEST_TAG} characters at most"
        before = () if self._card is None else self._card.tags
        if set(tags) != set(before):
            self._write("tag", lambda desk, run: desk.set_tags(run, tags, before))
        return ""

    def _write(self, cmd: str, write: Callable[[LiveDesk, str], object]) -> None:
        """Write in a thread through the desk, then read the card again."""
        screen, run = self._screen, reference(self.view)
        desk = screen.desk

        def job() -> str:
            write(desk, run)
            self.post_message(self.Asks(self, self.question))
            return ""

        screen.act(cmd, name_of(self.view), job)

    def _tell(self, words: str, tone: str) -> None:
        self._screen.show_message(words, tone)
