"""Which runs are listed, in what order, columns and groups: by what was asked for, and by what the
store answered where the list itself does not know. Pure."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from textual.content import Content

from albor_core.feed.runs.cells import CellsWanted, RunCells
from albor_core.feed.runs.column_values import GROUPS, UNREAD, column_values
from albor_core.feed.view.run_view import LOADING, RunsView, RunView
from albor_core.run.values.clean import clean
from albor_core.run.values.quantity import counted
from albor_tui.look import glyphs
from albor_tui.messages import FilterAnswered
from albor_tui.model.desk import Matches, RunQuery
from albor_tui.model.selection import RunSelection
from albor_tui.screens.runs.grouping import MOST_PARAMS, column_title, grouped
from albor_tui.screens.runs.order import (
    RECENT,
    ColumnOrder,
    arrange,
    chosen,
    column_order,
    is_plain,
    my_metric,
    orders_of,
)
from albor_tui.widgets.base import styled
from albor_tui.widgets.run_columns import BUILT_IN, COLUMNS, METRIC, TableColumn, column_key
from albor_tui.widgets.run_list.lines import GroupLines
from albor_tui.widgets.run_list.own_columns import OwnColumns

if TYPE_CHECKING:
    from albor_core.feed.workspace.views import View

ASK_GAP_S = 2.0  # between two questions to a store that is too large to be here whole
MOST_COMPARED = 2_000  # runs whose params are compared, for what tells them apart

_USUAL = tuple(column.key for column in COLUMNS)


class RunListing:
    """The runs that are known and the question that is asked of them. `to_load` may be read in any
    thread.
    """

    def __init__(self) -> None:
        self.view = RunsView(is_complete=False)
        self.words = ""
        self.order = RECENT
        self.is_reversed = False
        self.group = ""
        self.keys: tuple[str, ...] = ()  # of the columns, where the user chose them
        self.unfolded: frozenset[str] = frozenset()  # labels of groups
        self.cells = RunCells()
        self.metrics: Mapping[str, str] = {}  # by experiment, where the user chose one
        self.metric = ""  # the column of what most of the listed runs are judged by
        self.problem = ""  # of the words
        self.is_asking = False
        self._own = OwnColumns()
        self._columns: tuple[TableColumn, ...] = COLUMNS
        self._made_of: tuple[object, ...] = ()
        self._arranged: tuple[RunView, ...] = ()
        self._arranged_of: tuple[object, ...] = ()  # what they were made of
        self._grouped: tuple[tuple[RunView, ...], GroupLines] = ((), GroupLines())
        self._grouped_of: tuple[object, ...] = ()
        self._listed: list[RunView] = []
        self._listed_of: tuple[object, ...] = ()
        self._matches: Matches | None = None  # what the store keeps, where it was asked
        self._asked_at = 0.0

    def show(self, view: View) -> None:
        """Ask what a view asks."""
        self.words, self.order = view.filter, column_key(view.sort) or RECENT
        self.is_reversed = view.is_reversed
        self.group_by(view.group)
        self.choose_columns(view.columns)

    @property
    def shown(self) -> dict[str, Any]:
        """The fields of a view that say what is asked."""
        sort = "" if self.order == RECENT else self.order
        return {
            "filter": self.words, "sort": sort, "is_reversed": self.is_reversed,
            "group": self.group, "columns": self.keys,
        }  # fmt: skip

    @property
    def query(self) -> RunQuery:
        """The present query of the store."""
        order = self._order
        if order is None:
            return RunQuery(self.words, "created", not self.is_reversed)
        return RunQuery(self.words, order.store, order.is_falling != self.is_reversed)

    @property
    def _order(self) -> ColumnOrder | None:
        key = self.sorted_by
        return None if key == RECENT else column_order(key, self.view.rows, self.cells)

    @property
    def sorted_by(self) -> str:
        """The key of the column that the order is by; "recent" where it is by none."""
        if self.order in (METRIC, "trend"):
            return self.metric or RECENT
        return self.order

    @property
    def sorted_column(self) -> str:
        """The key of the column on the screen whose head says so."""
        keys = {column.key for column in self._columns}
        by = self.sorted_by
        return METRIC if by == self.metric and by not in keys else by

    @property
    def is_rising(self) -> bool:
        """Whether the order goes up."""
        order = self._order
        return (order is not None and not order.is_falling) != self.is_reversed

    @property
    def to_load(self) -> frozenset[str]:
        """The runs of the store that the list needs."""
        matches = self._matches
        return frozenset() if matches is None else matches.ids

    def cells_wanted(self, visible: frozenset[str]) -> CellsWanted:
        """What the thread that polls is to read for the list."""
        own = tuple(key for key in self.keys if key not in BUILT_IN)
        needed = [self.sorted_by, self.group]
        if self.group:
            needed += [self.metric, *own]
        of_all = (k for k in needed if k == "seed" or k not in ("", RECENT, *BUILT_IN))
        some = self._listed[:MOST_COMPARED] if self.view.is_complete else []
        compared = tuple(view.id for view in some)
        return CellsWanted(own, tuple(dict.fromkeys(of_all)), visible, compared)

    @property
    def groups(self) -> tuple[str, ...]:
        """What the list can be grouped by in turn: "" for nothing first."""
        differing = self.cells.differing or ()
        return ("", *GROUPS, *differing[:MOST_PARAMS])

    @property
    def is_plain(self) -> bool:
        """Whether the words need no store."""
        return is_plain(self.words)

    @property
    def _is_cut(self) -> bool:
        """Whether the store has more runs than can be here at once."""
        return self.view.is_complete and self.view.total > len(self.view.rows)

    @property
    def needs_store(self) -> bool:
        return not self.is_plain or (self._is_cut and self.query != RunQuery())

    @property
    def is_unanswered(self) -> bool:
        """Whether the store has not yet said which runs are meant."""
        return self.needs_store and self._matches is None and not self.problem

    @property
    def is_due(self) -> bool:
        """Whether the store is to be asked again, the runs having changed."""
        is_old = not self._is_cut or time.monotonic() - self._asked_at > ASK_GAP_S
        return self.needs_store and not self.is_asking and is_old

    def reset_answer(self) -> None:
        """Another question was asked: what came of the last one is not of it."""
        self.problem = ""
        if not self.needs_store:
            self._matches = None

    def answer(self, message: FilterAnswered) -> bool:
        """Take over an answer of the store; return whether it is of the present query."""
        self.is_asking, self._asked_at = False, time.monotonic()
        if message.question != self.query:
            return False
        self.problem = message.problem
        self._matches = self._matches if message.found is None else message.found
        return True

    def next_order(self) -> None:
        """ColumnOrder by the next column."""
        self.choose_runs()
        orders = orders_of((column.key for column in self.columns_shown), self.metric)
        at = orders.index(self.sorted_by) if self.sorted_by in orders else -1
        self.order_by(orders[(at + 1) % len(orders)])

    @property
    def columns_shown(self) -> tuple[TableColumn, ...]:
        """The columns that a run of the list fills, or that the user added."""
        rows = self.view.rows
        return tuple(
            column
            for column in self._columns
            if column.is_own or not column.rank or any(map(column.has, rows))
        )

    def order_by(self, key: str) -> None:
        """ColumnOrder by this column, best or first values first; the same again turns it round."""
        key = column_key(key) or RECENT
        is_same = key == self.order
        self.is_reversed = is_same and not self.is_reversed
        self.order = key

    def group_by(self, key: str) -> None:
        """Group by this column, "" for none: each group is its heading at first."""
        key = column_key(key)
        if key != self.group:
            self.group, self.unfolded = key, frozenset()

    def next_group(self) -> None:
        groups = self.groups
        at = groups.index(self.group) if self.group in groups else -1
        self.group_by(groups[(at + 1) % len(groups)])

    def fold(self, label: str) -> None:
        """Fold a group, or unfold it."""
        self.unfolded ^= {label}

    def fold_all(self, labels: Sequence[str]) -> None:
        """Fold all groups; unfold all where all are folded."""
        self.unfolded = frozenset() if self.unfolded & {*labels} else frozenset(labels)

    def toggle_column(self, key: str) -> None:
        """Add a column behind the user's own, or take it away."""
        keys = [*(self.keys or _USUAL)]
        if key in keys:
            self.choose_columns([one for one in keys if one != key])
        else:
            self.choose_columns(_with_own(keys, key))

    def choose_columns(self, keys: Sequence[str]) -> None:
        """Show these columns; the usual ones where there are none."""
        self.keys = tuple(dict.fromkeys(map(column_key, keys)))
        self._made_of = ()
        self._own = OwnColumns()

    def columns(self, visible: tuple[RunView, ...]) -> tuple[TableColumn, ...]:
        """The columns, whose numbers tell the visible runs apart; the same ones as before where
        nothing they are made of has changed.
        """
        keys = self._keys_shown
        made_of = (keys, self.cells, visible)
        if not keys:
            self._columns = COLUMNS
        elif made_of != self._made_of:
            self._columns = self._own.columns(keys, self.cells, visible)
        self._made_of = made_of
        return self._columns

    @property
    def _keys_shown(self) -> tuple[str, ...]:
        """The user's columns, and what the list is sorted by where none of them says it."""
        by, keys = self.sorted_by, self.keys or _USUAL
        is_said = by in (RECENT, *keys) or (by == self.metric and METRIC in keys)
        return self.keys if is_said else _with_own(keys, by)

    @property
    def is_in_order(self) -> bool:
        """Whether it is known of each run what the list is sorted by."""
        by = self.sorted_by
        values = {} if by == RECENT else column_values(self.choose_runs(), by, self.cells)
        return all(value is not UNREAD for value in values.values())

    def choose_runs(self) -> list[RunView]:
        """The runs that are listed, in the order of the feed, of which it is known what they are
        judged by.
        """
        matches = self._matches if self.needs_store else None
        only = None if matches is None else matches.ids
        only = frozenset() if self.is_unanswered and not self.is_plain else only
        words = self.words if only is None else ""
        made_of = (self.view.rows, only, words, self.metrics)
        if made_of != self._listed_of:  # another order lists no other runs
            self._listed = chosen(self.view.rows, words, only)
            self.metric = my_metric(self._listed, self.metrics)
            self._listed_of, self._arranged_of = made_of, ()
        return self._listed

    def arranged(self) -> tuple[tuple[RunView, ...], GroupLines]:
        """The runs that are listed, and the headings of their groups."""
        rows = self.choose_runs()
        made_of = (self.order, self.is_reversed, self.cells)
        if made_of != self._arranged_of:  # a key that folds or selects moves no run
            self._arranged = arrange(rows, self._order, reverse=self.is_reversed)
            self._arranged_of, self._grouped_of = made_of, ()
        if not self.group:
            return self._arranged, GroupLines()
        arranged, lines = self._group()
        return arranged, lines.unfolded(self.unfolded)

    def _group(self) -> tuple[tuple[RunView, ...], GroupLines]:
        made_of = (self.group, self.keys)
        if made_of != self._grouped_of:
            by = self.sorted_by
            sort = "" if by in (RECENT, self.group) else "mean" if by == self.metric else "first"
            self._grouped = grouped(
                self._arranged,
                self.group,
                self.cells,
                metric=self.metric,
                own=[key for key in self.keys if key not in BUILT_IN],
                sort=sort,
                is_falling=not self.is_rising,
            )
            self._grouped_of = made_of
        return self._grouped

    def count(self, shown: int) -> str:
        """How many runs are listed, of how many."""
        total = max(len(self.view.rows), self.view.total)
        count = self._count_of(shown, total)
        if self.is_unanswered and not shown:
            return LOADING
        if self.view.is_complete:
            return count
        return f"{count}, {LOADING}" if total else LOADING

    def _count_of(self, shown: int, total: int) -> str:
        if self.needs_store and self._matches is not None and self._matches.total > shown:
            return f"{shown:,} of {self._matches.total:,} that match, of {total:,}"
        newest = ", the newest" if self._is_cut and not self.needs_store else ""
        return f"{shown:,} of {total:,}{newest}" if shown != total else f"{total:,}"

    def about(self, selection: RunSelection) -> Content:
        """A line about the selection, filter, grouping and order."""
        parts: list[Content] = []
        if selection.marked:
            but = f", {selection.hidden} of them hidden" if selection.hidden else ""
            parts.append(Content.styled(f"{len(selection.marked)} selected{but}  ", "$accent"))
        if self.problem:
            parts.append(styled.text(f"{self.problem}  ", "$error"))
        elif self.words:
            parts.append(styled.text(f"/{self.words}  ", "$accent"))
        if self.group:
            parts.append(styled.text(f"by {column_title(self.group)}  ", "$ink-muted"))
        if gone := [key for key in self.keys if key in self.cells.absent]:
            names = ", ".join(clean(key, limit=40) for key in gone[:2])
            more = f" and {counted(len(gone) - 2, 'other column')}" if len(gone) > 2 else ""
            parts.append(styled.text(f"no run has {names}{more}  ", "$warning"))
        if max(len(self.view.rows), self.view.total):
            arrow = glyphs.current.arrow_up if self.is_rising else glyphs.current.arrow_down
            by = column_title(self.sorted_by)
            parts.append(styled.text(f"{arrow} {by}", "$ink-muted"))
        return Content("").join(parts)


def _with_own(keys: Sequence[str], key: str) -> tuple[str, ...]:
    """The keys of columns with one more behind the user's own."""
    own = (at for at, one in enumerate(keys) if one == "name" or one not in BUILT_IN)
    place = max(own, default=-1) + 1
    return (*keys[:place], key, *keys[place:])
