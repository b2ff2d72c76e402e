"""ALBOR_KERNELS: one backend for every op, against a doubt. Loads no torch, so that a command can
ask before it starts anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec

BACKENDS = ("reference", "triton")


def forced_backend(environ: Mapping[str, str]) -> str:
    """The backend asked for, or "". Raises ValueError for any other word."""
    word = environ.get("ALBOR_KERNELS", "")
    if word not in ("", *BACKENDS):
        raise ValueError(f"ALBOR_KERNELS is {word!r}; it may be unset, {' or '.join(BACKENDS)}")
    return word


def unmet_demand(environ: Mapping[str, str], device: str) -> str:
    """Why ALBOR_KERNELS=triton cannot be met on such a device ("cpu", "cuda"), or ""."""
    is_interpreted = environ.get("TRITON_INTERPRET") == "1"
    if environ.get("ALBOR_KERNELS") != "triton":
        return ""
    if find_spec("triton") is None:
        return "ALBOR_KERNELS=triton is not met: Triton is not installed"
    if device == "cuda" or is_interpreted:
        return ""
    return "ALBOR_KERNELS=triton is not met: Triton kernels need a CUDA device"
