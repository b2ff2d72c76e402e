"""The arithmetic of a plan: steps, tokens, memory, disk, time. Pure; every formula is stated."""

from __future__ import annotations

from dataclasses import dataclass

from albor_core.run.config import Config
from albor_core.run.facts import Facts

CUDA_OVERHEAD_BYTES = 1 << 30  # context, cuBLAS and cuDNN workspaces, allocator slack
ASSUMED_MFU = 0.35
ASSUMED_CORE_FLOPS = 50e9  # fp32 training per core; 60-70 measured on a 2.5 GHz Xeon with AVX-512
TOKENS_PER_PARAMETER = 20  # compute-optimal, Hoffmann et al. 2022, arXiv:2203.15556


@dataclass(frozen=True)
class Schedule:
    """C-TRAINCFG-001: how many steps the data holds and how many the run will take."""

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
class Memory:
    """Peak bytes of a rank while training, at the end of the first backward pass, by what holds
    them.
    """

    weights: int
    gradients: int
    optimizer: int
    half_copies: int
    activations: int
    overhead: int
    capacity: int | None

    @property
    def total(self) -> int:
        return (
            self.weights
            + self.gradients
            + self.optimizer
            + self.half_copies
            + self.activations
            + self.overhead
        )

    @property
    def missing(self) -> int:
        """Bytes that are not there; 0 if it fits or nobody knows."""
        return 0 if self.capacity is None else max(0, self.total - self.capacity)


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


def schedule(config: Config, facts: Facts) -> Schedule:
    """The step algebra; unknown data leaves unknown steps."""
    training, data = config.training, config.data
    per_step = data.batch_size * training.gradient_accumulation
    sequences = facts.train.sequences_at(data.seq_len)
    per_epoch = None if sequences is None else sequences // per_step
    reachable = None if per_epoch is None else per_epoch * training.epochs
    steps = training.max_steps if training.max_steps is not None else reachable
    return Schedule(
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


def memory(config: Config, facts: Facts) -> Memory:
    """fp32 weights and gradients 4 N each, AdamW's moments 8 N; under autocast 2 N for half copies.

    Activations of one micro-batch, per token, with a = 4 in fp32 and 2 in half precision:
    blocks  L (8 D + a (8 D + 4 F)), residual stream and norms in fp32, attention without a T^2
            matrix; within 1 % of the tensors autograd saves in fp32, up to 5 % above in half.
            With activation checkpointing L * 4 D and one whole block.
    head    12 V: logits, their log-softmax and gradient.
    A GPU adds 1 GiB for context and workspaces; ranks on a CPU share its memory.
    fsdp: 4 N and 8 N over the ranks, and what is gathered at a time (two blocks, embedding, head);
    gradients that accumulate are whole. An estimate: compilers save less.
    """
    shape = config.model.architecture.shape()
    half = config.training.mixed_precision != "fp32"
    size = 2 if half else 4
    block = 8 * shape.hidden_size + size * (8 * shape.hidden_size + 4 * shape.intermediate_size)
    layers = shape.num_hidden_layers
    checkpointed = layers * 4 * shape.hidden_size + block
    share = config.share()
    blocks = checkpointed if config.training.activation_checkpointing else layers * block
    tokens = share.batch_size * config.data.seq_len
    ranks = share.world_size
    on_gpu = facts.device == "cuda"
    capacity = facts.device_memory_bytes
    parameters, gradients = shape.num_parameters, shape.num_parameters
    halves, gathered = shape.num_matmul_parameters if half else 0, 0
    if ranks > 1 and config.training.distributed.strategy == "fsdp":
        one_block = (parameters - shape.vocab_size * shape.hidden_size) // layers
        gathered = size * (parameters - max(0, layers - 2) * one_block)
        parameters, halves = -(-parameters // ranks), 0
        gradients = parameters if share.accumulation == 1 else gradients
    return Memory(
        weights=4 * parameters + gathered,
        gradients=4 * gradients,
        optimizer=8 * parameters,
        half_copies=2 * halves,
        activations=tokens * (blocks + 12 * shape.vocab_size),
        overhead=CUDA_OVERHEAD_BYTES if on_gpu else 0,
        capacity=capacity if capacity is None or on_gpu else capacity // ranks,
    )


def disk(config: Config, facts: Facts, max_steps: int | None) -> Disk:
    """A checkpoint is 12 N bytes (fp32 weights, two moments); `keep` of them, the best, one in
    flight, and every `keep_every`-th."""
    policy = config.training.checkpoint
    forever = 0
    if policy.keep_every is not None and max_steps is not None:
        forever = max_steps // policy.keep_every
    checkpoint = 12 * config.model.architecture.shape().num_parameters
    return Disk(checkpoint, policy.keep + 2 + forever, facts.disk_free_bytes)


def duration(config: Config, facts: Facts, total_tokens: int | None) -> Duration | None:
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
    flops = config.model.architecture.shape().flops_per_token(config.data.seq_len) * total_tokens
    return Duration(flops / rate, assumption)
