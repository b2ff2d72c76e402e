"""Which columns a list of runs has: any metric, param, tag, note or built-in one, found by typing.

The same list chooses what runs are grouped by.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from textual import events, on, work
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from albor_core.feed.runs.cells import AMOUNTS
from albor_core.run.errors import AlborError
from albor_core.run.light_dataclass import dataclass
from albor_core.run.values.clean import clean
from albor_core.run.values.quantity import counted
from albor_core.store.query.column_names import ColumnNames
from albor_core.store.query.listing import TEXT_COLUMNS
from albor_tui.look import glyphs
from albor_tui.widgets.base import styled
from albor_tui.widgets.base.line_list import LineList
from albor_tui.widgets.run_columns import BUILT_IN, COLUMNS

_STATS = ("min", "max")
_ALONE = ("metric", "trend", "done", "ends", "seen", "alerts", "created", "id")  # no groups
_ABOUT = {"cost": "money spent, by the rates of its config", "energy": "kWh used"}


@dataclass(frozen=True)
class ColumnEntry:
    """A column that can be chosen: its key, what kind of thing it is, and more about it."""

    key: str
    kind: str
    about: str = ""


@dataclass(frozen=True)
class ColumnChoice:
    """What was chosen: the columns in order (none: the usual ones), and what to sort or group by,
    where that was asked for.
    """

    columns: tuple[str, ...] = ()
    sort: str | None = None
    group: str | None = None


def column_entries(names: ColumnNames, *, groups: bool = False) -> tuple[ColumnEntry, ...]:
    """All columns; with `groups` only what puts several runs together, and nothing first."""
    built_in = [
        ColumnEntry(key, "column", "" if column.title == key else column.title)
        for key, column in BUILT_IN.items()
        if not (groups and key in _ALONE)
    ]
    own = [ColumnEntry(key, "column", _ABOUT.get(key, "")) for key in (*TEXT_COLUMNS, *AMOUNTS)]
    known = {entry.key for entry in (*built_in, *own)}
    params = {name for name, _ in names.params}
    metrics = [
        ColumnEntry(f"{name}:last" if name in known | params else name, "metric", _runs(count))
        for name, count in names.metrics
    ]
    of_params = [
        ColumnEntry(name, "param", _runs(count))
        for name, count in names.params
        if name not in known
    ]
    if groups:
        first = ColumnEntry("", "column", "no groups")
        return (first, *of_params, *built_in, *own, *metrics)
    return (*built_in, *metrics, *of_params, *own)


def _runs(count: int) -> str:
    return counted(count, "run")


class ColumnPicker(LineList):
    """The columns that what was typed finds, those that are chosen first."""

    def __init__(self, chosen: Sequence[str]) -> None:
        super().__init__()
        self.chosen = list(chosen)
        self.entries: tuple[ColumnEntry, ...] = ()
        self.found: tuple[ColumnEntry, ...] = ()
        self._words: tuple[str, ...] = ()

    @property
    def current(self) -> ColumnEntry | None:
        return self.found[self.cursor] if self.cursor < len(self.found) else None

    def count(self) -> int:
        return len(self.found)

    def find(self, words: str) -> None:
        """List the columns whose key has all of the words."""
        self._words = tuple(words.lower().split())
        known = {entry.key: entry for entry in self.entries}
        first = [known.get(key, ColumnEntry(key, "", "no run has it")) for key in self.chosen]
        chosen = {*self.chosen}
        rest = [entry for entry in self.entries if entry.key not in chosen]
        every = [*first, *(one for entry in rest for one in self._with_stats(entry, chosen))]
        found = [one for one in every if all(word in _text(one) for word in self._words)]
        if self._words:  # a name that ends so is meant before one that has it somewhere
            found.sort(key=lambda one: (one.key not in chosen, _distance(one, self._words[0])))
        self.found = tuple(found)
        self.set_reactive(LineList.cursor, 0)
        self.scroll_to(y=0, animate=False)
        self.lines_changed()

    def _with_stats(self, entry: ColumnEntry, chosen: set[str]) -> Iterable[ColumnEntry]:
        yield entry
        if entry.kind == "metric" and self._words:
            name = entry.key.removesuffix(":last")
            for stat in _STATS:
                if (key := f"{name}:{stat}") not in chosen:
                    yield ColumnEntry(key, f"metric, {stat}", entry.about)

    def toggle(self) -> None:
        """Add the column under the cursor, or take it away. A list without names is none."""
        entry = self.current
        if entry is None or entry.key == "name":
            return
        if entry.key in self.chosen:
            self.chosen.remove(entry.key)
        else:
            self.chosen.insert(self._place_of(entry.key), entry.key)
        self.redraw(range(len(self.found)))

    def _place_of(self, key: str) -> int:
        """What a user adds of metrics and params stands behind the name, the rest at the end."""
        if key in BUILT_IN:
            return len(self.chosen)
        before = [at for at, one in enumerate(self.chosen) if one == "name" or one not in BUILT_IN]
        return max(before, default=-1) + 1

    def move_column(self, by: int) -> None:
        """Move the column under the cursor one place in the order of the columns."""
        entry = self.current
        if entry is None or entry.key not in self.chosen:
            return
        at = self.chosen.index(entry.key)
        to = min(max(0, at + by), len(self.chosen) - 1)
        self.chosen.insert(to, self.chosen.pop(at))
        keys = [one.key for one in self.found]
        if not self._words and keys[: len(self.chosen)] != self.chosen:
            place = {key: index for index, key in enumerate(self.chosen)}
            found = sorted(self.found, key=lambda one: place.get(one.key, len(place)))
            self.found = tuple(found)
            self.cursor = to
        self.redraw(range(len(self.found)))

    def draw_line(self, index: int, width: int) -> Content:
        entry = self.found[index]
        number = ""
        if entry.key in self.chosen:
            number = f"{self.chosen.index(entry.key) + 1}"
        mark = Content.styled(f"{number:>3} ", "$accent")
        about = styled.text(f"{entry.kind}  {entry.about:>10}", "$ink-muted")
        tone = "bold $ink" if number else "$ink"
        room = max(8, width - mark.cell_length - about.cell_length - 2)
        name = styled.fit_middle(styled.text(entry.key or "none", tone), room)
        return styled.pair(mark + name, about, width)


def _text(entry: ColumnEntry) -> str:
    return f"{entry.key} {entry.about if entry.kind == 'column' else ''} {entry.kind}".lower()


def _distance(entry: ColumnEntry, word: str) -> tuple[int, int]:
    key = entry.key.lower()
    last = key.replace(":", "/").replace(".", "/").split("/")
    how = 0 if key == word else 1 if word in last else 2 if key.startswith(word) else 3
    return (how if word in key else 4), len(key)


class _Search(Input):
    """The line for a part of a name. A space, which names do not have, goes to the list."""

    class Pressed(Message):
        """A space."""

    def on_key(self, event: events.Key) -> None:
        if event.key == "space":
            event.prevent_default()
            event.stop()
            self.post_message(self.Pressed())


class ColumnsScreen(ModalScreen["ColumnChoice | None"]):
    """Chooses columns, or with `groups` what to group by. `read` gives the names of metrics and
    params, in a thread.
    """

    BINDINGS = [
        Binding("enter", "choose", "Ok", priority=True),
        Binding("escape", "cancel", "Cancel"),
        Binding("up", "move(-1)", "Up", priority=True),
        Binding("down", "move(1)", "Down", priority=True),
        Binding("pageup", "move(-10)", "Page up", priority=True),
        Binding("pagedown", "move(10)", "Page down", priority=True),
        Binding("shift+up,ctrl+up", "order(-1)", "Earlier", priority=True),
        Binding("shift+down,ctrl+down", "order(1)", "Later", priority=True),
        Binding("ctrl+s", "sort", "Sort", priority=True),
        Binding("ctrl+r", "usual", "Usual", priority=True),
    ]

    @dataclass
    class NamesRead(Message):
        """The names of metrics and params, or why they cannot be read."""

        names: ColumnNames
        problem: str = ""

    def __init__(
        self, chosen: Sequence[str], read: Callable[[], ColumnNames], *, groups: bool = False
    ) -> None:
        super().__init__()
        self._before, self._read, self._groups = tuple(chosen), read, groups

    def compose(self) -> ComposeResult:
        self.set_class(glyphs.current.is_ascii, "-ascii")
        with Vertical(id="dialog", classes="-columns") as dialog:
            dialog.border_title = Content("group by" if self._groups else "columns")
            yield _Search(placeholder="type a part of a name", id="answer", compact=True)
            yield ColumnPicker(() if self._groups else self._before)
            yield Static(styled.loading(), id="reading", markup=False)
            yield Static(self._keys(), id="choices", markup=False)

    def _keys(self) -> Content:
        shift = "shift+arrows" if glyphs.current.is_ascii else "shift+\u2191\u2193"
        keys = [("space", "add, remove"), (shift, "order"), ("ctrl+s", "sort")]
        keys.append(("ctrl+r", "usual"))
        shown = (("enter", "ok"), *([] if self._groups else keys), ("esc", "cancel"))
        parts = [Content.assemble((key, "bold $accent"), f" {words}   ") for key, words in shown]
        return Content("").join(parts)

    def on_mount(self) -> None:
        self.query_one(_Search).focus()
        self._take(ColumnNames())
        self._read_names()

    @work(thread=True, exit_on_error=False)
    def _read_names(self) -> None:
        try:
            found = self.NamesRead(self._read())
        except AlborError as error:
            found = self.NamesRead(ColumnNames(), error.message)
        self.post_message(found)

    @on(NamesRead)
    def _show_names(self, message: NamesRead) -> None:
        reading = self.query_one("#reading", Static)
        reading.display = bool(message.problem)
        reading.update(styled.text(clean(message.problem), "$warning"))
        self._take(message.names)

    def _take(self, names: ColumnNames) -> None:
        listing = self.query_one(ColumnPicker)
        listing.entries = column_entries(names, groups=self._groups)
        listing.find(self.query_one(_Search).value)

    @on(Input.Changed)
    def _find(self, event: Input.Changed) -> None:
        event.stop()
        self.query_one(ColumnPicker).find(event.value)

    @on(_Search.Pressed)
    def _toggle(self) -> None:
        if not self._groups:
            self.query_one(ColumnPicker).toggle()

    def action_move(self, by: int) -> None:
        self.query_one(ColumnPicker).action_move(by)

    def action_order(self, by: int) -> None:
        if not self._groups:
            self.query_one(ColumnPicker).move_column(by)

    @on(LineList.Chosen)
    def action_choose(self) -> None:
        """Take the columns as they are; with nothing but a name typed, the one that was found."""
        listing = self.query_one(ColumnPicker)
        entry = listing.current
        if self._groups:
            self.dismiss(None if entry is None else ColumnChoice(group=entry.key))
            return
        is_typed = bool(self.query_one(_Search).value.strip())
        is_new = entry is not None and entry.key not in listing.chosen
        if is_typed and is_new and tuple(listing.chosen) == self._before:
            listing.toggle()
        self.dismiss(ColumnChoice(_unless_usual(listing.chosen)))

    def action_sort(self) -> None:
        listing = self.query_one(ColumnPicker)
        entry = listing.current
        if entry is None or self._groups:
            return
        if entry.key not in listing.chosen:
            listing.toggle()
        self.dismiss(ColumnChoice(_unless_usual(listing.chosen), sort=entry.key))

    def action_usual(self) -> None:
        if not self._groups:
            self.dismiss(ColumnChoice())

    def action_cancel(self) -> None:
        self.dismiss(None)


def _unless_usual(keys: Sequence[str]) -> tuple[str, ...]:
    """Columns in the order chosen; none where they are those of a list without a choice."""
    return () if [*keys] == [column.key for column in COLUMNS] else tuple(keys)
