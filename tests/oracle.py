"""Numeric comparison for tests: the error rule of the kernels, and a child process for it.

TRITON_INTERPRET is read when a kernel is decorated: kernels are interpreted in other processes.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from torch import Tensor

from albor_core.kernels.parity import Deviation, Outputs, deviations

__all__ = ["ROOT", "Deviation", "assert_as_accurate", "deviations", "python"]

ROOT = Path(__file__).resolve().parents[1]


def python(*argv: str, timeout_s: float = 540, **env: str) -> subprocess.CompletedProcess[str]:
    """Runs this Python on `argv` from the repository root, these variables on top of ours."""
    clean = {k: v for k, v in os.environ.items() if k not in ("TRITON_INTERPRET", "ALBOR_KERNELS")}
    paths = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    return subprocess.run(
        [sys.executable, *argv],
        cwd=ROOT,
        env=clean | {"PYTHONPATH": paths} | env,
        capture_output=True,
        text=True,
        timeout=timeout_s,
    )


def assert_as_accurate(
    kernel: Callable[..., Outputs],
    reference: Callable[..., Outputs],
    *inputs: Tensor,
    slack: float = 2.0,
) -> None:
    """AssertionError naming every result that breaks the rule."""
    broken = [d for d in deviations(kernel, reference, *inputs) if not d.is_accurate(slack)]
    if broken:
        raise AssertionError("; ".join(map(str, broken)))
