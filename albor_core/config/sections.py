"""The sections of a training config. The docstring under a field is the only description of it.

Keys are those users have on disk (`optimizer.lr`, `training.gradient_accumulation`). Unknown keys
are refused. A section whose fields all have defaults may be left out or empty.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from albor_core.config.choices import AlertAction, OptimizerName, ScheduleName
from albor_core.config.microbatches import MAX_RANKS
from albor_core.config.shape import ModelShape
from albor_core.run.errors import ConfigError, Problem
from albor_core.run.guard_options import Options
from albor_core.run.headlines import HOUSE_NAMES
from albor_core.run.values.numbers import parse_count, parse_real

CROSS_CHECK = "cross_check"  # error type that carries the Problems of a section


def _text(value: object) -> object:
    """Numbers and booleans where a tag is a word: `year: 2026` means "2026"."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


def _auto_or_bool(value: object) -> object:
    words = {"auto": "auto", "true": True, "yes": True, "on": True}
    words |= {"false": False, "no": False, "off": False}
    word = str(value).lower() if isinstance(value, str | bool) else ""
    if word not in words:
        raise ValueError("must be auto, true or false")
    return words[word]


def _precision(value: object) -> object:
    aliases = {"no": "fp32", "none": "fp32", "float16": "fp16", "bfloat16": "bf16"}
    if value is None or value is False:
        return "fp32"
    return aliases.get(value.lower(), value.lower()) if isinstance(value, str) else value


def _convert(parse: Any) -> Any:
    """Our sentence as a pydantic error; a ValueError would be prefixed with 'Value error, '."""

    def convert(value: object) -> object:
        try:
            return parse(value)
        except ValueError as error:
            raise PydanticCustomError("value", str(error)) from error

    return convert


def _real(value: object) -> float:
    try:
        return parse_real(value)
    except OverflowError:  # beyond a double
        return math.inf


_INT = BeforeValidator(_convert(parse_count), json_schema_input_type=int | str)
_REAL = BeforeValidator(_convert(_real), json_schema_input_type=float | str)

Count = Annotated[int, Field(gt=0, le=2**62), _INT]  # at least one
CountOrZero = Annotated[int, Field(ge=0, le=2**62), _INT]
Tokens = Annotated[int, Field(ge=2, le=2**62), _INT]  # the last one is only a target
Layers = Annotated[int, Field(ge=1, le=10_000), _INT]  # each has names that a plan lists
Threads = Annotated[int, Field(ge=1, le=1024), _INT]  # OpenMP dies of 100,000

# Bounds of numbers are wide, and inside what fp32 holds together with their products.
Rate = Annotated[float, Field(ge=1e-12, le=100), _REAL]
RateOrZero = Annotated[float, Field(ge=0, le=100), _REAL]
Epsilon = Annotated[float, Field(ge=1e-30, lt=1), _REAL]
Scale = Annotated[float, Field(ge=0.5, le=10), _REAL]
ScaleOrZero = Annotated[float, Field(ge=0, le=10), _REAL]
QUIETEST = 0.01  # below it blocks that write alike are quieter than those that need not
Factor = Annotated[float, Field(ge=1e-12, le=1e12), _REAL]
Hours = Annotated[float, Field(gt=0, le=1e6), _REAL]
Milliseconds = Annotated[float, Field(gt=0, le=1e9), _REAL]
Seconds = Annotated[float, Field(ge=0.001, le=365 * 86400), _REAL]
SecondsOrZero = Annotated[float, Field(ge=0, le=365 * 86400), _REAL]
Fraction01 = Annotated[float, Field(ge=0, lt=1), _REAL]
Word = Annotated[str, BeforeValidator(_text)]


def _metric(value: object) -> object:
    if value in HOUSE_NAMES or not isinstance(value, str) or _KEY.fullmatch(value):
        return value
    names = ", ".join(HOUSE_NAMES)
    raise ValueError(f"must be one of {names} or a key such as brick/data_ms")


_KEY = re.compile(r"[\w.-]+(/[\w.-]+)+")
Metric = Annotated[str, BeforeValidator(_convert(_metric))]
Reading = Literal["gpu_utilization", "memory", "temperature", "power"]


class Section(BaseModel):
    """Frozen; unknown keys refused; `problems` says what does not fit together."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        use_attribute_docstrings=True,
        allow_inf_nan=False,
        protected_namespaces=(),
    )

    def problems(self) -> Iterator[Problem]:
        """What is wrong between fields that are right by themselves; fields relative to here."""
        yield from ()

    @model_validator(mode="before")
    @classmethod
    def _empty_section_is_defaults(cls, value: Any) -> Any:
        return {} if value is None else value

    @model_validator(mode="after")
    def _fields_fit_together(self) -> Self:
        if found := tuple(self.problems()):
            raise PydanticCustomError(CROSS_CHECK, "fields do not fit", {"found": found})
        return self


class ArchitectureConfig(Section):
    """Shape of a LLaMA-style decoder; names are those of transformers.LlamaConfig. num_layers,
    num_heads, num_kv_heads and max_seq_length are read as well. There are no biases: use_bias,
    attention_bias and mlp_bias may say false."""

    ALIASES: ClassVar[Mapping[str, str]] = {
        "num_layers": "num_hidden_layers",
        "num_heads": "num_attention_heads",
        "num_kv_heads": "num_key_value_heads",
        "max_seq_length": "max_position_embeddings",
    }
    ABSENT: ClassVar[tuple[str, ...]] = ("use_bias", "attention_bias", "mlp_bias")

    hidden_size: Count
    """Width of the residual stream."""
    num_hidden_layers: Layers
    """Decoder blocks."""
    num_attention_heads: Count
    """Query heads; divides hidden_size."""
    num_key_value_heads: Count
    """Key/value heads (grouped-query attention); divides num_attention_heads."""
    intermediate_size: Count
    """Width of the SwiGLU feed-forward layer."""
    vocab_size: Count
    """Rows of the embedding; at least the tokenizer's vocabulary."""
    max_position_embeddings: Count
    """Longest sequence the model is meant for."""
    rms_norm_eps: Epsilon = 1e-5
    """Added to the mean square in RMSNorm."""
    rope_theta: Annotated[float, Field(ge=1, le=1e12), _REAL] = 10000.0
    """Base of the rotary embedding's wavelengths."""
    tie_word_embeddings: bool = True
    """Whether the output head shares the embedding's weights."""

    @model_validator(mode="before")
    @classmethod
    def _other_names(cls, value: Any) -> Any:
        """Fields under the names that other configs have for them, and what may only be off."""
        if not isinstance(value, Mapping):
            return value
        found, wrong = dict(value), []
        for alias, name in cls.ALIASES.items():
            if alias not in found:
                continue
            said = found.pop(alias)
            if found.setdefault(name, said) != said:
                message = f"is {said}, but {name} is {found[name]}"
                wrong.append(Problem(alias, message, "they are the same setting: keep one"))
        for name in cls.ABSENT:
            if found.pop(name, False) not in (False, None, "false", "no", "off"):
                hint = "leave it out, or say false"
                wrong.append(Problem(name, "must be false: this decoder has no biases", hint))
        if wrong:
            raise PydanticCustomError(CROSS_CHECK, "fields do not fit", {"found": tuple(wrong)})
        return found

    def shape(self) -> ModelShape:
        """The same numbers with the arithmetic that follows from them."""
        return ModelShape(**self.model_dump())

    def problems(self) -> Iterator[Problem]:
        try:
            self.shape()
        except ConfigError as error:
            yield from error.problems


class InitializationConfig(Section):
    """How random weights begin."""

    matrix: Scale = 1.0
    """Standard deviation of q, k, v, gate and up projections, times 0.64 / sqrt(hidden_size)."""
    residual: ScaleOrZero = 0.0
    """That of o and down projections, times 0.64 / sqrt(2 num_hidden_layers hidden_size), both
    halves of the residual stream getting the same; 0: just enough to be heard, else at least
    0.01."""

    mirrored: bool = True
    """Whether the halves of the residual stream begin alike and cancel in the head, so that the
    loss begins at the logarithm of the vocabulary; false: embeddings of standard deviation 0.02 and
    norms of 1, as in GPT-2."""

    def problems(self) -> Iterator[Problem]:
        if 0 < self.residual < QUIETEST:
            message = f"must be 0 or at least {QUIETEST:g}, is {self.residual:g}"
            yield Problem("residual", message)


class ModelConfig(Section):
    """What is trained."""

    path: Path = Path()
    """Directory whose model.safetensors to start from: a checkpoint of a run, or what transformers
    saved of a Llama, or of a Mistral whose window holds data.seq_len; "." starts from random
    weights."""
    mode: Literal["transformer"] = "transformer"
    """Kind of model."""
    architecture: ArchitectureConfig
    """Shape of the decoder."""
    initialization: InitializationConfig = Field(default_factory=InitializationConfig)
    """Random weights; not used where `path` names others."""


class DataConfig(Section):
    """Token shards in. Relative paths are relative to the directory the command is run in."""

    train: Path
    """Directory of training shards."""
    val: Path | None = None
    """Directory of validation shards; without it nothing is evaluated."""
    batch_size: Count
    """Sequences per micro-batch."""
    seq_len: Tokens
    """Tokens per sequence; longer shard rows are cut into several."""
    tokenizer: Path | None = None
    """tokenizer.json the shards were made with; needed for samples and for the vocabulary check."""
    input_column: str = "input_ids"
    """Column of the shards that holds the token ids."""


class OptimizerConfig(Section):
    """The optimizer and its learning rate."""

    name: OptimizerName = "adamw"
    """`adamw`, or `muon` for the matrices inside the blocks and AdamW for the rest."""
    lr: Rate
    """Peak learning rate, reached at the end of the warm-up."""
    beta1: Fraction01 = 0.9
    """Decay of the first moment."""
    beta2: Fraction01 = 0.95
    """Decay of the second moment."""
    eps: Epsilon = 1e-8
    """Added to the root of the second moment."""
    weight_decay: RateOrZero = 0.1
    """Decoupled weight decay on matrices."""
    min_lr: RateOrZero = Field(default=None, validate_default=True)
    """Learning rate at the end of the schedule; lr / 10 where nothing is given."""
    muon_lr: Rate | None = None
    """Peak rate of Muon's matrices, whose schedule has the shape of lr's; without it lr."""
    muon_momentum: Fraction01 = 0.95
    """Decay of Muon's (Nesterov) momentum."""

    @field_validator("min_lr", mode="before")
    @classmethod
    def _tenth_of_the_peak(cls, value: object, info: ValidationInfo) -> object:
        if value is not None:
            return value
        return float(f"{info.data.get('lr', 0.0) / 10:.15g}")  # 3e-5, not 2.9999999999999997e-05

    def problems(self) -> Iterator[Problem]:
        if self.min_lr > self.lr:
            message = f"{self.min_lr:g} is above optimizer.lr {self.lr:g}"
            yield Problem("min_lr", message, "the schedule falls from lr to min_lr")
        for field in ("muon_lr", "muon_momentum") if self.name != "muon" else ():
            if (value := getattr(self, field)) != type(self).model_fields[field].default:
                message = f"is {value:g}, which only muon reads, and optimizer.name is {self.name}"
                yield Problem(field, message, "leave it out, or set optimizer.name to muon")


class CheckpointConfig(Section):
    """When checkpoints are written and which are kept."""

    save_every: Count = 1000
    """Steps between checkpoints; the same setting as training.save_interval."""
    keep: Count = 2
    """Newest checkpoints to keep, besides the best one."""
    keep_every: Count | None = None
    """Also keep every checkpoint whose step is a multiple of this."""
    verify_after_write: bool = True
    """Read a checkpoint back and compare hashes before it counts."""


class StabilityConfig(Section):
    """What keeps a run on its path. Steps that are not finite are skipped whatever stands here."""

    zclip: bool = True
    """Scale gradients down whose norm is far above its running mean (ZClip), besides grad_clip."""
    zclip_threshold: Factor = 2.5
    """Standard deviations above the mean at which ZClip begins."""
    zclip_decay: Fraction01 = 0.97
    """Decay of the running mean and variance of the gradient norm."""
    zclip_warmup: Count = 25
    """Steps that are only watched, to know mean and variance."""
    loss_spike: Annotated[float, Field(gt=1, le=1e12), _REAL] | None = 3.0
    """A loss of this many times its running mean, far beyond its usual spread and for five steps in
    a row, goes back to the last good checkpoint; null: none."""
    max_rollbacks: CountOrZero = 3
    """Times in a row a run goes back before it is stopped; 0 stops it at once."""
    z_loss: Annotated[float, Field(ge=0, le=1), _REAL] = 0.0
    """Weight of the squared log of softmax's denominator in the training loss, which keeps logits
    from drifting (PaLM: 1e-4); validation is without it."""
    noise_scale_interval: Count | None = None
    """Steps between measurements of the gradient noise scale, at the cost of a forward and backward
    each; without it every step where gradient_accumulation makes it free, else none."""


class DistributedConfig(Section):
    """How many processes train together, one on each GPU, or all on the CPU."""

    world_size: Annotated[int, Field(ge=1, le=MAX_RANKS), _INT] = 1
    """Ranks, all on this machine. They share the global batch of data.batch_size x
    training.gradient_accumulation sequences, which stays as it is whatever stands here."""
    strategy: Literal["ddp", "fsdp"] = "ddp"
    """`ddp`: every rank holds all of the model; `fsdp` (FSDP2): each holds its part of weights,
    gradients and optimizer state, for models that are too large for one GPU."""


class TrainingConfig(Section):
    """The loop."""

    mode: Literal["causal_lm"] = "causal_lm"
    """Objective: next-token prediction."""
    epochs: Count = 1
    """Passes over the data; ends the run even if max_steps is not reached."""
    max_steps: Count | None = None
    """Optimizer steps; without it, as many as the epochs hold."""
    grad_clip: Factor | None = None
    """Largest global gradient norm; without it only ZClip (`stability`) scales gradients."""
    lr_scheduler: ScheduleName = "cosine"
    """Shape of the learning rate between warm-up and the last step."""
    warmup_steps: CountOrZero = 0
    """Steps over which the learning rate rises from zero to lr."""
    gradient_accumulation: Count = 1
    """Micro-batches per optimizer step, of all ranks together."""
    mixed_precision: Annotated[
        Literal["fp32", "bf16", "fp16", "fp8"], BeforeValidator(_precision)
    ] = "fp32"
    """Precision of matrix products; weights and optimizer stay fp32. `no` and `none` mean fp32.
    `fp8` is bf16 with the MLPs' products in e4m3; it needs a Hopper GPU or a later one."""
    residual_in_fp32: bool = True
    """Whether mixed precision keeps the residual stream and its gradient as good as fp32; without
    it they are rounded at each block, which is up to 3 % faster on a GPU."""
    output_dir: Path
    """Where run directories are made."""
    save_interval: Count = 1000
    """Steps between checkpoints; the same setting as training.checkpoint.save_every."""
    checkpoint: CheckpointConfig = Field(default_factory=CheckpointConfig)
    """Checkpoint policy."""
    log_interval: Count = 1
    """Steps between journal lines."""
    eval_interval: Count = Field(default=None, validate_default=True)
    """Steps between evaluations; save_interval where nothing is given."""
    eval_batches: Count = 20
    """Validation batches per evaluation, always the same ones."""
    seed: CountOrZero = 0
    """Seed of weights and data order."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to train; auto takes a GPU when there is one."""
    deterministic: bool = False
    """Bit-exact resume on a GPU too, at some cost in speed; a CPU always is."""
    compile: Annotated[Literal["auto"] | bool, BeforeValidator(_convert(_auto_or_bool))] = "auto"
    """Whether to use torch.compile; auto uses it where it pays."""
    activation_checkpointing: bool = False
    """Recompute each block in the backward pass: less memory, about a third more work."""
    num_threads: Threads | None = None
    """CPU threads; without it, what the machine has."""
    early_stopping_patience: Count | None = None
    """Stop after this many evaluations without a better validation loss."""
    sample_prompts: tuple[str, ...] = ()
    """Prompts the model completes at every evaluation; needs data.tokenizer."""
    distributed: DistributedConfig = Field(default_factory=DistributedConfig)
    """Several GPUs."""
    nan_limit: Count = 10
    """Consecutive steps with a loss or gradient that is not finite before the run goes back to its
    last good checkpoint."""
    stability: StabilityConfig = Field(default_factory=StabilityConfig)
    """Gradient spikes, loss spikes, rollbacks."""

    @model_validator(mode="before")
    @classmethod
    def _one_save_interval(cls, value: Any) -> Any:
        """Fill each of the twin settings from the other, so that both always read the same."""
        if not isinstance(value, Mapping):
            return value
        checkpoint = value.get("checkpoint")
        checkpoint = {} if checkpoint is None else checkpoint
        if not isinstance(checkpoint, Mapping):
            return value
        filled = {**value, "checkpoint": dict(checkpoint)}
        if filled.get("save_interval") is None:
            filled.pop("save_interval", None)
        if "save_interval" in filled:
            filled["checkpoint"].setdefault("save_every", filled["save_interval"])
        elif "save_every" in checkpoint:
            filled["save_interval"] = checkpoint["save_every"]
        return filled

    @field_validator("eval_interval", mode="before")
    @classmethod
    def _with_each_checkpoint(cls, value: object, info: ValidationInfo) -> object:
        return info.data.get("save_interval", 1) if value is None else value

    def problems(self) -> Iterator[Problem]:
        save_every = self.checkpoint.save_every
        if self.save_interval != save_every:
            message = f"is {self.save_interval}, but training.checkpoint.save_every is {save_every}"
            yield Problem("save_interval", message, "they are the same setting: keep one")
        if self.max_steps is not None and self.warmup_steps > self.max_steps:
            message = f"{self.warmup_steps} steps of warm-up in a run of {self.max_steps}"
            yield Problem("warmup_steps", message, "about 10 % of max_steps is usual")


class ChartConfig(Section):
    """One chart of the cockpit's Overview."""

    type: Literal["loss_curve", "line"] = "line"
    """`loss_curve` is the large chart, of loss and validation loss; `line` one of three small."""
    metric: Metric
    """What it draws: a short name such as loss or step_ms, or a key such as brick/data_ms."""
    window: Count = 1
    """Logged points whose mean is drawn over them; 1: the cockpit's own smoothing."""
    show_eta: bool = False
    """Whether the title tells the time left."""

    def problems(self) -> Iterator[Problem]:
        if self.type == "loss_curve" and HOUSE_NAMES.get(self.metric, self.metric) != "train/loss":
            message = f"is {self.metric}, and a loss_curve draws loss"
            yield Problem("metric", message, "write loss, or type: line")


class TerminalConfig(Section):
    """What a terminal shows of the run: `train apply` while it follows, the cockpit's Overview."""

    enabled: bool = True
    """Whether `train apply` prints live lines, and the Overview is as it stands here; else it
    prints none, and the Overview is the cockpit's own."""
    refresh_rate: Annotated[int, Field(ge=100, le=3_600_000), _INT] = 1000
    """Milliseconds between refreshes of either."""
    metrics: tuple[Metric, ...] = ("loss", "learning_rate", "gradient_norm", "tokens_per_second")
    """Figures of the Overview, first to last; the first three besides loss are its small charts
    where `charts` names none."""
    charts: tuple[ChartConfig, ...] = ()
    """Charts of the Overview: at most one loss_curve and three lines."""

    def problems(self) -> Iterator[Problem]:
        for kind, most in (("loss_curve", 1), ("line", 3)):
            if (count := sum(chart.type == kind for chart in self.charts)) > most:
                message = f"{count} of type {kind}, and the Overview has room for {most}"
                yield Problem("charts", message, "the Charts tab shows every metric")


class TrackingConfig(Section):
    """How the run is filed."""

    enabled: bool = True
    """Whether the run is indexed into the stores as it goes; its journal is written either way, and
    `albor db rebuild` takes it in later."""
    backend: Literal["sqlite"] = "sqlite"
    """Kind of store."""
    experiment: str | None = None
    """Experiment the run belongs to; without it, the name of the config file."""
    tags: dict[str, Word] = Field(default_factory=dict)
    """Words to find the run by, name: value."""


class SystemConfig(Section):
    """Readings of the machine."""

    enabled: bool = True
    """Whether GPU and host are sampled."""
    interval: Count = 5000
    """Milliseconds between samples."""
    metrics: tuple[Reading, ...] = ("gpu_utilization", "memory", "temperature", "power")
    """Readings that are kept as series; the live view shows all of them."""


class AlertConfig(Section):
    """One Andon rule."""

    condition: str = Field(min_length=3, max_length=200)
    """`metric op number`, such as `loss > 10` or `gradient_norm > 100`."""
    action: AlertAction = "warn"
    """What happens when the condition becomes true."""
    message: str = Field(default="", max_length=500)
    """Text of the alert."""


class BudgetsConfig(Section):
    """What a run may cost at most."""

    tokens: Count | None = None
    """Training tokens."""
    wall_hours: Hours | None = None
    """Hours since the first start."""
    action: AlertAction = "stop"
    """What happens when a budget is used up."""


class BricksConfig(Section):
    """Time budgets for the parts of a step, in ms; twice the budget pauses the run (Jidoka)."""

    data_ms: Milliseconds | None = None
    """Waiting for data."""
    forward_ms: Milliseconds | None = None
    """Forward pass."""
    backward_ms: Milliseconds | None = None
    """Backward pass."""
    optimizer_ms: Milliseconds | None = None
    """Optimizer step, clipping included."""
    other_ms: Milliseconds | None = None
    """Everything else."""


class MonitoringConfig(Section):
    """What is watched, and what warns, pauses or stops the run."""

    terminal: TerminalConfig = Field(default_factory=TerminalConfig)
    """Dashboard."""
    tracking: TrackingConfig = Field(default_factory=TrackingConfig)
    """Experiment tracking."""
    system: SystemConfig = Field(default_factory=SystemConfig)
    """Machine readings."""
    alerts: tuple[AlertConfig, ...] = ()
    """Andon rules."""
    budgets: BudgetsConfig = Field(default_factory=BudgetsConfig)
    """Cost limits."""
    bricks: BricksConfig = Field(default_factory=BricksConfig)
    """Step-time budgets."""


_GUARD = Options()


class GuardConfig(Section):
    """The supervisor: how long silence may last and how often a run is started again."""

    poll_s: Seconds = _GUARD.poll_s
    """Seconds between looks at the run."""
    stale_s: Seconds = _GUARD.stale_s
    """Seconds without news before a run counts as hung."""
    backoff_s: tuple[SecondsOrZero, ...] = Field(default=_GUARD.backoff_s, min_length=1)
    """Waits before the first, second, ... restart; the last one repeats."""
    stable_s: Seconds = _GUARD.stable_s
    """Seconds of life, with a newer checkpoint, after which the waits start over."""
    grace_s: Seconds = _GUARD.grace_s
    """Seconds between asking a run to stop and killing it."""
    max_no_progress: Count = _GUARD.max_no_progress
    """Restarts without a newer checkpoint before the guard gives up."""
    max_restarts: CountOrZero = _GUARD.max_restarts
    """Restarts within one day before the guard gives up."""
    restarts: CountOrZero | None = _GUARD.restarts
    """Restarts of a run in all, whatever ended it; without it the other limits decide."""
    start_limit_s: Seconds = _GUARD.start_limit_s
    """Longest start-up."""
    compile_limit_s: Seconds = _GUARD.compile_limit_s
    """Longest compilation."""
    eval_limit_s: Seconds = _GUARD.eval_limit_s
    """Longest evaluation."""
    checkpoint_limit_s: Seconds = _GUARD.checkpoint_limit_s
    """Longest checkpoint."""
    min_free_bytes: CountOrZero | None = _GUARD.min_free_bytes
    """Free disk space needed to start; without it, 2.2 times the last checkpoint."""
