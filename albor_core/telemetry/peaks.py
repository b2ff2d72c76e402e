"""Peak performance of GPUs, from vendors' data sheets."""

from __future__ import annotations

from typing import NamedTuple


class DevicePeaks(NamedTuple):
    """Peaks of one GPU model from the vendor's data sheet; None is unknown."""

    half: float
    """Dense bf16/fp16 tensor-core peak in FLOP/s, without sparsity."""
    fp32: float | None
    """Without tensor cores, in FLOP/s."""
    bandwidth: float | None
    """Of its memory, in bytes/s."""


_PEAKS = (
    ("B200", DevicePeaks(2250e12, None, 8.0e12)),
    ("H200", DevicePeaks(989e12, 67e12, 4.8e12)),
    ("H100 PCIe", DevicePeaks(756e12, 51e12, 2.0e12)),
    ("H100", DevicePeaks(989e12, 67e12, 3.35e12)),
    ("A100-SXM4-40GB", DevicePeaks(312e12, 19.5e12, 1.555e12)),
    ("A100-PCIE-40GB", DevicePeaks(312e12, 19.5e12, 1.555e12)),
    ("A100 80GB PCIe", DevicePeaks(312e12, 19.5e12, 1.935e12)),
    ("A100", DevicePeaks(312e12, 19.5e12, 2.039e12)),
    ("L40S", DevicePeaks(362e12, 91.6e12, 0.864e12)),
    ("L40", DevicePeaks(181e12, 90.5e12, 0.864e12)),
    ("A10", DevicePeaks(125e12, 31.2e12, 0.6e12)),
    ("L4", DevicePeaks(121e12, 30.3e12, 0.3e12)),
    ("V100", DevicePeaks(125e12, 15.7e12, 0.9e12)),
    ("RTX 5090", DevicePeaks(209.5e12, 104.8e12, 1.792e12)),
    ("RTX 4090", DevicePeaks(165.2e12, 82.6e12, 1.008e12)),
    ("RTX 4080", DevicePeaks(97.5e12, 48.7e12, 0.7168e12)),
    ("RTX 3090", DevicePeaks(71e12, 35.6e12, 0.936e12)),
    ("Tesla T4", DevicePeaks(65e12, 8.1e12, 0.32e12)),
)


def device_peaks(device_name: str | None) -> DevicePeaks | None:
    """Peaks of the named GPU; None for a CPU or an unknown name."""
    if device_name is None:
        return None
    return next((peaks for word, peaks in _PEAKS if word in device_name), None)


def peak_flops(device_name: str | None) -> float | None:
    """Peak half-precision FLOP/s of the named GPU, whatever precision the run uses; None for a CPU
    or an unknown name.

    MFU uses the half-precision peak even in fp32: the share of the paid-for machine that works.
    """
    peaks = device_peaks(device_name)
    return None if peaks is None else peaks.half
