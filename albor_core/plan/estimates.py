"""The arithmetic of a plan: steps, tokens, disk, time. Pure; every formula is stated."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from albor_core.config.clock import Clock, Place
from albor_core.config.config import Config
from albor_core.plan.facts import PlanFacts, SplitFacts

ASSUMED_MFU = 0.35
ASSUMED_CORE_FLOPS = 50e9  # fp32 training per core; 60-70 measured on a 2.5 GHz Xeon with AVX-512
FORMULA_FACTOR = 2.0
"""By how much a time that only a formula tells may be too long or too short."""
# at once, and of each log interval: runs of 300 and 2,300 steps of a small model on a CPU, 26 Nov
# 2026; larger models and GPUs have some series more
JOURNAL_BYTES = 18_000, 860
STORED_BYTES = 150_000, 810
CACHED_FROM = 32 << 20
"""Bytes of a split from which it is cached: SHARED_FROM_BYTES of data/load/packed_shards.py, which
loads numpy."""
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
    updates: int | None = None
    """Steps that the run will take, of which those in a batch_ramp are smaller than the ones that
    are counted elsewhere here."""
    done_tokens: int = 0
    """Of `total_tokens`, those that the run it goes on from was trained on."""


@dataclass(frozen=True)
class Disk:
    """Bytes of checkpoints at the worst moment (kept ones, the best, and one being written), and
    of what is recorded.
    """

    checkpoint: int | None
    """Of one; None while the model is unknown."""
    copies: int
    free: int | None
    journal: int = 0
    """journal.jsonl and system.jsonl."""
    stores: int = 0
    """The run's own, and its share of the global one."""
    cache: int = 0
    """Token ids that all runs on these data share, below ALBOR_HOME: no part of `total`."""

    @property
    def total(self) -> int | None:
        recorded = self.journal + self.stores
        return None if self.checkpoint is None else self.checkpoint * self.copies + recorded

    @property
    def missing(self) -> int:
        """Bytes by which the free ones are too few; 0 where either number is unknown."""
        if self.free is None or self.total is None:
            return 0
        return max(0, self.total - self.free)


@dataclass(frozen=True)
class Duration:
    """The wall time, what it rests on, and between which it lies."""

    seconds: float
    assumption: str
    step_ms: float
    tokens_per_s: float
    low_s: float
    high_s: float
    source: Literal["formula", "runs", "probe"] = "formula"


def schedule(
    config: Config, facts: PlanFacts, unit: int | None = None, place: Place | None = None
) -> PlannedSteps:
    """The step algebra, in steps of `unit` sequences where a run that has begun counts so
    (config/clock.py); unknown data leaves unknown steps. `place`: where one begins that goes on
    from another's checkpoint.
    """
    unit = unit or (None if place is None else place.unit)
    training, data = config.training, config.data
    per_step = unit or config.sequences_per_step
    start = place or Place(unit=per_step)
    sequences = facts.train.sequences_at(data.seq_len)
    per_epoch = reachable = None
    if sequences is not None:
        per_epoch = sequences // per_step
        reachable = Clock.of(config, sequences, unit).reachable
    steps = training.max_steps if training.max_steps is not None else reachable
    updates = steps
    if (training.batch_ramp or place is not None) and steps is not None:
        # data of unknown size is not a limit
        updates = Clock.of(config, sequences or steps * per_step, unit).last_step(start)
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
        updates=updates,
        done_tokens=start.sequences * data.seq_len,
    )


def disk(config: Config, facts: PlanFacts, max_steps: int | None, checkpoint: int | None) -> Disk:
    """`checkpoint`: the bytes of one. `keep` of them, the best, one in flight, and every
    `keep_every`-th, if the run makes so many; one more where all of them can be younger than the
    newest figures that were read."""
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
    lines = 0 if max_steps is None else -(-max_steps // every)
    journal, stores = (once + each * lines for once, each in (JOURNAL_BYTES, STORED_BYTES))
    stores = stores if config.monitoring.tracking.enabled else 0
    shape = config.model.architecture
    vocab_size = None if shape is None else shape.vocab_size
    cache = sum(cache_bytes(split, vocab_size) for split in (facts.train, facts.val))
    return Disk(checkpoint, at_once, facts.disk_free_bytes, journal, stores, cache)


def cache_bytes(split: SplitFacts | None, vocab_size: int | None) -> int:
    """Of the token ids of a split in one flat file (data/load/token_cache.py): 2 bytes a token
    where its vocabulary or the model's is small enough, and 4 a row; 0 of one that is read as it
    is, or whose size is unknown. Each source of a mixture has a file of its own.
    """
    if split is None:
        return 0
    if split.parts:
        return sum(cache_bytes(part, vocab_size) for part in split.parts)
    if not split.tokens or not split.sequences:
        return 0
    sizes = [size for size in (split.vocab_size, vocab_size) if size is not None]
    narrow = min(sizes, default=1 << 32) <= 1 << 16
    size = split.tokens * (2 if narrow else 4) + 4 * split.sequences
    return size if size >= CACHED_FROM else 0


def duration(
    config: Config,
    facts: PlanFacts,
    steps: PlannedSteps,
    flops_per_token: int | None,
) -> Duration | None:
    """Of what is left: by what was measured of this shape, evaluations and checkpoints included;
    else FLOPs / assumed rate, which may be off by FORMULA_FACTOR. None where the rate, the number
    of tokens or what one of them takes is unknown.
    """
    if steps.total_tokens is None:
        return None
    left = max(0, steps.total_tokens - steps.done_tokens)
    per_step = config.data.batch_size * config.training.gradient_accumulation * config.data.seq_len
    if (found := facts.measured) is not None:
        steps_left = -(-left // steps.tokens_per_step)
        evaluations = evaluations_of(config, steps_left)
        saves = -(-steps_left // config.training.save_interval)
        seconds, low, high = (
            found.seconds(left, evaluations, saves, rate)
            for rate in (found.tokens_per_s, found.high, found.low)
        )
        step_ms = 1e3 * per_step / found.tokens_per_s
        return Duration(seconds, found.words, step_ms, found.tokens_per_s, low, high, found.source)
    rate, assumption = _assumed_rate(config, facts)
    if rate is None or flops_per_token is None:
        return None
    tokens_per_s = rate / flops_per_token
    seconds = left / tokens_per_s
    return Duration(
        seconds,
        assumption,
        1e3 * per_step / tokens_per_s,
        tokens_per_s,
        seconds / FORMULA_FACTOR,
        seconds * FORMULA_FACTOR,
    )


def evaluations_of(config: Config, steps: int) -> int:
    """One at the start, one at each interval, one at the end."""
    if not config.data.has_val or not steps:
        return 0
    return 1 + -(-steps // config.training.eval_interval)


def _assumed_rate(config: Config, facts: PlanFacts) -> tuple[float | None, str]:
    """FLOP/s, and in words what they are."""
    if facts.device == "cuda":
        if facts.peak_flops is None:
            return None, ""
        ranks = config.training.distributed.world_size
        rate = facts.peak_flops * ASSUMED_MFU * ranks
        times = f"{ranks} x " if ranks > 1 else ""
        assumption = f"{ASSUMED_MFU:.0%} of {times}{facts.device_name}'s peak"
        if config.training.mixed_precision == "fp32":
            return rate / 4, f"a quarter of {assumption}, for fp32"
        return rate, assumption
    cores = min(config.training.num_threads or facts.cpu_count, facts.cpu_count)
    assumption = f"{ASSUMED_CORE_FLOPS / 1e9:.0f} GFLOP/s on each of {cores} cores"
    return cores * ASSUMED_CORE_FLOPS, assumption
