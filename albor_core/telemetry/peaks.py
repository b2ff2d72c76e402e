"""What the vendors say their GPUs compute at most."""

from __future__ import annotations

# Dense bf16/fp16 tensor-core peak in FLOP/s without sparsity, from the vendor's data sheets.
_PEAKS = (
    ("B200", 2250e12),
    ("H200", 989e12),
    ("H100 PCIe", 756e12),
    ("H100", 989e12),
    ("A100", 312e12),
    ("L40S", 362e12),
    ("L40", 181e12),
    ("A10", 125e12),
    ("L4", 121e12),
    ("V100", 125e12),
    ("RTX 5090", 209.5e12),
    ("RTX 4090", 165.2e12),
    ("RTX 4080", 97.5e12),
    ("RTX 3090", 71e12),
    ("Tesla T4", 65e12),
)


def peak_flops(device_name: str | None) -> float | None:
    """Peak of the named GPU, whatever precision the run uses; None for a CPU or an unknown name.

    MFU is against the half-precision peak even in fp32: what share of the paid-for machine works.
    """
    if device_name is None:
        return None
    return next((peak for word, peak in _PEAKS if word in device_name), None)
