"""The section `training`: the loop."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator, model_validator

from albor_core.config.choices import ScheduleName
from albor_core.config.microbatches import MAX_RANKS
from albor_core.config.recipes import registry as recipes
from albor_core.config.sections.numbers import (
    INT,
    REAL,
    Count,
    CountOrZero,
    Factor,
    Fraction01,
    Threads,
    Tokens,
    convert_with,
)
from albor_core.config.sections.section import Section
from albor_core.run.errors import Problem
from albor_core.run.values.numbers import parse_count


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
    loss_spike: Annotated[float, Field(gt=1, le=1e12), REAL] | None = 3.0
    """A loss of this many times its running mean, far beyond its usual spread and for five steps in
    a row, goes back to the last good checkpoint; null: none."""
    max_rollbacks: CountOrZero = 3
    """Times in a row a run goes back before it is stopped; 0 stops it at once."""
    z_loss: Annotated[float, Field(ge=0, le=1), REAL] = 0.0
    """Weight of the squared log of softmax's denominator in the training loss, which keeps logits
    from drifting (PaLM: 1e-4); validation is without it."""
    noise_scale_interval: Count | None = None
    """Steps between measurements of the gradient noise scale, at the cost of a forward and backward
    each; without it every step where gradient_accumulation makes it free, else none."""


class DistributedConfig(Section):
    """How many processes train together, one on each GPU, or all on the CPU. What torchrun or srun
    has started says itself how many there are."""

    world_size: Annotated[int, Field(ge=1, le=MAX_RANKS), INT] = 1
    """Ranks: those of torchrun or srun, else all on this machine, up to 64. They share the global
    batch of data.batch_size x training.gradient_accumulation sequences, which stays as it is
    whatever stands here."""
    strategy: Literal["ddp", "fsdp"] = "ddp"
    """`ddp`: every rank holds all of the model; `fsdp` (FSDP2): each holds its part of weights,
    gradients and optimizer state, for models that are too large for one GPU."""

    @property
    def is_sharded(self) -> bool:
        """Whether no rank holds all of the model."""
        return self.world_size > 1 and self.strategy == "fsdp"


class BatchStage(Section):
    """Smaller steps for the beginning."""

    until: Count
    """Step before which it holds, as max_steps and warmup_steps count them: by full batches."""
    gradient_accumulation: Count
    """Micro-batches of a step until then; divides training.gradient_accumulation."""


class LengthStage(Section):
    """Shorter sequences for the beginning."""

    until: Count
    """Step before which it holds, as max_steps counts them."""
    seq_len: Tokens
    """Tokens of the pieces that sequences are cut into until then; divides data.seq_len."""


_SWITCH = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


def _auto_or_bool(value: object) -> object:
    words = {"auto": "auto", **_SWITCH}
    word = str(value).lower() if isinstance(value, str | bool) else ""
    if word not in words:
        raise ValueError("must be auto, true or false")
    return words[word]


def _segments(value: object) -> object:
    found = _SWITCH.get(str(value).lower(), value)
    if found is None or isinstance(found, bool):
        return bool(found)
    try:
        number = parse_count(found)
    except ValueError:
        number = 0
    if number < 2:
        raise ValueError("must be true, false, or a number of segments from 2 on")
    return number


def _precision(value: object) -> object:
    aliases = {"no": "fp32", "none": "fp32", "float16": "fp16", "bfloat16": "bf16"}
    if value is None or value is False:
        return "fp32"
    return aliases.get(value.lower(), value.lower()) if isinstance(value, str) else value


_Precision = Literal[
    "fp32", "bf16", "fp16", "fp8", "no", "none", "float16", "bfloat16", False, None
]


class TrainingConfig(Section):
    """The loop."""

    mode: Annotated[
        str, BeforeValidator(convert_with(recipes.mode)), Field(pattern=recipes.PATTERN)
    ] = "causal_lm"
    """Objective: `causal_lm`, next-token prediction; or package.module:Class, a recipe of your own,
    imported in the training process from the folder of the config or from PYTHONPATH."""
    epochs: Count = 1
    """Passes over the data; ends the run even if max_steps is not reached."""
    max_steps: Count | None = None
    """Optimizer steps; without it, as many as the epochs hold."""
    grad_clip: Factor | None = None
    """Largest global gradient norm; without it only ZClip (`stability`) scales gradients."""
    lr_scheduler: ScheduleName = "cosine"
    """Shape of the learning rate from the end of the peak to the last step."""
    decay_steps: Count | None = None
    """Last steps, over which the learning rate falls; before them it stays at its peak (warm-up,
    stable, decay). Without it it falls from the end of the warm-up on."""
    warmup_steps: CountOrZero = 0
    """Steps over which the learning rate rises from zero to lr."""
    gradient_accumulation: Count = 1
    """Micro-batches per optimizer step, of all ranks together."""
    continue_from: Path | None = None
    """Checkpoint of another run that this one goes on from, as its next steps: weights, optimizer,
    place in the data. What else stands here holds from there on; max_steps counts from the other's
    beginning. Other data are read from theirs."""
    batch_ramp: tuple[BatchStage, ...] = ()
    """Stages of smaller batches, before the full one: the steps are smaller and more, the tokens
    and the schedule are the same."""
    seq_len_ramp: tuple[LengthStage, ...] = ()
    """Stages in which each sequence is trained on as several shorter ones, before whole ones: the
    tokens of a step are the same."""
    mixed_precision: Annotated[
        Literal["fp32", "bf16", "fp16", "fp8"],
        BeforeValidator(_precision, json_schema_input_type=_Precision),
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
    compile: Annotated[Literal["auto"] | bool, BeforeValidator(convert_with(_auto_or_bool))] = (
        "auto"
    )
    """Whether to use torch.compile; auto uses it where it pays."""
    activation_checkpointing: Annotated[
        bool | int,
        BeforeValidator(convert_with(_segments), json_schema_input_type=bool | int | str),
    ] = False
    """Compute blocks again in the backward pass and keep only what they begin with: a third more
    work at most. `true`: each block by itself, by the compiled step, which needs least; a number of
    at least 2: as many segments of blocks, by the fused step where it runs."""
    num_threads: Threads | None = None
    """CPU threads; without it, what the machine has."""
    early_stopping_patience: Count | None = None
    """Stop after this many evaluations without a better validation loss."""
    sample_prompts: tuple[str, ...] = ()
    """Prompts the model completes at every evaluation; needs data.tokenizer."""
    distributed: DistributedConfig = Field(default_factory=DistributedConfig)
    """Several GPUs."""
    parity: Literal["plain", "stop", "tell"] = "plain"
    """What follows where the model as it trains here is further from the plain one on the CPU in
    fp32 than rounding explains (cosine of the logits below 0.98): `plain` trains on by the plain
    model on the same GPU, `stop` ends the run with exit code 4, `tell` only warns."""
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

    def segments(self, num_layers: int) -> int:
        """In how many parts blocks are computed again; 0: they are not."""
        asked = self.activation_checkpointing
        return num_layers if asked is True else min(int(asked), num_layers)

    def problems(self) -> Iterator[Problem]:
        save_every = self.checkpoint.save_every
        if self.save_interval != save_every:
            message = f"is {self.save_interval}, but training.checkpoint.save_every is {save_every}"
            yield Problem("save_interval", message, "they are the same setting: keep one")
        if self.max_steps is not None and self.warmup_steps > self.max_steps:
            message = f"{self.warmup_steps} steps of warm-up in a run of {self.max_steps}"
            yield Problem("warmup_steps", message, "about 10 % of max_steps is usual")
        if self.decay_steps is not None and self.lr_scheduler == "constant":
            message = f"is {self.decay_steps}, but lr_scheduler is constant"
            yield Problem("decay_steps", message, "name a decay: cosine, linear or sqrt")
        if self.decay_steps is not None and self.max_steps is not None:
            together = self.decay_steps + self.warmup_steps
            if together > self.max_steps:
                message = f"with warmup_steps {together} steps, in a run of {self.max_steps}"
                yield Problem("decay_steps", message, "10 to 20 % of max_steps is usual")
        sizes = [(one.until, one.gradient_accumulation) for one in self.batch_ramp]
        lengths = [(one.until, one.seq_len) for one in self.seq_len_ramp]
        for field, stages in (("batch_ramp", sizes), ("seq_len_ramp", lengths)):
            if any(b[0] <= a[0] or b[1] <= a[1] for a, b in pairwise(stages)):
                yield Problem(field, "stages must grow", "a later until, a larger size in each")
        whole = self.gradient_accumulation
        for _, size in sizes:
            if size >= whole or whole % size:
                message = f"{size} is not a divisor of gradient_accumulation {whole} below it"
                yield Problem("batch_ramp", message, "so that steps of all sizes end together")
