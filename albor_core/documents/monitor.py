"""Documents of a run at work: its record, its state now and who watches it."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

from albor_core.documents.alerts import AlertFields, AttentionFields
from albor_core.documents.guard import GuardNow, StatusFields
from albor_core.documents.runs import AttemptFields, HeadlineFields, MetricSummary
from albor_core.documents.shapes import Amount, Closed, GitState, Scalar, Severity


class LogLineDocument(Closed):
    """One line of `albor logs`."""

    schema: Literal["albor.logs/1"]
    attempt: int | None
    line: str


class RunRecordFields(TypedDict):
    id: str
    experiment: str
    name: str
    kind: str
    created: float | None
    argv: list[str | None]
    seed: NotRequired[int | None]
    host: str | None
    versions: dict[str, str | None]
    data: NotRequired[dict[str, Any] | None]
    max_steps: NotRequired[int | None]
    tags: NotRequired[dict[str, Scalar]]


class RunRecord(RunRecordFields):
    schema: str
    git: GitState
    path: str


class MonitoredStatus(StatusFields):
    is_active: bool | None
    is_live: bool | None


class HostFigures(TypedDict):
    cpu_percent: float | None
    rss_bytes: int | None
    memory_available_bytes: int | None
    memory_total_bytes: int | None
    disk_free_bytes: int | None
    load1: float | None


class BrickFigures(TypedDict):
    name: str
    measured_ms: float | None
    budget_ms: Any
    learned_ms: float | None
    """What it may take by what it took at first, where no budget was set."""


class BudgetUse(TypedDict):
    amount: Amount
    unit: str
    used: float | None
    limit: float | None
    soft: float
    """The share of the limit at which it warns."""
    action: str
    at_completion: float | None
    exhausted_wall: float | None
    """When the limit is reached, UTC seconds; null: not before the end."""


class CheckpointSummary(TypedDict):
    last_step: int | None
    last_path: str | None
    last_wall: float | None
    best_step: int | None
    best_value: float | None
    in_flight: bool | None
    failures: int | None


class TerminalChart(TypedDict):
    metric: str
    is_loss_curve: bool
    window: int
    shows_eta: bool


class TerminalChoices(TypedDict):
    refresh_ms: int
    metrics: list[str]
    charts: list[TerminalChart]


class RunNowFields(HeadlineFields):
    status: str
    detail: str | None
    is_live: bool | None
    is_silent: bool
    """At work, and no news for ten times what its steps take and at least 30 s."""
    is_starting: bool
    """A later attempt than the first is at work and has come to no step yet: step is null."""
    age_s: float | None
    attempt: int | None
    step: int | None
    progress: float | None
    tokens: int | None
    val_step: int | None
    """The step of val_loss, where that is known."""
    eta_s: Any
    eta_low_s: float | None
    eta_high_s: float | None
    finish_wall: float | None
    """When it ends, UTC seconds."""
    finish_low_wall: float | None
    finish_high_wall: float | None
    elapsed_s: float | None
    metrics: list[MetricSummary]
    """The metrics that stand for the run, at most four or all that are pinned, the first one first:
    pinned, with a goal, the house's losses, of other data, what moves most.
    """
    severity: Severity
    last_alert: str | None
    rules_watching: int | None
    """How many rules, limits and step-time budgets watch the run: 0 for none, null where that is
    not known.
    """
    device: str | None
    gpu: list[Any]
    brick_coverage: float | None
    health: dict[str, str]
    budgets: list[BudgetUse]
    """What the run used of each budget, and what it comes to; also of what has no limit."""
    optimizer: str | None
    model_path: str | None
    git_commit: str | None
    command: list[str]
    terminal: TerminalChoices | None
    lines_lost: int
    console_bytes_lost: int
    attempts_total: int | None
    is_pinned: bool | None


class RunNow(RunNowFields):
    phase: str | None
    epoch: float | None
    loss_ema: float | None
    lr: float | None
    grad_norm: float | None
    samples_per_s: float | None
    step_ms: float | None
    trend: list[float | None]
    """The curve of the first metric, where that is not a training loss."""
    loss_history: list[float | None]
    lr_history: list[float | None]
    grad_norm_history: list[float | None]
    last_alert_step: int | None
    system: HostFigures | None
    bricks: list[BrickFigures]
    checkpoint: CheckpointSummary | None
    guards: dict[str, int | None]
    batch_size: int | None
    trainer_pid: int | None
    guard_pid: int | None


class LastCheckpoint(TypedDict):
    step: int | None
    path: str
    wall: float | None


class StateNowCheckpoint(TypedDict):
    last: NotRequired[LastCheckpoint | None]
    best: NotRequired[Any]
    in_flight: bool | None
    failures: int | None
    last_step: NotRequired[int | None]
    last_path: NotRequired[str | None]
    last_wall: NotRequired[float | None]
    best_step: NotRequired[int | None]
    best_value: NotRequired[float | None]


class StateNowAlerts(TypedDict):
    severity: Severity
    last_alert: AlertFields | None


class JournalState(TypedDict):
    pending: int | None
    dropped: int | None
    error: Any


class StateFields(TypedDict):
    run_id: str
    attempt: int | None
    nonce: str | None
    pid: int | None
    start_ticks: int | None
    boot_id: str | None
    seq: int | None
    alive_seq: int | None
    mono_ns: int | None
    wall: float | None
    phase: str | None
    phase_since_mono_ns: int | None
    phase_limit_s: float | None
    elapsed_seconds: NotRequired[float | None]
    epoch: NotRequired[float | None]
    loss: NotRequired[float | None]
    loss_ema: NotRequired[float | None]
    val_loss: NotRequired[float | None]
    val_ppl: NotRequired[float | None]
    val_bpb: NotRequired[float | None]
    learning_rate: NotRequired[float | None]
    mfu: NotRequired[Any]
    gradient_norm: NotRequired[float | None]
    tokens_per_second: NotRequired[float | None]
    samples_per_second: NotRequired[float | None]
    step_ms: NotRequired[float | None]
    eta_seconds: NotRequired[float | None]
    eta_low_seconds: NotRequired[float | None]
    eta_high_seconds: NotRequired[float | None]
    loss_text: NotRequired[Any]
    global_step: NotRequired[int | None]
    max_steps: NotRequired[int | None]
    progress_percent: NotRequired[float | None]
    tokens: NotRequired[int | None]
    brick_budgets_ms: NotRequired[dict[str, float | None]]
    brick_learned_ms: NotRequired[dict[str, float]]
    """What bricks without a budget may take, by what they took at first."""
    brick_coverage: NotRequired[float | None]
    """The share of a step's time that its bricks explain, 0 to 1."""
    health: NotRequired[dict[str, str]]
    """What is said of the training's health, by title."""
    budgets: NotRequired[list[BudgetUse]]
    """What the run used of each budget, and what it comes to; also of what has no limit."""
    guards: NotRequired[dict[str, int | None]]
    journal: NotRequired[JournalState]
    optimizer_name: NotRequired[str | None]
    batch_size: NotRequired[int | None]
    model_path: NotRequired[str | None]
    checkpoint_path: NotRequired[str | None]
    executable_path: NotRequired[str | None]
    device: NotRequired[str | None]
    metrics: NotRequired[dict[str, list[str | float | None]]]
    """What else a tracked loop logs, at most eight: the newest value, the lowest and the
    highest.
    """
    loss_history: NotRequired[list[float | None]]
    lr_history: NotRequired[list[float | None]]
    grad_norm_history: NotRequired[list[float | None]]


class StateNow(StateFields):
    schema: str
    host: HostFigures | str | None
    gpu: NotRequired[list[Any] | None]
    system: NotRequired[HostFigures | None]
    bricks_ms: NotRequired[dict[str, float | None] | None]
    checkpoint: NotRequired[StateNowCheckpoint | None]
    andon: NotRequired[StateNowAlerts]
    history_steps: NotRequired[list[float | None]]


class MonitoredAlert(AlertFields):
    run_id: str
    attempt: int | None
    wall: float | None
    is_acknowledged: bool | None


class MonitoredAttempt(AttemptFields):
    kind: str
    is_diagnostic: bool | None


class MonitoredEvent(TypedDict):
    name: str
    severity: Severity
    step: int | None
    wall: float | None
    attempt: int | None
    data: dict[str, Any] | None


class MonitorDocument(TypedDict):
    """One run at one moment, with every field the cockpit shows."""

    schema: Literal["albor.monitor/1"]
    run: RunRecord
    status: MonitoredStatus
    age_s: float | None
    watched: str
    """Of a run at work: "watched by 3 rules and 1 budget", "not watched"."""
    attention: list[AttentionFields]
    """What of it needs a person now, as in albor.attention."""
    now: RunNow
    state: StateNow | None
    guard: GuardNow | None
    alerts: list[MonitoredAlert]
    attempts: list[MonitoredAttempt]
    events: list[MonitoredEvent]
    log_tail: list[str | None]


class CheckpointOfTable(TypedDict):
    last_step: Any
    last_path: Any
    last_wall: Any
    best_step: Any
    best_value: Any
    in_flight: bool | None
    failures: int | None


class RunOfTable(RunNowFields):
    phase: Any
    epoch: Any
    loss_ema: Any
    lr: Any
    grad_norm: Any
    samples_per_s: Any
    step_ms: Any
    trend: list[Any]
    """The curve of the first metric, where that is not a training loss."""
    loss_history: list[Any]
    lr_history: list[Any]
    grad_norm_history: list[Any]
    last_alert_step: Any
    system: Any
    bricks: list[Any]
    checkpoint: CheckpointOfTable | None
    guards: dict[str, Any]
    batch_size: Any
    trainer_pid: Any
    guard_pid: Any


class MonitorRunsDocument(TypedDict):
    """Every run of a home or folder at one moment: what the Runs screen shows."""

    schema: Literal["albor.monitor.runs/1"]
    gpus: list[Any]
    gpus_why_none: str | None
    problem: str | None
    total: int | None
    active: int | None
    runs: list[RunOfTable]


class UntrackedFiles(TypedDict):
    files: int
    code: dict[str, str]
    is_whole: bool


class RunGit(TypedDict):
    commit: Any
    dirty: Any
    patch: Any
    patch_sha256: NotRequired[str | None]
    untracked: NotRequired[UntrackedFiles | None]


class RunScript(TypedDict):
    path: str
    sha256: str
    bytes: int
    is_tracked: bool
    is_kept: bool


class RunDocument(RunRecordFields):
    """RUN_DIR/run.json: what a run is."""

    schema: Literal["albor.run/1"]
    git: RunGit
    script: NotRequired[RunScript | None]
    goals: NotRequired[dict[str, Literal["min", "max"]]]


class SpansDocument(TypedDict):
    """RUN_DIR/.albor/spans.json: which spans of a run a collector of traces has got."""

    schema: NotRequired[Literal["albor.spans/1"]]
    place: str
    sent: int
    dropped: int
    unsent: int
    why: str
    """What is wrong now, or was at the end."""
    refusal: NotRequired[str]
    """Why the last spans that were dropped were."""
    warning: NotRequired[str]
    """What the collector last said of spans that it took."""
    wall: float | None
    told: str
    memory: dict[str, Any] | None


class StateCheckpoint(TypedDict):
    last: LastCheckpoint
    best: Any
    in_flight: bool | None
    failures: int | None


class StateAlerts(TypedDict):
    severity: Severity
    last_alert: Any


class StateDocument(StateFields):
    """RUN_DIR/training_state.json: what a run is doing now."""

    schema: Literal["albor.state/1"]
    host: str | None
    val_step: NotRequired[int | None]
    """The step of val_loss."""
    news_gap_seconds: NotRequired[float | None]
    """What a tracked loop takes from one log to the next, smoothed."""
    gpu: NotRequired[list[Any]]
    system: NotRequired[HostFigures]
    bricks_ms: NotRequired[dict[str, float | None]]
    checkpoint: NotRequired[StateCheckpoint | None]
    andon: NotRequired[StateAlerts]
    history_steps: NotRequired[list[int | None]]


class WatchDocument(TypedDict):
    """RUN_DIR/.albor/watch.json: who watches a run, by which rules, and who could act."""

    schema: Literal["albor.watch/1"]
    pid: int
    wall: float
    by: Literal["index", "loop"]
    rules: int
    rule_texts: list[str]
    acts: bool
    why_tells_only: str
    sinks: list[Any]
    samples_machine: bool
    lines_lost: int
    words: dict[str, Any] | None
    finish: dict[str, float] | None
    budgets: list[dict[str, Any]]
    problems: list[str]
