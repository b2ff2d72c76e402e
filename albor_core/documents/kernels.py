"""Documents of kernels, their times and choices, and of where a step goes."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypedDict

from albor_core.documents.shapes import Positive, keywords


class KernelSizes(TypedDict):
    rows: int
    hidden: int
    intermediate: int
    vocab: int
    heads: int
    kv_heads: int


class TimedCandidate(TypedDict):
    backend: str
    forward_us: float | None
    step_us: float | None
    why: str


class TimedOp(TypedDict):
    op: str
    dtype: str
    shape: list[int]
    chosen: str
    candidates: Annotated[list[TimedCandidate], keywords(minItems=1)]


class KernelsBenchDocument(TypedDict):
    """Each operation's candidates timed on this device. Times are medians in microseconds; null
    where a candidate was not timed, and why says why.
    """

    schema: Literal["albor.kernels.bench/1"]
    device: str
    threads: int
    torch: str
    sizes: KernelSizes
    rounds: int
    results: list[TimedOp]


class BackendChoice(TypedDict):
    op: str | None
    backend: str | None
    evidence: str | None
    device: str | None
    dtype: str | None
    rejected: list[Any]


class KernelsCheckDocument(TypedDict):
    """The backend that runs each operation here, and the evidence."""

    schema: Literal["albor.kernels.check/1"]
    unmet: str | None
    """Why ALBOR_KERNELS=triton is not met here."""
    choices: list[BackendChoice]


class TimedRoute(TypedDict):
    route: str
    us: float | None
    why: str


_TimedProductPass = TypedDict(
    "_TimedProductPass",
    {"pass": Literal["forward", "input gradient", "weight gradient", "product"]},
)


class TimedProduct(_TimedProductPass):
    name: str
    m: int
    n: int
    k: int
    layout: Literal["NN", "NT", "TN", "TT"]
    per_step: int
    ours: str
    us: float | None
    why: str
    tflops: float | None
    ceiling: str | None
    ceiling_us: float | None
    ceiling_share: float | None
    sustained_share: float | None
    datasheet_share: float | None
    routes: list[TimedRoute]


class KernelsGemmDocument(TypedDict):
    """The matrix products of a training step, or of given shapes, as Albor runs them (ours), beside
    the fastest of all ways through the libraries (the ceiling). Times are medians in microseconds,
    rates in 10^12 floating-point operations a second, shares fractions; null where something was
    not timed, for which why has the reason, or is not known.
    """

    schema: Literal["albor.kernels.gemm/1"]
    device: str
    threads: int
    torch: str
    dtype: Literal["fp32", "bf16", "fp16"]
    sizes: KernelSizes | None
    layers: int | None
    rounds: int
    sustained_size: int
    """Side of the square product whose best rate is the sustained peak."""
    sustained_tflops: float | None
    datasheet_tflops: float | None
    ceiling_share: float | None
    """Time of a step's products at their ceilings over that of ours; null for given shapes, or if a
    product was not timed.
    """
    products: Annotated[list[TimedProduct], keywords(minItems=1)]


class OpCandidate(TypedDict):
    backend: str
    cosine: float | None
    """The lowest against fp64."""
    rms_error: float | None
    """The largest root-mean-square error, as a fraction of the result."""
    max_error: float | None
    """The largest error, as a fraction of the largest of the result."""
    us: float | None
    """Forward and backward, microseconds."""
    floor_share: float | None
    """The least time that bytes and operations need on such a device, over us; above 1 where caches
    hold the case.
    """


class OpDecision(TypedDict):
    step: int | None
    """At which the op was decided."""
    attempt: int | None
    """Which decided it."""
    op: str
    dtype: str
    device: str
    backend: str
    evidence: str
    candidates: list[OpCandidate]


class RejectedBackend(TypedDict):
    step: int | None
    attempt: int | None
    op: str
    dtype: str
    backend: str
    reason: str


class ParityFigures(TypedDict):
    step: int | None
    attempt: int | None
    at: str
    """load, or how many steps of the attempt later."""
    how: str | None
    """fused or plain; null: not compared."""
    cosine: float | None
    """Of the logits with those of the CPU in fp32."""
    max_error: float | None
    """Largest difference of logits, as a fraction of the largest one."""
    loss: float | None
    """Nats per token."""
    reference_loss: float | None
    """Nats per token."""
    rounded_cosine: float | None
    """Where the cosine is low: that of the plain model in the precision of the training. As low, it
    is rounding, and no fault.
    """
    is_bad: bool
    """An alert was raised."""
    skipped: str | None
    """Why it was not compared."""


class KernelsShowDocument(TypedDict):
    """What runs each op of a run, by the newest decision of any attempt, why, and the parity of its
    whole model in the newest attempt that compared it.
    """

    schema: Literal["albor.kernels.show/1"]
    run: str
    attempt: int | None
    """The newest that recorded kernels; null: the run recorded none."""
    damaged_lines: int
    """Of the journal, which were skipped: what they told is not here."""
    ops: list[OpDecision]
    rejected: list[RejectedBackend]
    parity: list[ParityFigures]


class TraceSource(TypedDict):
    how: Literal["taken", "kept", "given"]
    """taken now by training a few steps, kept by the run while it trained, or given as a file"""
    trace: str | None
    """where the trace lies; null: taken now and not kept"""
    run: str | None


class PhaseTime(TypedDict):
    name: str
    ms: float
    """busy_ms on a GPU, host_ms on a CPU"""
    share: float
    """ms over step_ms"""
    host_ms: float
    """of the range on the host"""
    busy_ms: float
    """that the device, or an operator of the CPU, worked for it"""
    launches: float
    synchronizations: float


class IdleCause(TypedDict):
    why: str
    ms: float
    share: float
    named: bool
    """whether it counts as explained"""


class TraceCoverage(TypedDict):
    share: float
    """busy, or idle for a named cause"""
    busy_share: float
    named_idle_share: float
    idle: list[IdleCause]


class KernelFigures(TypedDict):
    name: str
    share: float
    total_ms: float
    """of all traced steps"""
    per_step: float
    mean_us: float


class KernelTimes(TypedDict):
    kind: Literal["kernels", "operators"]
    """operators by the time that is in no operator inside them"""
    left_off: int
    """names beyond --kernels"""
    rows: list[KernelFigures]


class Synchronizations(TypedDict):
    item: float
    """numbers read out of tensors"""
    copies_to_host: float


class CopyTime(TypedDict):
    direction: str
    """HtoD, DtoH, DtoD"""
    count: float
    bytes: float
    ms: float
    gb_per_s: float | None


class TraceCounters(TypedDict):
    operators: int
    kernels: int
    matrix_products: int
    pcie_bytes: int
    """copied between host and device"""
    streams: int
    threads: int


_RooflineProductPass = TypedDict(
    "_RooflineProductPass", {"pass": Literal["forward", "input gradient", "weight gradient"]}
)


class RooflineProduct(_RooflineProductPass):
    name: Literal["attn_qkv", "attn_out", "ffn_gate_up", "ffn_down", "lm_head"]
    m: int
    n: int
    k: int
    per_step: int
    flops: int
    """2 m n k"""
    bytes: int
    """both factors and the result once"""
    intensity: float
    """FLOP/byte"""
    bound: Literal["compute", "memory"] | None
    floor_us: float | None
    measured_us: float | None
    """mean in the trace; null: not in it"""
    shares_with: list[str]
    """products of the same sizes that the trace does not tell apart, by their order either:
    measured_us is the mean of all
    """


class RooflineFigures(TypedDict):
    peak_flops: float | None
    """FLOP/s of the device in that precision; null is not known"""
    bandwidth: float | None
    """bytes/s of its memory"""
    ridge: float | None
    """FLOP/byte above which computing bounds"""
    precision: str
    products: list[RooflineProduct]


class MfuFigures(TypedDict):
    parameters: int
    """P, all that are trained"""
    matmul_parameters: int
    """those that a token is multiplied with"""
    flops_per_step: int
    """of all ranks"""
    step_s: float
    half_peak: float | None
    """FLOP/s of all devices in half precision; null is not known"""
    fp32_peak: float | None
    half: float | None
    fp32: float | None


class ProfileDocument(TypedDict):
    """Where the time of traced steps went. Milliseconds, counts and bytes are of one step, means
    over the traced ones, unless their name or description says otherwise; shares are of a step's
    wall time.
    """

    schema: Literal["albor.profile/1"]
    source: TraceSource
    device: str
    """the GPU's name, or CPU"""
    on: Literal["cpu", "gpu"]
    """of a GPU kernels are counted, of a CPU operators"""
    steps: Positive
    step_ms: float
    """wall time; a profiler makes steps slower"""
    events: int
    """in the trace"""
    truncated: bool
    """whether the file breaks off"""
    missing: list[str]
    """what the trace does not have, and what that leaves out"""
    phases: list[PhaseTime]
    """bricks, or in traces of other programs the ranges that they named"""
    coverage: TraceCoverage
    """measured, not by remainder: a moment in which two kernels run counts once"""
    kernels: KernelTimes
    launches: float
    graph_launches: float
    synchronizations: Annotated[Synchronizations, keywords(additionalProperties={"type": "number"})]
    """calls that make the host wait, by name"""
    copies: list[CopyTime]
    counters: TraceCounters
    """of all traced steps together"""
    roofline: RooflineFigures | None
    """null where the shape of the model is not known"""
    mfu: MfuFigures | None
    """model FLOPs utilisation of the traced steps; null where the shape of the model is
    not known
    """
