"""Compares the matrix products of a decoder's step with the peak of a device; MFU. Pure.

A product of (M, K) by (K, N) takes 2 M N K FLOPs and moves at least its two factors and its result
once. Below the ridge point, peak over bandwidth, moving bounds it; above it, computing does.
"""

from __future__ import annotations

from dataclasses import dataclass

from albor_core.profile.products import measured, model_products
from albor_core.profile.trace import StepTrace
from albor_core.profile.workload import Workload
from albor_core.telemetry.peaks import DevicePeaks

_BYTES = {"fp32": 4}
_HALF = 2


@dataclass(frozen=True)
class Product:
    """One matrix product of a micro-batch. Times in microseconds, of one instance."""

    name: str
    when: str
    """One of PASSES of products.py."""
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
    """Products of the same sizes that the trace does not tell apart: `measured_us` is of all."""

    @property
    def flops(self) -> int:
        return 2 * self.m * self.n * self.k

    @property
    def intensity(self) -> float:
        """FLOPs per byte."""
        return self.flops / self.bytes


@dataclass(frozen=True)
class Roofline:
    """All products, and the peaks that they are compared with."""

    device: str
    peak_flops: float | None
    """Of the precision of the products."""
    bandwidth: float | None
    """Bytes per second."""
    precision: str
    products: tuple[Product, ...]

    @property
    def ridge(self) -> float | None:
        """FLOPs per byte above which computing is the limit; None if the peaks are unknown."""
        if self.peak_flops is None or not self.bandwidth:
            return None
        return self.peak_flops / self.bandwidth


@dataclass(frozen=True)
class Utilisation:
    """Model FLOPs utilisation, with its components."""

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
    """The model FLOPs utilisation; None if the model's shape is unknown."""
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
    """The roofline of a decoder's products; None if its shape is unknown."""
    if workload is None or workload.shape is None:
        return None
    is_half = workload.precision != "fp32"
    peak = None if peaks is None else peaks.half if is_half else peaks.fp32
    bandwidth = None if peaks is None else peaks.bandwidth
    size = _BYTES.get(workload.precision, _HALF)
    wanted = model_products(workload)
    times = measured(wanted, workload.shape.num_hidden_layers, trace)
    products = []
    for one in wanted:
        m, n, k = one.sizes
        moved = size * (m * k + k * n + m * n)
        bound, floor = _limit(2 * m * n * k, moved, peak, bandwidth)
        time = times.get(one)
        us, others = (None, ()) if time is None else (time.us, time.shares_with)
        limits = (one.per_step, moved, bound, floor)
        products.append(Product(one.name, one.when, m, n, k, *limits, us, others))
    return Roofline(device, peak, bandwidth, workload.precision, tuple(products))


def _limit(
    flops: int, moved: int, peak: float | None, bandwidth: float | None
) -> tuple[str | None, float | None]:
    """The limiting resource of a product, and its least time in microseconds."""
    if not peak or not bandwidth:
        return None, None
    computing, moving = 1e6 * flops / peak, 1e6 * moved / bandwidth
    return ("compute" if computing >= moving else "memory"), max(computing, moving)
