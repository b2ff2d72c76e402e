"""Which of many runs are meant: those that are marked, the one under the cursor, those that are
compared. Pure."""

from __future__ import annotations

from dataclasses import replace

from albor_core.run.light_dataclass import dataclass


@dataclass(frozen=True)
class RunSelection:
    """The runs that a screen lists, by id, and those of them that are chosen.

    Marks and cursor belong to runs and not to lines: they stay where a list is read anew, ordered
    or filtered, and a run that a filter hides stays marked.
    """

    listed: tuple[str, ...] = ()
    marked: frozenset[str] = frozenset()
    cursor: str = ""

    @property
    def chosen(self) -> tuple[str, ...]:
        """The marked runs that are listed, in the order of the list."""
        if not self.marked:  # of ten thousand, for each key
            return ()
        return tuple(run for run in self.listed if run in self.marked)

    @property
    def hidden(self) -> int:
        """How many marked runs are not listed."""
        return len(self.marked) - len(self.chosen)

    @property
    def acted_on(self) -> tuple[str, ...]:
        """The runs that a key acts on: the selected ones, else the one under the cursor."""
        return self.chosen or ((self.cursor,) if self.cursor else ())

    @property
    def compared(self) -> tuple[str, ...]:
        """The chosen runs; beside a single one the run under the cursor."""
        chosen = self.chosen
        is_alone = len(chosen) == 1 and self.cursor not in ("", *chosen)
        return (*chosen, self.cursor) if is_alone else chosen

    @property
    def from_cursor(self) -> tuple[str, ...]:
        """The listed runs from the one under the cursor on, round the end."""
        at = self.listed.index(self.cursor)
        return (*self.listed[at:], *self.listed[:at])

    def index_in(self, listed: tuple[str, ...], at: int) -> int:
        """The cursor's index in another list: on its run, else as near to `at` as possible."""
        if self.cursor in listed:
            return listed.index(self.cursor)
        return min(at, max(0, len(listed) - 1))

    def toggled(self) -> RunSelection:
        """The selection with the run under the cursor marked, or unmarked."""
        return replace(self, marked=self.marked ^ {self.cursor})

    def turned(self) -> RunSelection:
        """The selection with the cursor on the next run, wrapping at the end."""
        return replace(self, cursor=[*self.from_cursor, self.cursor][1])
