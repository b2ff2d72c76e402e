"""Which runs are listed, in what order and in which groups: by what was asked for, and by what the
store answered where the list itself does not know. Pure."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from textual.content import Content

from albor_core.feed.view.run_view import LOADING, RunsView, RunView
from albor_tui.look import glyphs
from albor_tui.messages import FilterAnswered
from albor_tui.model.desk import Matches, RunQuery
from albor_tui.model.selection import RunSelection
from albor_tui.screens.runs.order import (
    GROUPS,
    SORTS,
    Group,
    arrange,
    grouped,
    is_plain,
    needed_for,
    next_order,
    question_of,
)
from albor_tui.widgets.base import styled
from albor_tui.widgets.run_columns import METRIC

if TYPE_CHECKING:
    from albor_core.feed.workspace.views import View

ASK_GAP_S = 2.0  # between two questions to a store that is too large to be here whole


class RunListing:
    """The runs that are known and the question that is asked of them. `to_load` may be read in any
    thread.
    """

    def __init__(self) -> None:
        self.view = RunsView(is_complete=False)
        self.words = ""
        self.order = "recent"
        self.is_reversed = False
        self.group = ""
        self.problem = ""  # of the words
        self.is_asking = False
        self._matches: Matches | None = None  # what the store keeps, where it was asked
        self._asked_at = 0.0

    def show(self, view: View) -> None:
        """Ask what a view asks."""
        self.words, self.order = view.filter, view.sort or "recent"
        self.is_reversed = view.is_reversed
        self.group = view.group if view.group in GROUPS else ""

    @property
    def shown(self) -> dict[str, Any]:
        """The fields of a view that say what is asked."""
        sort = "" if self.order == "recent" else self.order
        return {
            "filter": self.words, "sort": sort, "is_reversed": self.is_reversed,
            "group": self.group,
        }  # fmt: skip

    @property
    def query(self) -> RunQuery:
        """The present query of the store."""
        sort, descending = question_of(self.order, self.view.rows)
        return RunQuery(self.words, sort, descending != self.is_reversed)

    @property
    def to_load(self) -> frozenset[str]:
        """The runs of the store that the list needs."""
        matches = self._matches
        return frozenset() if matches is None else matches.ids

    @property
    def needed(self) -> frozenset[str]:
        """The runs whose metrics order or groups are made of."""
        return needed_for(self.order, self.group, self.view.rows)

    @property
    def column(self) -> str:
        """The title of the column that the order is by."""
        return self.order if self.order in SORTS else METRIC

    @property
    def groups(self) -> int:
        """How many there are of all runs."""
        return len(grouped(self.view.rows, self.group)[1])

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
        self.order = next_order(self.order, self.view.rows)

    def next_group(self) -> None:
        self.group = GROUPS[(GROUPS.index(self.group) + 1) % len(GROUPS)]

    def arranged(self) -> tuple[tuple[RunView, ...], tuple[Group, ...]]:
        """The runs that are listed, and where groups begin."""
        matches = self._matches if self.needs_store else None
        only = None if matches is None else matches.ids
        only = frozenset() if self.is_unanswered and not self.is_plain else only
        words = self.words if only is None else ""
        rows = arrange(
            self.view.rows, words=words, only=only, order=self.order, reverse=self.is_reversed
        )
        return grouped(rows, self.group)

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
            parts.append(Content.styled(f"by {self.group}  ", "$ink-muted"))
        if max(len(self.view.rows), self.view.total):
            arrow = glyphs.current.arrow_up if self.is_reversed else glyphs.current.arrow_down
            parts.append(styled.text(f"{arrow} {self.order}", "$ink-muted"))
        return Content("").join(parts)
