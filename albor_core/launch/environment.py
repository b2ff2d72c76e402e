"""Environment variables of a trainer, besides those it inherits."""

from __future__ import annotations

import os
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version

from albor_core.guard.launch import CODE_ROOT
from albor_core.run.program.launched_rank import LAUNCHED, LaunchedRank

# glibc gives every tensor above 32 MiB back to the kernel and faults it in again at each step:
# 0.56 s against 0.49 s a step of the demo's model (one core, 2.5 GHz Xeon, torch 2.13)
_ALLOCATOR = {"MALLOC_MMAP_THRESHOLD_": str(1 << 30), "MALLOC_TRIM_THRESHOLD_": str(2 << 30)}


def trainer_environment() -> dict[str, str]:
    """Variables that a trainer needs besides those it inherits."""
    return _ALLOCATOR | ({} if is_installed() else {"PYTHONPATH": _python_path()})


def rank_environment(launched: LaunchedRank | None) -> dict[str, str]:
    return {} if launched is None else {LAUNCHED: replace(launched, starter=os.getpid()).text()}


def _python_path() -> str:
    """PYTHONPATH with the uninstalled checkout before the user's own entries."""
    inherited = os.environ.get("PYTHONPATH")
    return os.pathsep.join([str(CODE_ROOT), *([inherited] if inherited else [])])


def is_installed() -> bool:
    """Whether this code is an installed package, which a child process finds without PYTHONPATH."""
    try:
        version("albor")
    except PackageNotFoundError:
        return False
    return True
