"""What the screens and `albor monitor` show, as frozen values. Unknown is None, never 0.

A feed makes these, a screen draws them; nothing here reads a file. Texts that came from a run
(names, messages, log lines) are raw: whoever prints them passes them through `feed.clean`. A number
may be NaN or infinite where the run measured that: NaN is data.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import field, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from albor_core.feed.view.diagnostics import NO_DIAGNOSTICS, RunDiagnostics
from albor_core.feed.view.newest import is_past_end
from albor_core.feed.view.run_status import LIVE_WORDS, LOADING, WORDS, RunStatus, shown_word
from albor_core.run.light_dataclass import dataclass
from albor_core.run.values.main_metrics import MainMetric
from albor_core.telemetry.sample import GpuSample, HostSample

if TYPE_CHECKING:
    from albor_core.store.rows.rows import AlertRow, AttemptRow, EventRow

__all__ = [
    "LIVE_WORDS",
    "LOADING",
    "WORDS",
    "BrickView",
    "BudgetView",
    "CheckpointView",
    "RunStatus",
    "RunView",
    "RunsView",
    "plain",
]


@dataclass(frozen=True)
class BrickView:
    """A timed part of a step, or of a log interval, with its budget."""

    name: str
    measured_ms: float | None = None
    budget_ms: float | None = None
    learned_ms: float | None = None
    """The learned budget, if no budget is set."""

    @property
    def is_over(self) -> bool:
        """Whether it takes longer than its budget."""
        known = self.measured_ms is not None and self.budget_ms is not None
        return known and self.measured_ms > self.budget_ms  # type: ignore[operator]


@dataclass(frozen=True)
class BudgetView:
    """What a run used of one amount, and what it comes to at its end. `amount` is a word of
    andon.budgets.limits.AMOUNTS; without a limit it is only counted.
    """

    amount: str
    unit: str = ""
    used: float | None = None
    limit: float | None = None
    soft: float | None = None  # share of the limit at which it warns
    action: str = ""
    at_completion: float | None = None
    exhausted_wall: float | None = None  # UTC seconds; None: not before the end

    @property
    def share(self) -> float | None:
        """The used share of the limit; more than 1 is over it."""
        known = self.used is not None and self.limit
        return self.used / self.limit if known else None  # type: ignore[operator]


@dataclass(frozen=True)
class CheckpointView:
    """The checkpoint of a restart, and the state of checkpointing."""

    last_step: int | None = None
    last_path: str | None = None
    last_wall: float | None = None
    best_step: int | None = None
    best_value: float | None = None
    in_flight: bool = False
    failures: int = 0


@dataclass(frozen=True)
class ChartChoice:
    """A chart of the Overview that a run's config asks for. `window` is in steps; 0: not said."""

    metric: str
    is_loss_curve: bool = False
    window: int = 0
    shows_eta: bool = False


@dataclass(frozen=True)
class TerminalView:
    """What a run's config says of its Overview (monitoring.terminal). Metrics are journal keys."""

    refresh_ms: int = 1000
    metrics: tuple[str, ...] = ()
    charts: tuple[ChartChoice, ...] = ()


@dataclass(frozen=True, slots=True)  # without a dict, which took 2 KB a row
class RunView:
    """One run as the screens show it. Numbers are the newest known; `is_live` says whether they are
    of this moment, `age_s` how many seconds old the last news is (None: no news at all).
    """

    id: str
    name: str = ""
    experiment: str = ""
    kind: str = "train"
    path: str = ""
    host: str = ""
    created: float | None = None
    status: str = LOADING  # until it was looked at; then a word of WORDS
    detail: str = ""
    is_live: bool = False
    is_silent: bool = False  # at work, and no news for much longer than its steps take
    is_starting: bool = False  # a later attempt than the first that has come to no step yet
    age_s: float | None = None
    last_wall: float | None = None  # when the last news was written, UTC seconds
    phase: str | None = None
    attempt: int | None = None
    step: int | None = None
    max_steps: int | None = None
    progress: float | None = None  # 0..1
    epoch: float | None = None
    tokens: int | None = None
    loss: float | None = None
    loss_ema: float | None = None
    val_loss: float | None = None
    val_ppl: float | None = None
    val_bpb: float | None = None
    val_step: int | None = None  # of val_loss, where that is known
    best_val_loss: float | None = None
    lr: float | None = None
    grad_norm: float | None = None
    tokens_per_s: float | None = None
    samples_per_s: float | None = None
    mfu: float | None = None  # 0..1
    step_ms: float | None = None
    eta_s: float | None = None
    eta_low_s: float | None = None  # a 90 % interval, where it is known
    eta_high_s: float | None = None
    finish_wall: float | None = None  # when it ends, UTC seconds, and the 90 % interval of that
    finish_low_wall: float | None = None
    finish_high_wall: float | None = None
    elapsed_s: float | None = None
    loss_history: tuple[float, ...] = ()
    metrics: tuple[MainMetric, ...] = ()  # that stand for it, the first one first
    trend: tuple[float, ...] = ()  # the curve of the one that lists name, where that is not a loss
    lr_history: tuple[float, ...] = ()
    grad_norm_history: tuple[float, ...] = ()
    alerts_open: int = 0
    severity: str = "info"  # the worst open alert; info: nothing is wrong
    last_alert: str = ""
    last_alert_step: int | None = None
    rules_watching: int | None = None  # what can raise an alert; 0: not watched, None: not known
    device: str = ""
    gpu: tuple[GpuSample, ...] = ()
    system: HostSample | None = None
    bricks: tuple[BrickView, ...] = ()
    brick_coverage: float | None = None  # 0..1, of a step
    health: Mapping[str, str] = field(default_factory=dict)  # words by title: "expected loss" ...
    budgets: tuple[BudgetView, ...] = ()
    checkpoint: CheckpointView = CheckpointView()
    guards: Mapping[str, Any] = field(default_factory=dict)  # nan_skipped, zclip, rollbacks ...
    guard: Mapping[str, Any] | None = None  # guard/guard.json as it is
    optimizer: str = ""
    batch_size: int | None = None
    model_path: str = ""
    trainer_pid: int | None = None
    guard_pid: int | None = None
    seed: int | None = None
    git_commit: str = ""
    command: tuple[str, ...] = ()  # the command line of run.json, without secrets
    terminal: TerminalView | None = None  # None: nothing is said, or it is not enabled
    ended_wall: float | None = None
    lines_lost: int = 0  # that it logged and no disk took, by its last words
    console_bytes_lost: int = 0  # that it printed and no log took
    attempts_total: int | None = None
    is_pinned: bool = False
    tags: tuple[str, ...] = ()
    # the rest is filled by RunFeed only
    alerts: tuple[AlertRow, ...] = ()
    attempts: tuple[AttemptRow, ...] = ()
    events: tuple[EventRow, ...] = ()
    diagnostics: RunDiagnostics = NO_DIAGNOSTICS

    @property
    def is_active(self) -> bool:
        """Whether a process works on the run."""
        return self.status in LIVE_WORDS

    @property
    def is_loading(self) -> bool:
        """Whether its files are still unread, so that what it lacks may still come."""
        return self.status == LOADING

    @property
    def shown_status(self) -> str:
        """The status as lists for people show it."""
        return shown_word(self.status, self.age_s if self.is_silent else None)

    @property
    def is_past_end(self) -> bool:
        """Whether it goes on past the steps that it was said to take."""
        return is_past_end(self.step, self.max_steps)

    @property
    def is_val_older(self) -> bool:
        """Whether its validation loss is known to be of another step than its other figures."""
        return self.val_step is not None and self.val_step != self.step

    @property
    def folder(self) -> Path | None:
        """The run directory, which may be gone."""
        return Path(self.path) if self.path else None

    def to_json(self) -> dict[str, Any]:
        """Every field but the diagnostics as strict JSON data: NaN and infinities become null."""
        names = (f.name for f in fields(self) if f.name != "diagnostics")
        shown = {name: getattr(self, name) for name in names}
        return dict(plain(shown | _named(self)))


_ALERT = (
    *("id", "severity", "message", "run_id", "rule", "kind", "action", "value", "threshold"),
    *("step", "attempt", "wall"),
)
_ATTEMPT = ("attempt", "started", "ended", "code", "signal", "step", "report")
_EVENT = ("name", "severity", "step", "wall", "attempt", "data")


def _named(view: RunView) -> dict[str, list[dict[str, Any]]]:
    """The store's rows of a run as albor.monitor/1 names them."""
    return {
        "alerts": [
            {name: getattr(row, name) for name in _ALERT}
            | {"metric": row.metric or ""}
            | {"is_acknowledged": row.acked_by is not None}
            for row in view.alerts
        ],
        "attempts": [
            {name: getattr(row, name) for name in _ATTEMPT}
            | {"kind": row.exit_class or "", "action": row.action or ""}
            | {"reason": row.reason or "", "is_diagnostic": row.diagnostic}
            for row in view.attempts
        ],
        "events": [{name: getattr(row, name) for name in _EVENT} for row in view.events],
    }


@dataclass(frozen=True)
class RunsView:
    """All runs a feed knows, newest first, and this machine's GPUs."""

    rows: tuple[RunView, ...] = ()
    gpus: tuple[GpuSample, ...] = ()
    gpus_why_none: str = ""
    problem: str = ""  # why the store could not be read, for the status line
    version: int = 0  # moves exactly when something above changed
    total: int = 0  # runs known so far
    is_complete: bool = True  # False while the first look at many old runs goes on

    @property
    def active(self) -> tuple[RunView, ...]:
        """The runs that a process works on."""
        return tuple(row for row in self.rows if row.is_active)


def plain(value: Any) -> Any:
    """Dataclasses, mappings and sequences as strict JSON data; non-finite numbers are null."""
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, MainMetric):
        return plain(value._asdict())
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | frozenset | set):
        return [plain(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, str | int | bool):
        return value
    return str(value)
