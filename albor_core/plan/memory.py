"""The memory a run will need, and which step needs it. Pure; every formula is stated."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from albor_core.config.choices import FUSED_OPTIMIZERS
from albor_core.config.config import Config
from albor_core.config.microbatches import share_of
from albor_core.config.recipes.entry import ParameterCounts
from albor_core.config.recipes.own import own_class
from albor_core.config.shape import ModelShape
from albor_core.plan.facts import PlanFacts

CUDA_OVERHEAD_BYTES = 1 << 30  # context, cuBLAS and cuDNN workspaces, allocator slack
LOGITS_BYTES, SCORED_BYTES = 1 << 30, 1 << 28
CHECKED_BYTES = 17 << 28  # 4.25 GiB: swiglu and attention in fp64; 3.9 to 4.2 on an H100
GRAPHED_TOKENS = 32768
COPYING_RANKS = 2
NORM_PROGRAMS = 396
GATE_ROWS = 2
MUON_BATCH = 1 << 26
FP8_MULTIPLE = 64
FP8_CAPABILITY, FUSED_CAPABILITY = (9, 0), (8, 0)  # Hopper; Ampere, the first with bf16


@dataclass(frozen=True)
class MemoryEstimate:
    """Peak bytes of a rank, by what holds them."""

    step: str
    """fused (model/fused.py), compiled (torch.compile) or plain: which one they are for."""
    weights: int
    gradients: int
    optimizer: int
    half_copies: int
    activations: int
    """Of a micro-batch, or what an update needs where that is more."""
    start: int
    """What comparing the fused or compiled step with the plain one before step 1 needs beyond."""
    evaluation: int = 0
    """Of a micro-batch that is only scored; 0 without validation data."""
    keeps_activations: bool = False
    """Whether their room stays taken between steps (CUDA graphs), so that an evaluation comes on
    top. Otherwise the two never are at the same time.
    """
    overhead: int = 0
    capacity: int | None = None

    @property
    def fixed(self) -> int:
        """The memory that even the smallest micro-batch needs."""
        held = self.weights + self.gradients + self.optimizer + self.half_copies
        return held + self.overhead

    @property
    def total(self) -> int:
        evaluating = self.evaluation + (self.activations if self.keeps_activations else 0)
        return self.fixed + max(self.activations + self.start, evaluating)

    @property
    def missing(self) -> int:
        """Bytes that are not there; 0 if it fits or that is not known."""
        return 0 if self.capacity is None else max(0, self.total - self.capacity)


def fusion_obstacles(
    config: Config, device: str, capability: tuple[int, int] | None = None
) -> tuple[str, ...]:
    """Why the step of written-out kernels (model/fused.py) will not run on a `device` ("cuda" or
    "cpu"): what can be known without asking its kernels. The trainer asks them, too
    (`obstacle_to_fusion`), and leaves the GPU's `capability` to them. Empty: it is to be expected.
    """
    training, shape = config.training, config.model.architecture.shape()
    is_fp8 = training.mixed_precision == "fp8"
    lowest = FP8_CAPABILITY if is_fp8 else FUSED_CAPABILITY
    sizes = (shape.hidden_size, shape.intermediate_size, config.data.seq_len)
    found = (
        (device != "cuda", "it needs a GPU"),
        (training.compile is False, "training.compile is false"),
        (
            training.mixed_precision not in ("bf16", "fp8"),
            f"training.mixed_precision is {training.mixed_precision}",
        ),
        (
            config.optimizer.name not in FUSED_OPTIMIZERS,
            f"optimizer.name is {config.optimizer.name}",
        ),
        (training.deterministic, "training.deterministic is true"),
        (training.activation_checkpointing is True, "training.activation_checkpointing is true"),
        (config.training.distributed.is_sharded, "training.distributed.strategy is fsdp"),
        *_block_obstacles(shape),
        *_mask_obstacles(config, shape, capability),
        (
            _has_smaller_parts(config),
            "training.batch_ramp makes micro-batches smaller on its ranks",
        ),
        (
            is_fp8 and any(size % FP8_MULTIPLE for size in sizes),
            f"hidden_size, intermediate_size and seq_len have to be multiples of {FP8_MULTIPLE}",
        ),
        (
            capability is not None and capability < lowest,
            f"it needs compute capability {_dotted(lowest)}, and the GPU has "
            f"{_dotted(capability or lowest)}",
        ),
    )
    return tuple(reason for is_so, reason in found if is_so)


def shape_obstacles(shape: ModelShape, length: int, name: str) -> tuple[str, ...]:
    """Why model/fused.py has no form of a model that reads `length` tokens; `name` says whose."""
    found = (
        *_block_obstacles(shape),
        (
            shape.window(length) is not None,
            f"sliding_window {shape.sliding_window} is below {name} {length}",
        ),
    )
    return tuple(reason for is_so, reason in found if is_so)


def _block_obstacles(shape: ModelShape) -> tuple[tuple[bool, str], ...]:
    return ((shape.head_dim % 8 != 0, f"head_dim {shape.head_dim} is not a multiple of 8"),)


def _mask_obstacles(
    config: Config, shape: ModelShape, capability: tuple[int, int] | None
) -> Iterator[tuple[bool, str]]:
    """Obstacles of attention masks other than causal: kernels/documents/attention.py has its
    limits."""
    T = config.data.seq_len
    lengths = (T, *(one.seq_len for one in config.training.seq_len_ramp))
    is_far = capability is not None and capability < (9, 0)
    is_odd = shape.head_dim not in (64, 128) or any(length % 64 for length in lengths)
    masks = {"data.document_mask": config.data.document_mask}
    masks["sliding_window"] = shape.window(T) is not None
    for name in (name for name, is_there in masks.items() if is_there):
        yield is_odd, f"{name} needs a head_dim of 64 or 128 and a seq_len of a multiple of 64"
        yield is_far, f"{name} needs compute capability 9.0"


def _has_smaller_parts(config: Config) -> bool:
    """Whether a rank's micro-batches change with the ramp: what is captured has one shape."""
    whole = config.share()
    parts = (
        share_of(config.data.batch_size, one.gradient_accumulation, whole.world_size)
        for one in config.training.batch_ramp
    )
    return any(part is None or part.batch_size != whole.batch_size for part in parts)


def _dotted(capability: tuple[int, int]) -> str:
    return ".".join(map(str, capability))


def memory(
    config: Config,
    facts: PlanFacts,
    counts: ParameterCounts | None = None,
    obstacles: tuple[str, ...] = (),
) -> MemoryEstimate:
    """fp32 weights 4 N, the optimizer's state (AdamW 8 N, `optimizer_bytes`), and what the step
    that will run needs beside them; on a GPU 1 GiB for context and workspaces. Ranks on a CPU share
    its memory. An evaluation scores micro-batches without gradients, logits in pieces: the largest
    of it and of a step counts. `counts`: what a recipe trains of the model, if not all;
    what is frozen has no gradient and no state, and in the fused step no fp32 master. `obstacles`:
    of the recipe, to that step.
    """
    counts = counts or ParameterCounts.of_all(config.model.architecture.shape())
    is_own = own_class(config.training.mode) is not None  # which is never compiled
    on_gpu, ranks = facts.device == "cuda", config.share().world_size
    capacity = facts.device_memory_bytes
    if not (*obstacles, *fusion_obstacles(config, facts.device, facts.gpu_capability)):
        found = _fused(config, counts)
    else:
        found = _by_autograd(
            *(config, counts),
            is_compiled=on_gpu and config.training.compile is not False and not is_own,
        )
    return replace(
        found,
        weights=found.weights + counts.bytes_beside,
        evaluation=found.evaluation if config.data.has_val else 0,
        overhead=CUDA_OVERHEAD_BYTES if on_gpu else 0,
        capacity=capacity if capacity is None or on_gpu else capacity // ranks,
    )


def _fused(config: Config, counts: ParameterCounts) -> MemoryEstimate:
    """The step of model/fused.py, read off its `Tape`, `_score` and `_backward`; a number is bf16.

    Per token and layer 4 D + 2 H E + 2 K E + 2 F: both norms' results and both points of the
    residual stream, q, k, v, attention's result, gate and SwiGLU's result; fp32 statistics of two
    norms and H heads; where q and k are normed, q, k, v as they were projected, too, 2 H E + 4 K E
    bytes. In fp8 the MLP keeps 2 F numbers and F + D bytes instead. Once: the last norm
    (2 D) and the head's gradient (D), and the larger of a piece of logits, whose gradient is
    written over them, and what one layer's backward needs.
    Gradients are 2 N, and 4 N more where micro-batches are added up, else 2 N of the other rank
    where there are two; shadows of matrices 2 N.

    Where segments of blocks are computed again, it is that of the layers of one, and 5 D bytes a
    token at the beginning of each but the last.

    Up to GRAPHED_TOKENS a step is replayed as CUDA graphs, whose memory no other part uses. An
    evaluation has one layer at a time, 13 D + 8 H E + 4 K E + 4 F bytes a token, and then logits in
    pieces. That of fp8 is the plain model's, which makes half copies of all weights.

    Before step 1 it is compared with the plain model on two sequences: fp32 activations of autograd
    there, or both references' gradients beside the fused step's own. And each kernel is checked
    in fp64 at the size that it is timed at: CHECKED_BYTES, whatever the model.

    350M class on an H200, GiB at B 4, 16, 64, and 64 in fp8, without the overhead and what is
    needed before step 1: 8.9, 17.9, 50.9, 57.1; a test holds them to what was measured.
    """
    shape, share = config.model.architecture.shape(), config.share()
    D, F, V = shape.hidden_size, shape.intermediate_size, shape.vocab_size
    L = shape.num_hidden_layers
    norms = L * shape.num_block_vector_parameters + D
    tokens = share.batch_size * config.data.seq_len
    is_fp8 = config.training.mixed_precision == "fp8"
    mixed = shape.query_width
    mixer = 2 * D + 2 * mixed + 2 * shape.key_width  # numbers of attention and norms
    always = 2 * (mixer + D + 2 * F) + D + F if is_fp8 else 2 * (mixer + 2 * D + 2 * F)
    always += 4 * (2 + shape.num_attention_heads)
    projected = 2 * (mixed + 2 * shape.key_width) if shape.qk_norm else 0  # q, k, v before norms
    always += projected
    logits = 2 * V * min(tokens, max(1, LOGITS_BYTES // (2 * V)))
    one_backward = tokens * (2 * (2 * D + mixed) + (2 * D + 6 * F if is_fp8 else 2 * F))
    biases = L * (mixed + 2 * shape.key_width) if shape.qkv_bias else 0
    one_backward += 4 * (norms - biases) * NORM_PROGRAMS
    kept = _over_blocks(config, block=always, border=5 * D + 4, is_last_kept=True)
    step = tokens * (kept + 6 * D) + max(logits, one_backward)
    step = max(step, _muon_bytes(config, size=2, around=0))

    compared = min(GATE_ROWS, share.batch_size) * config.data.seq_len
    in_a_block = 4 * (4 * D + 4 * mixed + 4 * F) + _normed_heads(config, size=4)
    in_fp32 = _over_blocks(config, block=in_a_block, border=4 * D)
    in_fp32 = compared * (in_fp32 + _eager_head(config)) + 4 * counts.frozen_matrices
    beside = 8 * counts.trained + compared * (kept + 6 * D + 8 * V)
    arrived = 2 * counts.matrices if share.world_size == COPYING_RANKS else 0
    half_copies = 2 * counts.matrices + (
        6 * D * F * L if is_fp8 else 0
    )  # fp8: both layouts, a byte
    return MemoryEstimate(
        step="fused",
        weights=4 * (counts.trained + counts.frozen_vectors) + 2 * counts.frozen_matrices,
        gradients=2 * counts.matrices
        + 4 * norms
        + (4 * (counts.matrices + norms) if share.accumulation > 1 else arrived),
        optimizer=optimizer_bytes(config, counts) + (2 * counts.hidden if _has_muon(config) else 0),
        half_copies=half_copies,
        activations=step,
        start=max(0, in_fp32 - step, beside - step, CHECKED_BYTES - step),
        evaluation=_plain_evaluation(config) + 2 * shape.num_matmul_parameters
        if is_fp8
        else max(
            tokens * (13 * D + 8 * mixed + 4 * shape.key_width + 4 * F + projected),
            6 * D * tokens + _scored(config, each=2),
        ),
        keeps_activations=tokens <= GRAPHED_TOKENS,
    )


def _plain_evaluation(config: Config) -> int:
    """Of the plain model without gradients: in a block two points of the residual stream, its norm
    and three results of the MLP, or what turning q takes; then logits in pieces. The half copies of
    weights are counted where a step has them, too.
    """
    shape, half = config.model.architecture.shape(), config.training.mixed_precision != "fp32"
    D, F, size = shape.hidden_size, shape.intermediate_size, 2 if half else 4
    point = D * (4 if config.training.residual_in_fp32 or not half else 2)
    block = 2 * point + size * D + max(size * 3 * F, 18 * shape.query_width)
    tokens = config.share().batch_size * config.data.seq_len
    head = size * shape.vocab_size * D if half else 0
    return max(tokens * block, tokens * size * D + head + _scored(config, each=8))


def _scored(config: Config, *, each: int) -> int:
    """Bytes of a piece of logits, `each` a logit with what is made of it."""
    row = each * config.model.architecture.vocab_size
    tokens = config.share().batch_size * config.data.seq_len
    return row * min(tokens, max(1, SCORED_BYTES // row))


def _by_autograd(config: Config, counts: ParameterCounts, *, is_compiled: bool) -> MemoryEstimate:
    """The plain model: fp32 gradients 4 N, under autocast 2 N for half copies of weights.

    Activations of one micro-batch, per token, with a = 4 in fp32 and 2 in half precision, s the
    bytes of a number of the residual stream (`residual_in_fp32`):
    eager     L (2 s D + a (4 D + 4 H E + 4 F)), attention without a T^2 matrix; in half precision
              a (6 D + 2 H E + 4 F), and 4 K E more; within 2 % of what autograd saves. Head:
              `_eager_head`. Where q and k are normed, the numbers before and after it, 4 + a bytes
              for each of (H + K) E, and 8 of statistics a head. Once, a window's mask.
    compiled  in half precision L (2 s D + a (2 D + 2 H E + 2 K E + 3 F)) and 2 V: Inductor makes
              the rest again. With 12 N of weights and moments and 2 N of copies that is 9.3, 21.6,
              70.8 GiB for the 350M class at B 4, 16, 64 of 1024 where an H200 took 9.4, 21.7, 71.1
              (9.0, 20.2, 65.1 with a stream in bf16). Gradients, which come as activations go, are
              counted beside them here: micro-batches add theirs up.
    With activation checkpointing s D for each segment of blocks, and one whole eager segment.
    fsdp: 4 N and the optimizer's state over the ranks, and what is gathered at a time (two blocks,
    embedding, head); gradients that accumulate are whole; blocks are compiled, the head is not.
    """
    shape, share = config.model.architecture.shape(), config.share()
    half = config.training.mixed_precision != "fp32"
    size, ranks = 2 if half else 4, share.world_size
    D, F, layers = shape.hidden_size, shape.intermediate_size, shape.num_hidden_layers
    tokens = share.batch_size * config.data.seq_len
    parameters, gradients = counts.unpacked, counts.trained
    multiplied = shape.num_matmul_parameters - (shape.num_parameters - parameters)
    halves, gathered = multiplied if half else 0, 0
    if config.training.distributed.is_sharded:
        one_block = (parameters - shape.vocab_size * D) // layers
        gathered = size * (parameters - max(0, layers - 2) * one_block)
        parameters, halves = -(-parameters // ranks), 0
        gradients = -(-gradients // ranks) if share.accumulation == 1 else gradients
    in_update = _muon_bytes(config, size=2 if is_compiled else 4, around=12)
    kept = tokens * _kept_of_a_token(config, is_compiled=is_compiled) + _mask(config)
    activations = max(kept, in_update)
    checked = 4 * (
        6 * D + 4 * shape.query_width + 4 * F
    )  # of a token of the one sequence, in a block, in fp32
    checked = _over_blocks(config, block=checked, border=4 * D)
    in_fp32 = (
        config.data.seq_len * (checked + _eager_head(config))
        if is_compiled and not config.training.distributed.is_sharded
        else 0
    )
    return MemoryEstimate(
        step="compiled" if is_compiled else "plain",
        weights=4 * parameters + gathered,
        gradients=4 * gradients,
        optimizer=-(
            -optimizer_bytes(config, counts)
            // (ranks if config.training.distributed.is_sharded else 1)
        ),
        half_copies=2 * halves,
        activations=activations,
        start=max(0, in_fp32 - activations),
        evaluation=_plain_evaluation(config),
    )


def _kept_of_a_token(config: Config, *, is_compiled: bool) -> int:
    """Bytes of activations that the backward of the plain model needs, as told above."""
    shape = config.model.architecture.shape()
    half = config.training.mixed_precision != "fp32"
    size = 2 if half else 4
    D, F, layers = shape.hidden_size, shape.intermediate_size, shape.num_hidden_layers
    mixed, keys = shape.query_width, 2 * shape.key_width
    normed = _normed_heads(config, size=size)
    point = D * (4 if config.training.residual_in_fp32 or not half else 2)
    attended = 6 * D + 2 * mixed if half else 4 * D + 4 * mixed
    block, head = 2 * point + size * (attended + 4 * F), _eager_head(config)
    block += normed + (2 * keys if half else 0)
    blocks = layers * block
    if is_compiled and half:
        blocks = 2 * point + 2 * (2 * D + 2 * mixed + keys + 3 * F) + normed
        blocks += 4 * (2 + shape.num_attention_heads)
        blocks *= layers
        head = head if config.training.distributed.is_sharded else 2 * shape.vocab_size
    if config.training.activation_checkpointing:
        blocks = _over_blocks(config, block=block, border=point)
    return blocks + head


def _over_blocks(config: Config, *, block: int, border: int, is_last_kept: bool = False) -> int:
    """Bytes of a token in all blocks: `block` each, or, where segments of them are computed again,
    in one segment at a time, and `border` where each begins. `is_last_kept`: that one is not.
    """
    layers = config.model.architecture.num_hidden_layers
    segments = config.training.segments(layers)
    if not segments:
        return layers * block
    return -(-layers // segments) * block + (segments - is_last_kept) * border


def _normed_heads(config: Config, *, size: int) -> int:
    """Bytes of a token in a block that autograd keeps of norms of q and k, as told above."""
    shape = config.model.architecture.shape()
    heads = shape.num_attention_heads + shape.num_key_value_heads
    return (8 + (4 + size) * shape.head_dim) * heads if shape.qk_norm else 0


def _mask(config: Config) -> int:
    """T^2 of a window that is felt: who sees whom, and the same in the dtype of the scores."""
    T, size = config.data.seq_len, 4 if config.training.mixed_precision == "fp32" else 2
    is_felt = config.model.architecture.shape().window(T) is not None
    return T * T * (1 + size) if is_felt else 0


def _eager_head(config: Config) -> int:
    """Bytes a token, per logit 12: the logit, its log-softmax and gradient; with z_loss a second
    gradient and what it is made from.
    """
    each = 20 if config.training.stability.z_loss else 12
    return each * config.model.architecture.vocab_size


def optimizer_bytes(config: Config, counts: ParameterCounts) -> int:
    """fp32 state: AdamW's two moments; of Muon's matrices the momentum alone (what NorMuon keeps of
    each row is not counted).
    """
    return 8 * counts.trained - 4 * (counts.hidden if _has_muon(config) else 0)


def _has_muon(config: Config) -> bool:
    return config.optimizer.name == "muon"


def _muon_bytes(config: Config, *, size: int, around: int) -> int:
    """What Newton-Schulz (train/optim/muon.py) takes while an update is made: of the largest batch
    of matrices of one shape three copies and two squares of the smaller side, in numbers of `size`
    bytes; `around` bytes a weight are held meanwhile, and as many made of the result. fsdp: batches
    are larger, a rank has its share of one, and two copies more: what it sent and what came.
    """
    if not _has_muon(config):
        return 0
    shape = config.model.architecture.shape()
    D, F, L = shape.hidden_size, shape.intermediate_size, shape.num_hidden_layers
    mixed, keys = shape.query_width, shape.key_width
    ranks, copies = (
        (config.share().world_size, 5) if config.training.distributed.is_sharded else (1, 3)
    )
    alike = {(F, D): 2 * L}
    for matrix, count in (((mixed, D), L), ((D, mixed), L), ((keys, D), 2 * L), ((D, F), L)):
        alike[matrix] = alike.get(matrix, 0) + count
    found = 0
    for (rows, columns), count in alike.items():
        batch = min(count, max(1, ranks * MUON_BATCH // (rows * columns)))
        mine = -(-batch // ranks)
        weights, squares = mine * rows * columns, mine * min(rows, columns) ** 2
        products = size * (copies * weights + 2 * squares)
        found = max(found, around * weights + max(products, around * weights))
    return found
