"""What a run is made of, built from its config: device, data, model, optimizer, schedule."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from albor_core.checkpoint.tensorfile import read_tensors
from albor_core.config.clock import Clock
from albor_core.config.load import Config
from albor_core.config.microbatches import Share
from albor_core.data.pack.dataset import PackedShards, SequenceOrder
from albor_core.kernels import dispatch
from albor_core.model.flat import FlatParameters
from albor_core.model.fp8 import Scales
from albor_core.model.fused import OPS
from albor_core.model.llama import Llama, LlamaConfig, init_weights
from albor_core.plan.memory import fusion_obstacles
from albor_core.plan.start_weights import refuse_misfits, start_weights
from albor_core.run.errors import ConfigError
from albor_core.train.optim.adamw import FlatAdamW, Optimizer
from albor_core.train.optim.clipping import Clip, NoiseScale, clip_from
from albor_core.train.optim.gradients import LossScale
from albor_core.train.optim.registry import OPTIMIZERS
from albor_core.train.optim.schedules import Schedule
from albor_core.train.ranks.group import Ranks
from albor_core.train.ranks.placement import Placement, place
from albor_core.train.ranks.sharding import shard

Forward = Callable[[Tensor, Tensor], tuple[Tensor | None, Tensor | None]]


@dataclass(frozen=True)
class Parts:
    """Built and on the device; weights are those of step 0, see `build`."""

    config: Config
    placement: Placement
    train: PackedShards
    val: PackedShards | None
    order: SequenceOrder
    model: Llama
    forward: Forward
    """The model, compiled where that pays."""
    optimizer: Optimizer | FlatAdamW
    """FlatAdamW where the fused step is a candidate."""
    scales: Scales | None
    """Of fp8."""
    scale: LossScale | None
    clip: Clip
    noise: NoiseScale
    schedule: Schedule
    clock: Clock
    obstacle: str
    """Why the fused step is no candidate; "" if it is."""

    @property
    def ranks(self) -> Ranks:
        return self.placement.ranks

    @property
    def share(self) -> Share:
        """What this rank does of a step."""
        return self.config.share()

    @property
    def tokens_per_step(self) -> int:
        return self.sequences_per_step * self.config.data.seq_len

    @property
    def sequences_per_step(self) -> int:
        return self.config.sequences_per_step

    def lr(self, sequences: int) -> float:
        """The rate of the step with which so many have been trained on."""
        return self.schedule.lr_at(sequences / self.clock.unit)

    def batch(self, start: int, micro: int) -> Tensor:
        """(B, T) ids of this rank's micro-batch `micro` of the global batch that begins with
        sequence number `start` of the data (config/clock.py); a pure function of the seed.
        """
        share, ranks = self.share, self.ranks
        chosen = self.order.part(
            start, micro, share.batch_size, rank=ranks.rank, world=ranks.world_size
        )
        ids = torch.from_numpy(self.train.batch(chosen))
        if self.placement.is_gpu:
            ids = ids.pin_memory()
        return ids.to(self.placement.device, non_blocking=True)

    def labelled(self, start: int, micro: int) -> tuple[Tensor, Tensor]:
        """`batch`, and what of it is scored: labels as `Llama.forward` takes them."""
        ids = self.batch(start, micro)
        return ids, ids

    def scored(self, start: int, micro: int, rank: int) -> int:
        """Tokens that the loss counts in a micro-batch of any rank, by arithmetic: nobody has to be
        asked.
        """
        return self.share.batch_size * (self.config.data.seq_len - 1)

    def divisors(self, start: int) -> list[float]:
        """What the mean loss of each of this rank's micro-batches is divided by, so that a step's
        is the sum over the scored tokens of all ranks over their number: `accumulation` where all
        have as many, infinite for one without any.
        """
        world, micros = self.ranks.world_size, range(self.share.accumulation)
        total = sum(self.scored(start, m, rank) for rank in range(world) for m in micros)
        mine = [self.scored(start, micro, self.ranks.rank) for micro in micros]
        return [total / (number * world) if number else math.inf for number in mine]

    def measure_noise(self, small: Tensor, whole: Tensor) -> None:
        """Gradient norms of this rank's first micro-batch (of half of every rank's if there is but
        one) and of the whole step.
        """
        share = self.share
        parts = share.accumulation * share.world_size if share.accumulation > 1 else 2
        size = self.tokens_per_step // parts
        self.noise.add(small, size, whole, self.tokens_per_step)


def shape_of(config: Config) -> LlamaConfig:
    """The model that a config asks for, and how its weights start."""
    begin = config.model.initialization
    return LlamaConfig(
        **config.model.architecture.model_dump(),
        matrix_scale=begin.matrix,
        residual_scale=begin.residual,
        mirrored=begin.mirrored,
        residual_in_fp32=config.training.residual_in_fp32,
        z_loss=config.training.stability.z_loss,
    )


def build(config: Config, *, begins: bool = True) -> Parts:
    """Everything in place, nothing computed. Without `begins` the weights are random: a checkpoint
    will replace them, and what `model.path` names may be gone by now.

    Raises ConfigError, DataError or NotFoundError before the device is touched where it can.
    """
    data, training, shape = config.data, config.training, shape_of(config)
    train = _shards(config, validation=False)
    val = _shards(config, validation=True) if data.val is not None else None
    order = SequenceOrder(training.seed, len(train))
    order.steps_per_epoch(data.batch_size, training.gradient_accumulation)
    clock = Clock.of(config, len(train))
    if begins:
        refuse_unreachable(clock)
    placement = place(training)
    seed_everything(training.seed)
    model = _model(shape, config, placement, begins=begins)
    obstacle = placement.ranks.first(obstacle_to_fusion(config, placement))
    if obstacle and placement.precision == "fp8":
        raise fp8_refused(obstacle)
    optimizer = plain_optimizer(config, model) if obstacle else flat_optimizer(config, model)
    return Parts(
        config,
        placement,
        train,
        val,
        order,
        model,
        _forward(model, placement),
        optimizer,
        Scales.of(shape, placement.device) if placement.precision == "fp8" else None,
        LossScale(placement.device) if placement.precision == "fp16" else None,
        clip_from(training, placement.device),
        NoiseScale(placement.device),
        schedule_of(config, clock),
        clock,
        obstacle,
    )


def fp8_refused(reason: str) -> ConfigError:
    """fp8 is asked for by name: a run that cannot have it does not begin in something else."""
    return ConfigError(
        f"training.mixed_precision: fp8 cannot be used here: {reason}", hint="use bf16"
    )


def plain_optimizer(config: Config, model: Llama) -> Optimizer:
    """What optimizer.name says, over the model's parameters as they are."""
    entry, on_gpu = OPTIMIZERS[config.optimizer.name], next(model.parameters()).is_cuda
    return entry.plain(model, **entry.settings(config.optimizer), fused=on_gpu)


def flat_optimizer(config: Config, model: Llama) -> FlatAdamW:
    """Moves the parameters into flat buffers, with bf16 shadows."""
    entry, accumulates = OPTIMIZERS[config.optimizer.name], config.share().accumulation > 1
    assert entry.flat is not None, "an obstacle to fusion"
    flat = FlatParameters(model, torch.bfloat16)
    return entry.flat(flat, **entry.settings(config.optimizer), accumulates=accumulates)


def obstacle_to_fusion(config: Config, placement: Placement) -> str:
    """Why the step of written-out kernels is no candidate here, or "". On a GPU it checks each of
    its kernels against fp64 first: seconds.
    """
    if obstacles := fusion_obstacles(config, placement.device.type):
        return obstacles[0]
    is_fp8 = placement.precision == "fp8"
    update = OPTIMIZERS[config.optimizer.name].kernels
    for op in (*OPS, *update, *(("fp8",) if is_fp8 else ())):
        if reason := dispatch.obstacle(op, placement.device, torch.bfloat16):
            return f"{op}: {reason}"
    return ""


def _shards(config: Config, *, validation: bool) -> PackedShards:
    folder = config.data.val if validation else config.data.train
    assert folder is not None
    return PackedShards(
        folder,
        seq_len=config.data.seq_len,
        column=config.data.input_column,
        vocab_size=config.model.architecture.vocab_size,
    )


def schedule_of(config: Config, clock: Clock) -> Schedule:
    training, wanted = config.training, config.optimizer
    return Schedule(
        wanted.lr, wanted.min_lr, training.warmup_steps, clock.planned, training.lr_scheduler
    )


def on_clock(parts: Parts, unit: int) -> Parts:
    """For a run whose config counts steps of `unit` sequences. ConfigError as `build`."""
    clock = Clock.of(parts.config, parts.order.num_sequences, unit)
    refuse_unreachable(clock)
    return replace(parts, clock=clock, schedule=schedule_of(parts.config, clock))


def refuse_unreachable(clock: Clock) -> None:
    """Refuse more steps than the data holds, as the plan did, by the data read now.

    Raises ConfigError.
    """
    if clock.planned > clock.reachable:
        per_epoch = max(1, clock.num_sequences // clock.unit)
        raise ConfigError(
            f"training.max_steps: {clock.planned} cannot be reached, {clock.epochs} "
            f"epoch(s) of {per_epoch} steps are {clock.reachable}",
            hint=f"set training.epochs to {-(-clock.planned // per_epoch)}, or "
            f"training.max_steps to {clock.reachable}",
        )


def _model(shape: LlamaConfig, config: Config, placement: Placement, *, begins: bool) -> Llama:
    """Memory is taken once, on the device: PyTorch's own initialisation would be thrown away."""
    ranks = placement.ranks
    with torch.device("meta"):
        model = Llama(shape, checkpoint_blocks=config.training.activation_checkpointing)
    model.to_empty(device="cpu" if ranks.is_sharded else placement.device)  # it may not fit whole
    if begins:
        first_weights(model, config)
    else:
        init_weights(model, config.training.seed)
    if ranks.is_sharded:
        shard(
            model,
            placement.device,
            ranks.world_size,
            half=placement.half,
            compiles=placement.compiles,
        )
    return model


def first_weights(model: Llama, config: Config) -> None:
    """Those of step 0, into a whole model. Raises ConfigError where `model.path` has none that fit.

    Of another dtype they are widened or rounded to fp32, the master weights' own.
    """
    file = start_weights(config.model)
    if file is None:
        init_weights(model, config.training.seed)
        return
    refuse_misfits(config.model, config.data.seq_len)
    model.load_state_dict(read_tensors(file), strict=True)
    for name, weight in model.named_parameters():
        if not torch.isfinite(weight).all():
            raise ConfigError(
                f"model.path: {file}: not every value of {name} is finite in fp32",
                hint="name other weights",
            )


def _forward(model: Llama, placement: Placement) -> Forward:
    """The model as PlainStep calls it."""
    if placement.ranks.is_sharded or not placement.compiles:  # sharded: each block is compiled
        return model
    compiled: Forward = torch.compile(model, dynamic=False)
    return compiled


def seed_everything(seed: int) -> None:
    """Python, NumPy and torch. Nothing in the loop draws today; a dropout would."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def kernels_in_use() -> list[dict[str, Any]]:
    """What dispatch chose for this device, for the journal."""
    made = dispatch.choices()
    return [{"op": c.op, "backend": c.backend, "evidence": c.evidence[:200]} for c in made]


def rejected_kernels() -> list[dict[str, str]]:
    """Each backend that failed parity here, and by how much, for the journal."""
    return [
        {
            "op": choice.op,
            "device": choice.device,
            "dtype": choice.dtype,
            "backend": why.split(":")[0],
            "reason": why[:1000],
        }
        for choice in dispatch.choices()
        for why in choice.rejected
    ]
