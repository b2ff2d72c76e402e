"""Documents of comparisons between runs, and of the demo, which ends with one."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

from albor_core.documents.runs import MetricFigures, RunRowFields

NoVerdict = Literal[
    "no_common_metric", "unknown_direction", "too_few_points", "no_common_steps", "not_finite"
]  # fmt: skip


class DemoRunFigures(TypedDict):
    id: str
    path: str
    learning_rate: float | None
    reused: bool | None
    attempts: int | None
    steps: int | None
    tokens: float | None
    val_loss_first: float | None
    val_loss: float | None
    val_ppl: float | None
    train_loss: float | None
    seconds: float | None


class UnjudgedMetric(TypedDict):
    metric: str
    reason: NoVerdict | None
    detail: str


class DiffVerdict(TypedDict):
    outcome: Literal["better", "worse", "indistinguishable", "contradictory"] | None
    reason: NoVerdict | None
    metric: str | None
    interval: list[float | None] | None
    """Bounds the difference, corrected for `comparisons`: it agrees with `outcome`."""
    confidence: float | None
    """How seldom chance alone makes any interval of a document leave 0 out."""
    comparisons: int
    """How many verdicts interval and outcome are corrected for together; 1: this one alone."""
    difference: float | None
    method: str | None
    detail: str | None
    unknown: list[Literal["config", "code", "command"]]
    unjudged: UnjudgedMetric | None
    """What was asked about where `metric` was taken instead, since it cannot be judged."""


class DemoDiff(TypedDict):
    schema: Literal["albor.runs.diff/1"]


class DemoDocument(TypedDict):
    """The demo's data, runs and verdict."""

    schema: Literal["albor.demo/1"]
    seconds: float | None
    data: dict[str, Any] | None
    runs: list[DemoRunFigures]
    verdict: DiffVerdict | None
    diff: DemoDiff


class DemoKill(TypedDict):
    attempt: int
    step: int | None
    signal: str
    resumed_from: int | None
    """The step of the checkpoint that the next attempt went on from."""
    report: str | None
    """The id of its crash report."""


class DemoScore(TypedDict):
    name: str
    value: float | None
    stderr: float | None
    n: int | None
    step: int | None


class DemoProofDocument(TypedDict):
    """The recorded run of `albor demo --proof`: where it was put, and what it shows, read from its
    files.
    """

    schema: Literal["albor.demo.proof/1"]
    run: str
    """Its id in this home."""
    path: str
    reused: bool
    """Whether it was there before, as it was recorded."""
    seconds: float
    """That opening it took."""
    status: Literal["completed", "stopped", "failed"] | None
    created: float | None
    """When it was recorded, UTC seconds."""
    device: str | None
    torch: str | None
    parameters: int | None
    steps: int | None
    steps_not_once: int
    """Steps, of those that were asked for, that its history does not have exactly once."""
    step_seconds: float | None
    """Of all steps together."""
    step_times: str
    """Which of them are not to be believed."""
    tokens: float | None
    attempts: int
    restarts: int
    """By its guard."""
    kills: list[DemoKill]
    train_loss: float | None
    val_loss: float | None
    val_bpb: float | None
    """Bits per byte of the validation batches."""
    scores: list[DemoScore]
    """Of the evaluations kept with it."""


class DiffedRun(RunRowFields):
    status: str
    is_at_work: bool


class ChangedKey(TypedDict):
    key: str
    values: list[Any]


class UnknownRunConfig(TypedDict):
    run: str
    reason: str
    hint: str


class RunsDiffReach(TypedDict):
    run: str | None
    other: str | None
    target: float | None
    step: int | None
    tokens: float | None
    seconds: float | None


class RunsDiffVerdict(DiffVerdict):
    run: str | None
    against: str | None


class RunsDiffCurve(TypedDict):
    steps: list[int | None]
    min: list[float | None]
    max: list[float | None]
    mean: list[float | None]


class RunsDiffDocument(TypedDict):
    """What differs between runs, and a verdict that knows noise."""

    schema: Literal["albor.runs.diff/1"]
    metric: str | None
    direction: Literal["min", "max"] | None
    runs: list[DiffedRun]
    left_out: list[str]
    config: list[ChangedKey]
    code: list[ChangedKey]
    data: list[ChangedKey]
    environment: list[ChangedKey]
    unrecorded: list[Literal["config", "code", "data"]]
    unknown_config: NotRequired[list[UnknownRunConfig]]
    metrics: dict[str, list[MetricFigures]]
    reach: list[RunsDiffReach]
    verdict: DiffVerdict | None
    verdicts: list[RunsDiffVerdict]
    curves: dict[str, list[RunsDiffCurve]]
