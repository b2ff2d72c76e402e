"""Which of many runs a workspace draws: those hidden, those alone, the one that is lifted. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import field, replace

from albor_core.run.light_dataclass import dataclass

MOST_RUNS = 100  # drawn at once

Members = frozenset[str]
"""The runs of one line of the legend: a run, or all of a group."""


@dataclass(frozen=True)
class Workspace:
    """The runs that a workspace lists, by id, and how it shows them.

    `listed` stays as it was when the workspace was opened, or as the user had it ordered since, so
    that each run has its place whatever becomes of it. `solo` are the runs shown alone; empty: all
    that are not hidden.
    """

    listed: tuple[str, ...] = ()
    total: int = 0  # how many were to be listed
    hidden: Members = frozenset()
    solo: Members = frozenset()
    lifted: Members = field(default_factory=frozenset)
    group: str = ""  # the param that the runs are grouped by

    @classmethod
    def begin(
        cls,
        runs: Sequence[str],
        hidden: Collection[str] = (),
        group: str = "",
        *,
        total: int | None = None,
    ) -> Workspace:
        """The first MOST_RUNS of these runs. Where all of them would be hidden none is."""
        listed = tuple(runs[:MOST_RUNS])
        kept = frozenset(hidden)
        is_empty = kept.issuperset(listed)
        hides = kept.difference(listed) if is_empty else kept
        return cls(listed, total or len(runs), hides, group=group)

    def ordered_by(self, figures: Mapping[str, float | None], better: str) -> Workspace:
        """The runs with the best figure first; behind them NaN, and those that have none."""

        def rank(run: str) -> tuple[int, float]:
            value = figures.get(run)
            if value is None or value != value:
                return (2 if value is None else 1), 0.0
            return 0, -value if better == "max" else value

        return replace(self, listed=tuple(sorted(self.listed, key=rank)))

    @property
    def shown(self) -> tuple[str, ...]:
        """The runs that are drawn, in the order of the list."""
        if self.solo:
            return tuple(run for run in self.listed if run in self.solo)
        return tuple(run for run in self.listed if run not in self.hidden)

    def shows(self, members: Members) -> bool:
        """Whether any of these runs is drawn."""
        return not members.isdisjoint(self.shown)

    def toggled(self, members: Members) -> Workspace:
        """These runs hidden if any of them is drawn, else shown. It goes on from what is drawn: a
        run that is shown beside those alone ends that they are alone."""
        drawn = set(self.shown)
        drawn = drawn - members if self.shows(members) else drawn | members
        elsewhere = self.hidden.difference(self.listed)
        return replace(self, hidden=elsewhere.union(self.listed) - drawn, solo=frozenset())

    def alone(self, members: Members) -> Workspace:
        """Only these runs; where that is so already, what was shown before."""
        return replace(self, solo=frozenset() if self.solo == members else members)

    def with_all(self) -> Workspace:
        """Every run shown, none before the others."""
        hidden = self.hidden.difference(self.listed)
        return replace(self, hidden=hidden, solo=frozenset(), lifted=frozenset())

    def lifting(self, members: Members) -> Workspace:
        """These runs before all others; none of them: no run is."""
        return replace(self, lifted=members)

    def grouped_by(self, param: str) -> Workspace:
        """The runs in groups of one value of a param; "" for each by itself."""
        return replace(self, group=param, lifted=frozenset(), solo=frozenset())

    @property
    def count(self) -> str:
        """How many of the runs are drawn: "8 shown of 42", "100 of 412 drawn"."""
        shown, listed = len(self.shown), len(self.listed)
        parts = [f"{shown} shown of {listed}" if shown != listed else f"{listed}"]
        if self.total > listed:
            parts = [f"{listed} of {self.total:,} drawn"]
            if shown != listed:
                parts.append(f"{shown} shown")
        return ", ".join(parts)
