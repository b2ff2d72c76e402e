"""What the store hands out: frozen rows, no cursors, no dicts of columns.

Times are UTC seconds, sizes bytes, steps optimizer steps. Unknown is None, never 0. Strings are as
they were recorded: a name may hold anything, so whoever draws it must treat it as data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from albor_core.run.light_dataclass import dataclass
from albor_core.store.rows.run_row import RunRow


@dataclass(frozen=True)
class EventRow:
    """Something that happened. `id` names it for ever: source file and first byte; "" of one that
    no store has yet.
    """

    id: str = ""
    run_id: str = ""
    source: str = ""
    wall: float | None = None
    attempt: int | None = None
    step: int | None = None
    name: str = ""
    severity: str = "info"
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class AlertRow:
    """An Andon alert. What it tells of may be over (`cleared_wall`), seen or not."""

    id: str
    run_id: str = ""
    run_name: str = ""
    rule: str = ""
    kind: str = ""  # rule, budget, brick, health, machine
    severity: str = ""
    action: str = ""
    metric: str | None = None
    value: float | None = None
    threshold: float | None = None
    message: str = ""
    step: int | None = None
    attempt: int | None = None
    wall: float | None = None
    acked_by: str | None = None
    acked_wall: float | None = None
    cleared_wall: float | None = None

    @property
    def is_open(self) -> bool:
        """Whether it still holds, and is not acknowledged."""
        return self.acked_by is None and self.cleared_wall is None


@dataclass(frozen=True)
class AttemptRow:
    """One attempt of a run. Guarded attempts carry the guard's judgement, others what the journal
    says. `exit_class` is the guard's word for its end (clean, oom, cuda, hang ...), `action` what
    it did then: restart, stop or fail.
    """

    attempt: int
    started: float | None = None
    ended: float | None = None
    pid: int | None = None
    code: int | None = None
    signal: str | None = None
    exit_class: str | None = None
    action: str | None = None
    reason: str | None = None
    delay_s: float | None = None
    report: str | None = None
    step: int | None = None
    diagnostic: bool = False
    adopted: bool = False
    last_wall: float | None = None
    """Where no end was recorded: when it last recorded anything."""


@dataclass(frozen=True)
class KeyStat:
    """A series in numbers. minimum and maximum may be infinite; `best` is finite, and None where
    nothing says which way the metric is better (run/values/directions.py, goals.py).
    """

    last: float | None
    best: float | None
    best_step: int | None
    minimum: float | None
    maximum: float | None
    count: int
    first_step: int | None
    last_step: int | None
    nonfinite: int
    axis: str = "step"
    """What first_step and last_step count: "step", or "seconds" since the run was made, of figures
    of the machine where the run logged no step.
    """


@dataclass(frozen=True)
class NoteRow:
    """A note about a run. `number` is what commands call it; a store knows none."""

    wall: float | None
    by: str
    text: str
    number: int | None = None


@dataclass(frozen=True)
class ArtifactRow:
    """A file that a run made."""

    name: str
    path: str
    kind: str
    bytes: int | None
    hash: str | None
    step: int | None
    wall: float | None


@dataclass(frozen=True)
class SampleRow:
    """Text that the model produced during training."""

    step: int | None
    wall: float | None
    prompt: str
    text: str


@dataclass(frozen=True)
class JournalPosition:
    """How far a run is indexed; `damaged` lines were skipped, `ignored` ones were of no known
    shape.
    """

    file: str
    offset: int
    lines: int
    damaged: int
    ignored: int


@dataclass(frozen=True)
class RunDetail:
    """What `run.json` said beyond the list's columns."""

    row: RunRow
    argv: tuple[str, ...]
    facts: Mapping[str, Any] = field(default_factory=dict)
