"""A process that never outlives the one that started it. Standard library only."""

from __future__ import annotations

import ctypes
import os
import signal

_PDEATHSIG = 1  # PR_SET_PDEATHSIG, see prctl(2)


def die_with_parent(parent: int | None = None) -> None:
    """Have the kernel kill this process when its parent dies. `parent`: the pid that this must be a
    child of; it may have died before this was asked for, then the process ends here, exit code 1.
    """
    ctypes.CDLL(None, use_errno=True).prctl(_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if parent is not None and os.getppid() != parent:
        os._exit(1)
