"""Triton where it is installed, a stand-in where not: kernels take `jit` and `tl` from here, those
in Gluon, Triton's lower level, `gluon_jit` and `gl`.

A module with kernels must import on a machine without Triton (macOS, a CPU-only wheel), where
dispatch never launches them. `TRITON_INTERPRET` is read by Triton when a kernel is decorated, hence
once per process.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

try:
    import triton
    from triton import language
    from triton.tools import tensor_descriptor
except ImportError:
    triton = language = tensor_descriptor = None

try:
    from triton.experimental import gluon
    from triton.experimental.gluon import language as gluon_language
    from triton.experimental.gluon.language.nvidia import hopper as gluon_hopper
    from triton.experimental.gluon.nvidia import hopper as gluon_host
except ImportError:
    gluon = gluon_language = gluon_hopper = gluon_host = None

HAS_TRITON = triton is not None
IS_INTERPRETED = HAS_TRITON and os.environ.get("TRITON_INTERPRET") == "1"
HOPPER = 9  # compute capability


tl: Any = language
TensorDescriptor: Any = getattr(tensor_descriptor, "TensorDescriptor", None)

gl: Any = gluon_language
"""None where Triton has no Gluon; the next four, too."""
hopper: Any = gluon_hopper
mbarrier: Any = getattr(hopper, "mbarrier", None)
SwizzledDescriptor: Any = getattr(gluon_host, "TensorDescriptor", None)
_tma: Any = getattr(hopper, "tma", None)
fetch_tile: Any = getattr(_tma, "async_load", getattr(_tma, "async_copy_global_to_shared", None))
"""As Triton 3.9 and 3.6 name it."""


def jit(fn: Callable[..., Any]) -> Any:
    """triton.jit, or without Triton the function as it is: nothing calls it then."""
    return triton.jit(fn) if HAS_TRITON else fn


def gluon_jit(fn: Callable[..., Any]) -> Any:
    """gluon.jit, which has no interpreter, or without Gluon the function as it is."""
    return gluon.jit(fn) if gluon is not None else fn


def _interpreted_steps(start: Any, stop: Any, step: Any = 1, num_stages: int = 1) -> range:
    bounds = (n.handle.data.item() if hasattr(n, "handle") else n for n in (start, stop, step))
    return range(*(int(n) for n in bounds))


steps: Any = _interpreted_steps if IS_INTERPRETED else getattr(language, "range", None)
"""tl.range, whose num_stages prefetches; Triton 3.6 cannot interpret it with bounds at run time."""


def takes_hoppers(device: torch.device) -> bool:
    """Whether kernels that were measured on Hopper alone are launched there: on such a GPU or a
    later one, and in the interpreter.
    """
    return _capability(device) >= HOPPER if device.type == "cuda" else IS_INTERPRETED


def is_hopper(device: torch.device) -> bool:
    """Whether it has Hopper's products of warpgroups, which later ones do not."""
    return device.type == "cuda" and _capability(device) == HOPPER


def _capability(device: torch.device) -> int:
    """Major number; 0 for AMD's, which count otherwise."""
    return 0 if torch.version.hip else torch.cuda.get_device_capability(device)[0]


@dataclass(frozen=True)
class KernelLaunch:
    """One way a kernel is launched: what ahead-of-time compilation needs to know.

    `signature` maps every parameter to a Triton type ("*bf16", "i32", "constexpr"), `constants` the
    constexpr ones to their values.
    """

    kernel: Any
    signature: dict[str, str]
    constants: dict[str, Any]
    num_warps: int
    options: dict[str, Any] = field(default_factory=dict)
    first: int = 80
    """The oldest architecture that has what it needs."""

    @property
    def name(self) -> str:
        return str(self.kernel.__name__).lstrip("_")


def next_power_of_2(n: int) -> int:
    """The smallest power of two >= n, for n >= 1."""
    return 1 << (n - 1).bit_length()
