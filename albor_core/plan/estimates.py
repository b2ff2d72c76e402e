"""The arithmetic of a plan: steps, tokens, disk, time. Pure; every formula is stated."""

from __future__ import annotations

import math
from dataclasses import dataclass

from albor_core.config.load import Config
from albor_core.plan.facts import PlanFacts
from albor_core.plan.memory import optimizer_bytes

ASSUMED_MFU = 0.35
ASSUMED_CORE_FLOPS = 50e9  # fp32 training per core; 60-70 measured on a 2.5 GHz Xeon with AVX-512
LEAST_TOKENS_PER_PARAMETER = 10  # half of compute-optimal; the plan warns below it
TOKENS_PER_PARAMETER = 20  # compute-optimal, Hoffmann et al. 2022, arXiv:2203.15556


@dataclass(frozen=True)
class PlannedSteps:
    """How many steps the data holds and how many the run will take."""

    sequences: int | None
    steps_per_epoch: int | None
    """floor(sequences / batch_size / gradient_accumulation)."""
    reachable_steps: int | None
    """epochs * steps_per_epoch."""
    max_steps: int | None
    """What the config says, else what is reachable; None if neither is known."""
    tokens_per_step: int
    total_tokens: int | None
    warmup_steps: int
    checkpoints: int | None
    data_passes: float | None
    """Times the run sees each sequence."""


@dataclass(frozen=True)
class Disk:
    """Bytes of checkpoints at the worst moment: kept ones, the best, and one being written."""

    checkpoint: int
    copies: int
    free: int | None

    @property
    def total(self) -> int:
        return self.checkpoint * self.copies

    @property
    def missing(self) -> int:
        return 0 if self.free is None else max(0, self.total - self.free)


@dataclass(frozen=True)
class Duration:
    """A guess at the wall time, and what it assumes."""

    seconds: float
    assumption: str
    step_ms: float
    tokens_per_s: float


def schedule(config: Config, facts: PlanFacts, unit: int | None = None) -> PlannedSteps:
    """The step algebra, in steps of `unit` sequences where a run that has begun counts so
    (config/clock.py); unknown data leaves unknown steps.
    """
    training, data = config.training, config.data
    per_step = unit or config.sequences_per_step
    sequences = facts.train.sequences_at(data.seq_len)
    per_epoch = None if sequences is None else sequences // per_step
    reachable = None if per_epoch is None else per_epoch * training.epochs
    steps = training.max_steps if training.max_steps is not None else reachable
    return PlannedSteps(
        sequences=sequences,
        steps_per_epoch=per_epoch,
        reachable_steps=reachable,
        max_steps=steps,
        tokens_per_step=per_step * data.seq_len,
        total_tokens=None if steps is None else steps * per_step * data.seq_len,
        warmup_steps=training.warmup_steps,
        checkpoints=None if steps is None else -(-steps // training.save_interval),
        data_passes=None if not per_epoch or steps is None else steps / per_epoch,
    )


def disk(config: Config, facts: PlanFacts, max_steps: int | None) -> Disk:
    """A checkpoint is fp32 weights and the optimizer's state, 12 N bytes with AdamW; `keep` of
    them, the best, one in flight, and every `keep_every`-th, if the run makes so many; one more
    where all of them can be younger than the newest figures that were read."""
    policy = config.training.checkpoint
    at_once = policy.keep + 2
    every = config.training.log_interval
    # steps of a save whose figures are not read
    unread = every - math.gcd(every, policy.save_every)
    at_once += unread > (policy.keep - 1) * policy.save_every
    if max_steps is not None:
        if policy.keep_every is not None:
            at_once += max_steps // policy.keep_every
        at_once = min(at_once, -(-max_steps // policy.save_every) + 1)  # all, one of them in flight
    weights = 4 * config.model.architecture.shape().num_parameters
    checkpoint = weights + optimizer_bytes(config)
    return Disk(checkpoint, at_once, facts.disk_free_bytes)


def duration(config: Config, facts: PlanFacts, total_tokens: int | None) -> Duration | None:
    """FLOPs / assumed rate; None where the device's rate or the number of tokens is unknown."""
    if total_tokens is None:
        return None
    if facts.device == "cuda":
        if facts.peak_flops is None:
            return None
        ranks = config.training.distributed.world_size
        rate = facts.peak_flops * ASSUMED_MFU * ranks
        times = f"{ranks} x " if ranks > 1 else ""
        assumption = f"{ASSUMED_MFU:.0%} of {times}{facts.device_name}'s peak"
        if config.training.mixed_precision == "fp32":
            rate, assumption = rate / 4, f"a quarter of {assumption}, for fp32"
    else:
        cores = min(config.training.num_threads or facts.cpu_count, facts.cpu_count)
        rate = cores * ASSUMED_CORE_FLOPS
        assumption = f"{ASSUMED_CORE_FLOPS / 1e9:.0f} GFLOP/s on each of {cores} cores"
    tokens_per_s = rate / config.model.architecture.shape().flops_per_token(config.data.seq_len)
    per_step = config.data.batch_size * config.training.gradient_accumulation * config.data.seq_len
    return Duration(
        total_tokens / tokens_per_s, assumption, 1e3 * per_step / tokens_per_s, tokens_per_s
    )
