"""Documents of alerts, alert rules, notices and the attention list."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

from albor_core.documents.shapes import Closed, RuleAction, Severity


class AlertsAckDocument(TypedDict):
    """Which alerts were acknowledged."""

    schema: Literal["albor.alerts.ack/1"]
    run: str | None
    acknowledged: list[Any]


class AlertFields(TypedDict):
    id: str
    rule: str | None
    kind: str
    severity: Severity
    action: str | None
    metric: str | None
    value: float | None
    threshold: float | None
    message: str
    step: int | None


class StoredAlert(AlertFields):
    run_id: str
    run_name: str | None
    attempt: int | None
    wall: float | None
    acked_by: Any
    acked_wall: Any
    cleared_wall: float | None


class AlertsListDocument(TypedDict):
    """Andon alerts, newest first."""

    schema: Literal["albor.alerts.ls/1"]
    alerts: list[StoredAlert]


class SinkAnswer(Closed):
    name: str
    kind: Literal["webhook", "command", "desktop", "console"]
    severity: Severity
    ok: bool | None
    """Null where it is shown on a terminal and there is none."""
    detail: str


class NotifyTestDocument(TypedDict):
    """What each sink answered to a test message."""

    schema: Literal["albor.alerts.notify-test/1"]
    run: str | None
    sinks: list[SinkAnswer]


class AlertRuleFields(Closed):
    id: str
    condition: str
    metric: str
    action: RuleAction
    severity: Severity
    source: Literal["config", "user", "experiment", "foreign"]
    """The run's config, ALBOR_HOME/rules.yaml for all runs or for an experiment, or the config of a
    run that was not launched here.
    """
    evaluated_by: Literal["loop", "index", "nothing"]
    """The trainer's loop, the run's index process, or nothing: only a replay."""
    arm_step: int
    sentence: str


class AlertRulesDocument(Closed):
    """The Andon rules a run is watched by."""

    schema: Literal["albor.alerts.rules/1"]
    run: str
    problems: list[str]
    """Rules of its config and of rules.yaml that cannot be used; the exit code is then 2."""
    rules: list[AlertRuleFields]


class AlertEventFields(TypedDict):
    id: str
    rule: str
    kind: str
    severity: Severity
    state: Literal["fired", "cleared"]
    action: str
    metric: str
    message: str


class ReplayedAlert(AlertEventFields):
    value: str | float
    threshold: str | float
    step: int


class AlertRuleReplay(AlertRuleFields):
    points: int
    """Values that were compared."""
    untested: str | None
    """Why no value was compared; of a CONDITION the exit code is then 3."""
    exact: bool
    """False where only a preview of the curve is left."""
    alerts: list[ReplayedAlert]
    clears: list[ReplayedAlert]
    """What ended: each has the id of its alert, and the value that ended it."""


class AlertsTestDocument(Closed):
    """What rules would have said about the history of a run."""

    schema: Literal["albor.alerts.test/1"]
    run: str
    problems: list[str]
    """Rules of its config and of rules.yaml that cannot be used; the exit code is then 2."""
    expect: Literal["none", "fires"] | None
    """What --expect said; null where it was not given."""
    as_expected: bool | None
    """Whether all is as --expect said; the exit code is 1 where it is false."""
    unexpected: list[str]
    """Why it is not, a line for each rule."""
    rules: list[AlertRuleReplay]


class AttentionAckDocument(Closed):
    """The entries of attention that are now seen."""

    schema: Literal["albor.attention.ack/1"]
    entries: list[str]


class AttentionFields(Closed):
    id: str
    kind: str
    word: str
    severity: Severity
    run_id: str
    run_name: str
    host: str
    since_wall: float | None
    summary: str
    cost_gpu_hours: float | None
    cost: str
    cause: str
    key: str
    command: str
    acked_by: str
    muted_until: float | None
    path: str
    alert_ids: list[str]
    metric: str
    step: int | None
    is_open: bool


class AttentionChangeDocument(Closed):
    """One change of the list, of `albor attention --watch --json`."""

    schema: Literal["albor.attention.change/1"]
    change: Literal["new", "changed", "gone"]
    wall: float
    item: AttentionFields


class SinceLastLooked(Closed):
    wall: float | None
    completed: int
    died: int
    stopped: int
    best_metric: str
    best_run: str
    best_value: float | None


class AttentionEntry(AttentionFields):
    evidence: NotRequired[list[str]]


class AttentionDocument(Closed):
    """What needs a person now, the worst first, and how all other runs stand."""

    schema: Literal["albor.attention/1"]
    open: int
    severity: Severity | None
    quiet: bool
    gpu_hours: float
    fine: list[str]
    not_watched: list[str]
    tells_only: list[str]
    being_read: list[str]
    since_last_looked: SinceLastLooked
    problem: str
    items: list[AttentionEntry]


class SeenMark(TypedDict):
    by: str
    wall: float


class MutedMark(TypedDict):
    by: str
    until: float


class AttentionMarksDocument(Closed):
    """ALBOR_HOME/attention.json: what was said about entries of machines, and when each user last
    looked.
    """

    schema: Literal["albor.attention.marks/1"]
    acked: dict[str, SeenMark]
    muted: dict[str, MutedMark]
    looked: dict[str, float]


class AttentionMuteDocument(Closed):
    """The entries of attention that are muted, and until when."""

    schema: Literal["albor.attention.mute/1"]
    entries: list[str]
    until: float


class NoticeRun(TypedDict):
    id: str
    name: str
    experiment: str
    host: str


class NoticeAlert(AlertEventFields):
    value: str | float | None
    threshold: str | float | None
    step: int | None


class NoticeSummary(TypedDict):
    count: int
    dropped: int
    rules: dict[str, int]


class NoticeDocument(TypedDict):
    """What a webhook of format json and a command get: an alert, a summary of many, or a test."""

    schema: Literal["albor.notice/1"]
    run: NoticeRun
    severity: Severity
    text: str
    time: float | None
    alert: NotRequired[NoticeAlert]
    summary: NotRequired[NoticeSummary]
    test: NotRequired[bool]
