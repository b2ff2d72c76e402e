"""The matrix products of a decoder's step against what a device can do, and MFU. Pure.

A product of (M, K) by (K, N) takes 2 M N K FLOPs and moves at least its two factors and its result
once. Below the ridge point, peak over bandwidth, moving bounds it; above it, computing does. M is
the tokens of a micro-batch, D hidden_size, F intermediate_size, V vocab_size.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from albor_core.profile.trace import StepTrace, TraceEvent
from albor_core.profile.workload import Workload
from albor_core.telemetry.peaks import DevicePeaks

Sizes = tuple[int, int, int]
"""M, N, K of a product."""
PASSES = ("forward", "input gradient", "weight gradient")
_BYTES = {"fp32": 4}
_HALF = 2
_PRODUCTS = ("aten::mm", "aten::addmm", "aten::_scaled_mm", "aten::bmm")


@dataclass(frozen=True)
class Product:
    """One matrix product of a micro-batch. Times in microseconds, of one instance."""

    name: str
    when: str
    """One of PASSES."""
    m: int
    n: int
    k: int
    per_step: int
    """Instances in a step of one rank."""
    bytes: int
    """That it must move."""
    bound: str | None
    """compute or memory; None where the device's peaks are not known."""
    floor_us: float | None
    """The least that the device can take; None where its peaks are not known."""
    measured_us: float | None
    """Mean in the trace, of its parts where it is computed in parts; None: not in it."""
    shares_with: tuple[str, ...] = ()
    """Products of the same sizes, which a trace does not tell apart."""

    @property
    def flops(self) -> int:
        return 2 * self.m * self.n * self.k

    @property
    def intensity(self) -> float:
        """FLOPs per byte."""
        return self.flops / self.bytes


@dataclass(frozen=True)
class Roofline:
    """All of them, and what they were held against."""

    device: str
    peak_flops: float | None
    """Of the precision of the products."""
    bandwidth: float | None
    """Bytes per second."""
    precision: str
    products: tuple[Product, ...]

    @property
    def ridge(self) -> float | None:
        """FLOPs per byte above which computing bounds; None where the peaks are not known."""
        if self.peak_flops is None or not self.bandwidth:
            return None
        return self.peak_flops / self.bandwidth


@dataclass(frozen=True)
class Utilisation:
    """Model FLOPs utilisation, and what it is made of."""

    parameters: int
    """P: all trainable numbers."""
    matmul_parameters: int
    """Those that a token is multiplied with."""
    flops_per_step: int
    """6 of the latter a token, and attention (config/shape.py, flops_per_token); all ranks."""
    step_s: float
    half_peak: float | None
    """FLOP/s of all devices; None is not known."""
    fp32_peak: float | None

    def of(self, peak: float | None) -> float | None:
        return None if peak is None else self.flops_per_step / self.step_s / peak


def utilisation(
    workload: Workload | None, peaks: DevicePeaks | None, step_us: float
) -> Utilisation | None:
    """None where the model's shape is not known."""
    if workload is None or workload.shape is None or step_us <= 0:
        return None
    shape, ranks = workload.shape, workload.world_size
    return Utilisation(
        shape.num_parameters,
        shape.num_matmul_parameters,
        shape.flops_per_token(workload.seq_len) * workload.tokens_per_step,
        step_us / 1e6,
        None if peaks is None else peaks.half * ranks,
        None if peaks is None or peaks.fp32 is None else peaks.fp32 * ranks,
    )


def roofline(
    workload: Workload | None, peaks: DevicePeaks | None, trace: StepTrace, *, device: str
) -> Roofline | None:
    """Of the products of a decoder; None where its shape is not known."""
    if workload is None or workload.shape is None:
        return None
    is_half = workload.precision != "fp32"
    peak = None if peaks is None else peaks.half if is_half else peaks.fp32
    bandwidth = None if peaks is None else peaks.bandwidth
    size = _BYTES.get(workload.precision, _HALF)
    found, wanted = _measured(trace), list(_wanted(workload))
    same = defaultdict(list)
    for name, when, sizes, _, _ in wanted:
        same[_key(sizes)].append(f"{name} {when}")
    products = []
    for name, when, sizes, parts, per_step in wanted:
        m, n, k = sizes
        moved = size * (m * k + k * n + m * n)
        bound, floor = _limit(2 * m * n * k, moved, peak, bandwidth)
        whole = found.get(_key(sizes))
        times = [found.get(_key(part)) for part in parts]
        if whole is None and len(times) > 1 and None not in times:
            whole = sum(time for time in times if time is not None)
        others = tuple(one for one in same[_key(sizes)] if one != f"{name} {when}")
        products.append(Product(name, when, m, n, k, per_step, moved, bound, floor, whole, others))
    return Roofline(device, peak, bandwidth, workload.precision, tuple(products))


def _limit(
    flops: int, moved: int, peak: float | None, bandwidth: float | None
) -> tuple[str | None, float | None]:
    """What bounds a product, and its least time in microseconds."""
    if not peak or not bandwidth:
        return None, None
    computing, moving = 1e6 * flops / peak, 1e6 * moved / bandwidth
    return ("compute" if computing >= moving else "memory"), max(computing, moving)


def _wanted(workload: Workload) -> Iterator[tuple[str, str, Sizes, list[Sizes], int]]:
    """Name, pass, sizes, those of the parts that it may be computed in, instances a step."""
    shape = workload.shape
    assert shape is not None
    tokens, width = workload.batch_size * workload.seq_len, shape.hidden_size
    blocks = workload.accumulation * shape.num_hidden_layers
    wide, narrow, inner = shape.query_width, shape.key_width, shape.intermediate_size
    linear = [
        ("attn_qkv", [wide, narrow, narrow], width, blocks),
        ("attn_out", [width], wide, blocks),
        ("ffn_gate_up", [inner, inner], width, blocks),
        ("ffn_down", [width], inner, blocks),
        ("lm_head", [shape.vocab_size], width, workload.accumulation),
    ]
    for name, outs, ins, count in linear:
        for when in PASSES:
            whole, *parts = (_sizes(when, tokens, out, ins) for out in (sum(outs), *outs))
            yield name, when, whole, parts, count


def _sizes(when: str, tokens: int, out: int, ins: int) -> Sizes:
    """M, N, K of a pass of a linear layer from `ins` to `out`."""
    by_pass = {
        "forward": (tokens, out, ins),
        "input gradient": (tokens, ins, out),
        "weight gradient": (out, ins, tokens),
    }
    return by_pass[when]


def _key(sizes: Sizes) -> tuple[int, int, int]:
    """A product and its transpose are one to a trace."""
    m, n, k = sizes
    return (min(m, n), max(m, n), k)


def _measured(trace: StepTrace) -> Mapping[tuple[int, int, int], float]:
    """Mean microseconds of products by their sizes: of their kernels where there are any, else of
    the operators themselves.
    """
    kernels: dict[int, float] = defaultdict(float)
    for event in trace.device:
        if event.op is not None and event.kind == "kernel":
            kernels[event.op] += event.end - event.begin
    times: dict[tuple[int, int, int], list[float]] = defaultdict(list)
    for op in trace.operators:
        sizes = _product_of(op) if op.name in _PRODUCTS else None
        if sizes is None:
            continue
        if not trace.device:
            times[_key(sizes)].append(op.end - op.begin)
        elif op.op in kernels:
            times[_key(sizes)].append(kernels[op.op])
    return {key: fmean(found) for key, found in times.items()}


def _product_of(op: TraceEvent) -> Sizes | None:
    """By the shapes of its last two matrices, of which bmm's may have a batch of one."""
    matrices: Sequence[tuple[int, ...]] = [
        dims[-2:] for dims in op.dims if len(dims) == 2 or (len(dims) == 3 and dims[0] == 1)
    ]
    if len(matrices) < 2:
        return None
    if op.name in ("aten::mm", "aten::bmm", "aten::_scaled_mm"):
        (m, k), (inner, n) = matrices[0], matrices[1]
    else:
        (m, k), (inner, n) = matrices[-2], matrices[-1]
    return (m, n, k) if inner == k else None
