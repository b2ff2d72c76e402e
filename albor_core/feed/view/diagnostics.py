"""What a run's files say of its condition beside its figures: what watches it, how its attempts
ended, which values were not numbers, which of its troubles people have seen. Values alone;
feed/run/diagnostic_files.py reads them, of active runs and of those that ended lately.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING

from albor_core.run.headlines import HEADLINES
from albor_core.run.light_dataclass import dataclass
from albor_core.run.values.quantity import counted

if TYPE_CHECKING:
    from albor_core.store.rows.rows import AlertRow, AttemptRow


LOSSES = frozenset(one.key for one in HEADLINES if one.unit == "loss")
"""The figures of which a value that is not a number is a trouble. A gradient norm is none: that of
a step which a loss scaler skips is infinite by design."""


@dataclass(frozen=True, slots=True)
class Watched:
    """What evaluates a run's rules and budgets now; with `by` empty, what would or did. `rules` is
    None where that is not known.
    """

    rules: int | None = None
    budgets: int = 0  # limits of the whole run, and budgets of a step's parts
    by: str = ""  # loop, index, or "" for nothing
    acts: bool = False
    why_tells_only: str = ""
    dead_sinks: tuple[str, ...] = ()  # where alerts cannot be sent, and why
    lines_lost: int = 0
    problems: tuple[str, ...] = ()  # rules and sinks that cannot be used, and what failed

    @property
    def is_watched(self) -> bool:
        """Whether something evaluates at least one rule or budget."""
        return bool(self.by and self.counts)

    @property
    def counts(self) -> str:
        """ "3 rules", "2 budgets", "1 rule and 2 budgets"; "" for none."""
        found = ((self.rules or 0, "rule"), (self.budgets, "budget"))
        return " and ".join(counted(number, what) for number, what in found if number)

    @property
    def words(self) -> str:
        """ "watched by 3 rules", "watched by 1 rule, tells only: no guard", "not watched"."""
        if not self.is_watched:
            return "not watched"
        tells = "" if self.acts else f", tells only: {self.why_tells_only or 'no guard'}"
        return f"watched by {self.counts}{tells}"


@dataclass(frozen=True, slots=True)
class NonFinite:
    """Values of a headline figure that were NaN or infinite, in the newest attempt of a run."""

    key: str
    word: str  # nan, inf, -inf: the newest
    count: int = 1
    first_step: int | None = None
    last_step: int | None = None
    first_wall: float | None = None
    last_wall: float | None = None


@dataclass(frozen=True, slots=True)
class RunDiagnostics:
    """The diagnostics of one run. None and empty are "not known" and "nothing of the kind"."""

    watched: Watched = Watched()
    attempts: tuple[AttemptRow, ...] = ()  # of the guard's ledger, first to last
    exit_class: str = ""  # the guard's word for the newest end
    exit_code: int | None = None
    stopped_by_rule: bool = False  # the guard was asked to by a rule
    error: str = ""  # why it ended, in its own words or the guard's
    report: str = ""  # the newest crash report's file
    non_finite: tuple[NonFinite, ...] = ()
    lines_lost: int = 0
    console_bytes_lost: int = 0
    alerts: tuple[AlertRow, ...] = ()  # fired, not cleared and not acknowledged
    settled: frozenset[str] = frozenset()  # ids of alerts that cleared or were acknowledged
    acked: Mapping[str, str] = field(default_factory=dict)  # entry of attention -> who saw it
    muted: Mapping[str, float] = field(default_factory=dict)  # the same -> until when
    save_every: int | None = None  # steps between two checkpoints
    ranks: int | None = None  # processes that train together


NO_DIAGNOSTICS = RunDiagnostics()
