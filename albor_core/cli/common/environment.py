"""What the environment asks of a run, refused while there is no run yet."""

from __future__ import annotations

import os

from albor_core.run.errors import UsageError


def check_environment() -> None:
    """Raise UsageError for an ALBOR_KERNELS or ALBOR_FAULTS that the trainer would refuse."""
    from albor_core.train.process.faults import faults_from

    check_forced_backend()
    faults_from(os.environ, attempt=1)


def check_forced_backend() -> None:
    """Raise UsageError for an ALBOR_KERNELS that names no backend."""
    from albor_core.kernels.backend_override import BACKENDS, forced_backend

    try:
        forced_backend(os.environ)
    except ValueError as error:
        others = " or ".join(f"ALBOR_KERNELS={name}" for name in BACKENDS)
        raise UsageError(str(error), hint=f"unset ALBOR_KERNELS, or export {others}") from error
