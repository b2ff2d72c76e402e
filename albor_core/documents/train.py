"""Documents of training: the plan, how it ended, and the files of a checkpoint."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

from albor_core.documents.guard import LastExit
from albor_core.documents.shapes import (
    Amount,
    ArchitectureCommon,
    GitState,
    ProblemFields,
    RunPlace,
)


class BaseWeightsDocument(TypedDict):
    """base.json of a checkpoint that holds a part of a model: where the rest of it lies,
    and its hash.
    """

    schema: Literal["albor.base/1"]
    folder: str | None
    hash: str
    file: str


class BestCheckpointDocument(TypedDict):
    """checkpoints/best.json: the checkpoint with the lowest validation loss."""

    schema: Literal["albor.best/1"]
    step: int | None
    metric: str | None
    value: float | None


class CheckpointFile(TypedDict):
    size: int | None
    algo: str | None
    hash: str | None


class JournalPlace(TypedDict):
    offset: int | None
    seq: int | None


class CheckpointManifestDocument(TypedDict):
    """manifest.json of a checkpoint."""

    schema: Literal["albor.checkpoint/1"]
    step: int | None
    run_id: str
    id: str
    parent_id: str | None
    created: float | None
    algo: str | None
    files: dict[str, CheckpointFile]
    journal: JournalPlace
    config_hash: str | None
    data_hash: str | None
    self_hash: str | None
    val_hash: NotRequired[str]
    weights: NotRequired[str]
    frozen_hash: NotRequired[str]
    beside_hash: NotRequired[str]


class CheckpointRow(TypedDict):
    name: str
    step: int
    state: Literal["verified", "whole", "damaged", "writing"]
    reason: str | None
    path: str
    bytes: int | None
    wall: float | None
    val_loss: float | None
    is_latest: bool
    is_best: bool


class CheckpointsListDocument(TypedDict):
    """The checkpoints of a run as they lie on the disk, newest first; tensors are not read."""

    schema: Literal["albor.checkpoints.ls/1"]
    run: str
    checkpoints: list[CheckpointRow]


class PrunedCheckpoint(TypedDict):
    name: str
    bytes: int


class CheckpointsPruneDocument(TypedDict):
    """Checkpoints that were removed, or with dry_run would be."""

    schema: Literal["albor.checkpoints.prune/1"]
    run: str
    dry_run: bool
    removed: list[PrunedCheckpoint]


class VerifiedCheckpoint(TypedDict):
    name: str
    is_whole: bool
    reason: str | None


class CheckpointsVerifyDocument(TypedDict):
    """Checkpoints of which every byte was read and compared with the manifest, newest first."""

    schema: Literal["albor.checkpoints.verify/1"]
    run: str
    checkpoints: list[VerifiedCheckpoint]


class TrainApplyDocument(TypedDict):
    """How a followed run ended, was left, or was detached."""

    schema: Literal["albor.train.apply/1"]
    run: RunPlace
    outcome: str
    exit_code: int | None
    exit: LastExit | None


class PlannedArchitecture(ArchitectureCommon):
    hidden_size: int | None
    num_hidden_layers: int | None
    num_attention_heads: int | None
    num_key_value_heads: int | None
    intermediate_size: int | None
    vocab_size: int | None
    max_position_embeddings: int | None
    rms_norm_eps: float | None
    rope_theta: float | None
    tie_word_embeddings: bool | None


class PlannedModel(TypedDict):
    mode: str
    """The recipe; of a class of the user's own nothing else is known here."""
    parameters: int | None
    flops_per_token: int | None
    precision: str | None
    architecture: PlannedArchitecture | None


class PlannedMemory(TypedDict):
    step: Literal["fused", "compiled", "plain"] | None
    """The step that the figures are for."""
    weights: int | None
    gradients: int | None
    optimizer: int | None
    half_copies: int | None
    activations: int | None
    start: int | None
    """What comparing steps before the first one needs beyond the rest."""
    evaluation: int | None
    """Of a micro-batch that is only scored; the larger of it and of activations and start counts in
    the total.
    """
    keeps_activations: bool | None
    """Whether the room of activations stays taken between steps, so that an evaluation
    comes on top.
    """
    overhead: int | None
    capacity: int | None
    total: int | None


class PlannedRanks(TypedDict):
    world_size: int | None
    batch_size: int | None
    accumulation: int | None
    strategy: str


class PlannedTraining(TypedDict):
    sequences: int | None
    steps_per_epoch: int | None
    reachable_steps: int | None
    max_steps: int | None
    tokens_per_step: int | None
    total_tokens: int | None
    warmup_steps: int | None
    checkpoints: int | None
    data_passes: float | None
    updates: int | None
    done_tokens: int | None
    learning_rate: list[list[float]] | None
    """[step, rate] from the first step to the last; null while the length is unknown."""


class PlannedDisk(TypedDict):
    checkpoint: int | None
    copies: int | None
    free: int | None
    journal: int
    """Bytes of journal.jsonl at the end, about."""
    stores: int
    """Bytes of the stores at the end, about."""
    cache: int
    """Of token ids below ALBOR_HOME, which all runs on these data share; not in total."""
    total: int | None


class PlannedDevice(TypedDict):
    kind: str
    name: str
    memory_bytes: int | None
    cpu_count: int | None


class PlannedTime(TypedDict):
    seconds: float | None
    assumption: str | None
    step_ms: float
    """Of a step, by the same assumption as `seconds`."""
    tokens_per_s: float
    """By the same assumption."""
    low_s: float
    high_s: float
    """`seconds` lies between low_s and this."""
    source: Literal["formula", "runs", "probe"]
    """What it rests on."""


class MeasuredParts(TypedDict):
    source: Literal["runs", "probe"]
    words: str
    tokens_per_s: float
    low: float
    high: float
    start_s: float
    eval_s: float | None
    checkpoint_s: float | None
    watts: float | None
    capped: float | None
    """Share of the samples in which a GPU was held back by its power limit."""


class PlannedExpenses(TypedDict):
    gpu_hours: float | None
    watts: float | None
    """Of all GPUs of the run."""
    watts_source: Literal["", "measured", "limit"]
    energy_kwh: float | None
    money: float | None
    currency: str


class PlannedUse(TypedDict):
    amount: Amount
    unit: str
    limit: float
    planned: float | None
    action: str
    soft: float


class TrainPlanDocument(TypedDict):
    """What `albor train apply` would run and cost; `problems` is empty when it may start."""

    schema: Literal["albor.train.plan/1"]
    config: str
    ok: bool
    model: PlannedModel
    memory: PlannedMemory
    distributed: PlannedRanks
    """What each rank does of a step."""
    data: dict[str, Any] | None
    training: PlannedTraining
    disk: PlannedDisk
    device: PlannedDevice
    code: GitState
    time: PlannedTime | None
    measured: MeasuredParts | None
    """The parts of a run as a probe or earlier runs had them."""
    expenses: PlannedExpenses
    problems: list[ProblemFields]
    warnings: list[Any]
    notes: list[str | None]
    andon: list[str | None]
    budgets: list[PlannedUse]


class TrainValidateDocument(TypedDict):
    """A config whose every field is good."""

    schema: Literal["albor.train.validate/1"]
    config: str
    ok: bool


class TrainerOrder(TypedDict):
    seed: int | None
    cursor: int


class TrainerProgress(TypedDict):
    step: int | None
    evaluated_step: int | None
    best_val: float | None
    evals_without_gain: int | None
    skipped: int | None
    last_command: Any
    kernels: dict[str, str]
    sequences: int
    before: int
    cursor: int
    unit: int


class TrainerReporterHistories(TypedDict):
    rows: list[list[float | None]]
    stride: int | None
    seen: int | None
    newest: Any


class TrainerReporter(TypedDict):
    loss_ema: list[float | None]
    histories: TrainerReporterHistories
    elapsed_s: float | None
    val_loss: float | None
    val_ppl: float | None
    val_bpb: float | None


class TrainerAndonRules(TypedDict):
    watches: NotRequired[list[dict[str, Any]]]
    windows: NotRequired[dict[str, Any]]
    latest: NotRequired[dict[str, Any]]
    step: NotRequired[int | None]
    armed: NotRequired[list[str | None]]
    firing: NotRequired[list[Any]]


class TrainerAndon(TypedDict):
    rules: TrainerAndonRules
    health: NotRequired[dict[str, Any]]
    warned: list[Any]


class TrainerRng(TypedDict):
    python: list[list[int | None] | int | None]
    numpy: list[str | float | None]
    torch: str | None
    cuda: list[Any]


class TrainerDocument(TypedDict):
    """trainer.json of a checkpoint: everything besides tensors that a resume needs."""

    schema: Literal["albor.trainer/1"]
    step: int | None
    tokens: int | None
    epoch: float | None
    order: TrainerOrder
    progress: TrainerProgress
    reporter: TrainerReporter
    andon: TrainerAndon
    scaler: Any
    rng: TrainerRng
    config: dict[str, Any]
    world_size: int | None
    device: str | None
    threads: int | None
    torch: str | None
    tally: list[str | None]
    spikes: NotRequired[dict[str, Any]]
