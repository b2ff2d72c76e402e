"""How the list of runs is arranged: order, columns, groups, what of it is selected."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from textual import on
from textual.binding import Binding
from textual.message import Message

from albor_core.feed.runs.cells import CellsWanted, RunCells
from albor_core.feed.runs.column_values import GROUPS
from albor_core.run.light_dataclass import dataclass
from albor_core.run.values.clean import clean
from albor_core.run.values.quantity import counted
from albor_tui.look import glyphs
from albor_tui.screens.base.named_views import NamedViewScreen
from albor_tui.screens.runs.grouping import column_title
from albor_tui.screens.runs.judged import JudgedRunsScreen
from albor_tui.screens.runs.listing import RunListing
from albor_tui.screens.runs.order import RECENT
from albor_tui.widgets.run_columns import COLUMNS, METRIC
from albor_tui.widgets.run_table import RunTable

if TYPE_CHECKING:
    from albor_core.store.query.column_names import ColumnNames

MOST_PLACES = 1_000  # metrics, and params, that the palette looks through
SUMS = (METRIC, "trend", "done")  # columns that a list is not put in order by


@dataclass
class CellsRead(Message):
    """What is known of the user's columns."""

    cells: RunCells

    def can_replace(self, message: Message) -> bool:
        return isinstance(message, CellsRead)


ARRANGING = (
    Binding("s", "sort", "Sort", tooltip="Sort by your metric, then by each column"),
    Binding("C", "columns", "Columns", tooltip="Choose columns: any metric, param, tag, note"),
    Binding("g", "group", "Group", tooltip="Group by experiment, state, tag, host, or params"),
    Binding("G", "group_by", "Group by", show=False, tooltip="Group by any param or column"),
    Binding("z", "fold_all", "Fold", show=False, tooltip="Fold all groups, or unfold them"),
    Binding("S", "reverse", "Reverse", show=False, tooltip="Turn the order round"),
    Binding("a", "select_all", "All", show=False, tooltip="Select all that are shown, or none"),
)
"""The keys that arrange a list."""


class ArrangingScreen(NamedViewScreen, JudgedRunsScreen):
    """A list of runs whose keys arrange it. What the user chose is kept with the view."""

    def __init__(self) -> None:
        super().__init__()
        self._listing = RunListing()
        self._names: ColumnNames | None = None  # of metrics and params, once the palette asked
        self.wanted = CellsWanted()
        """What the thread that polls is to read; written and read whole."""

    def list_runs(self, *, is_asked: bool = False, is_sorted: bool = False) -> None:
        """List what is known now."""
        raise NotImplementedError

    def ask_anew(self, *, is_sorted: bool = False) -> None:
        """Another filter or order."""
        raise NotImplementedError

    def want(self, wanted: CellsWanted) -> None:
        """Have the thread read these cells."""
        before, self.wanted = self.wanted, wanted
        if replace(before, visible=frozenset()) != replace(wanted, visible=frozenset()):
            self.poll_now()

    @on(CellsRead)
    def show_cells(self, message: CellsRead) -> None:
        question = self._listing.query
        self._listing.cells = message.cells
        if question == self._listing.query:
            self.list_runs()
        else:
            self.ask_anew()

    # -- order -----------------------------------------------------------------------------------

    def action_sort(self) -> None:
        self._listing.metrics = self.cockpit.views.metrics
        self._listing.next_order()
        self._sorted()

    def action_reverse(self) -> None:
        self._listing.is_reversed = not self._listing.is_reversed
        self._sorted()

    @on(RunTable.HeadClicked)
    def sort_by_head(self, message: RunTable.HeadClicked) -> None:
        key = message.key
        if key in (METRIC, "trend"):
            key = self._listing.metric or RECENT
        self._listing.order_by(key)
        self._sorted()

    def _sorted(self) -> None:
        self.ask_anew(is_sorted=True)

    def action_metric(self) -> None:
        super().action_metric()
        self.list_runs()

    def read_places(self) -> None:
        self._names = self.desk.column_names()

    def places(self) -> Iterator[tuple[str, str, Callable[[], object]]]:
        """Orders, columns and groups; of a list that is long, those that most runs have."""
        listing, names = self._listing, self._names
        known: list[tuple[str, str]] = []
        params: list[tuple[str, str]] = []
        if names is not None:
            known = [(key, f"metric of {counted(n, 'run')}") for key, n in names.metrics]
            params = [(key, f"param of {counted(n, 'run')}") for key, n in names.params]
        known, params = known[:MOST_PLACES], params[:MOST_PLACES]
        built_in = [(column.key, "column") for column in COLUMNS if column.key not in SUMS]
        for key, about in (*known, *params):
            verb = "Remove" if key in listing.keys else "Add"
            yield f"{verb} column {clean(key)}", about, partial(self._toggle_column, key)
        for key, about in (*built_in, *known, *params):
            if key != listing.sorted_by:
                yield f"Sort by {clean(column_title(key))}", about, partial(self._sort_by, key)
        groups = [(key, "column") for key in GROUPS]
        for key, about in (*groups, *params):
            if key != listing.group:
                yield f"Group by {clean(column_title(key))}", about, partial(self._group_by, key)
        if listing.group:
            yield "Group by nothing", "every run in one list", partial(self._group_by, "")

    def _sort_by(self, key: str) -> None:
        self._listing.order_by(key)
        self._sorted()

    def _group_by(self, key: str) -> None:
        self._listing.group_by(key)
        self._grouped()

    def _toggle_column(self, key: str) -> None:
        self._listing.toggle_column(key)
        self.keep_view(**self._listing.shown)
        self.list_runs(is_asked=True)

    # -- columns ---------------------------------------------------------------------------------

    def action_columns(self) -> None:
        from albor_tui.screens.dialogs.columns import ColumnsScreen

        chosen = self._listing.keys or tuple(column.key for column in COLUMNS)
        self.app.push_screen(ColumnsScreen(chosen, self.desk.column_names), self._choose)

    def _choose(self, choice: Any) -> None:
        if choice is None:
            return
        self._listing.choose_columns(choice.columns)
        self.keep_view(**self._listing.shown)
        if choice.sort is None:
            self.list_runs(is_asked=True)
        else:
            self._listing.order_by(choice.sort)
            self._sorted()

    # -- groups ----------------------------------------------------------------------------------

    def action_group(self) -> None:
        self._listing.next_group()
        self._grouped()

    def action_group_by(self) -> None:
        from albor_tui.screens.dialogs.columns import ColumnsScreen

        def choose(choice: Any) -> None:
            if choice is not None:
                self._group_by(choice.group or "")

        self.app.push_screen(ColumnsScreen((), self.desk.column_names, groups=True), choose)

    def _grouped(self) -> None:
        group = self._listing.group
        self.keep_view(**self._listing.shown)
        words = f"grouped by {clean(column_title(group), limit=60)}: enter unfolds, z all"
        self.show_message(words if group else "not grouped", "$ink-muted")
        self.list_runs(is_asked=True)

    @on(RunTable.GroupToggled)
    def fold_group(self, message: RunTable.GroupToggled) -> None:
        self.fold(message.label)

    def fold(self, label: str) -> None:
        """Fold a group of this label, or unfold it."""
        self._listing.fold(label)
        self.list_runs(is_asked=True)

    def action_fold_all(self) -> None:
        table = self.query_one(RunTable)
        if not table.groups.lines:
            self.show_message("not grouped: g groups, G by any param", "$ink-muted")
            return
        self._listing.fold_all([line.label for line in table.groups.lines])
        self.list_runs(is_asked=True)

    # -- selection -------------------------------------------------------------------------------

    def action_select(self) -> None:
        """Select the run under the cursor, or all those of the group."""
        table = self.query_one(RunTable)
        runs = frozenset(view.id for view in table.under_cursor)
        if not runs:
            return
        marked = table.selection.marked
        marked = marked - runs if runs <= marked else marked | runs
        table.selection = replace(table.selection, marked=marked)
        table.action_move(1)
        self.list_runs()

    def action_select_all(self) -> None:
        """Select all that are shown; none where they are."""
        table = self.query_one(RunTable)
        shown = frozenset(table.selection.listed)
        marked = table.selection.marked
        marked = marked - shown if shown <= marked else marked | shown
        table.selection = replace(table.selection, marked=marked)
        words = f"{counted(len(shown), 'run')} selected" if marked else "none selected"
        self.show_message(words, "$ink-muted")
        self.list_runs()


def hidden_columns(left: int, right: int) -> str:
    """How many columns do not fit, and on which side they are."""
    g = glyphs.current
    words = [f"  {g.arrow_left} +{left}"] if left else []
    words += [f"  +{counted(right, 'column')} {g.arrow_right}"] if right else []
    return "".join(words)
