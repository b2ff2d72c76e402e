"""What a plan knows of a model before it is made."""

from __future__ import annotations

from dataclasses import dataclass

from albor_core.config.shape import ModelShape
from albor_core.plan.memory import MemoryEstimate


@dataclass(frozen=True)
class Cost:
    """Numbers of one recipe's model and its step; None is unknown."""

    title: str
    """What is trained, in a few words."""
    shape: ModelShape | None = None
    parameters: int | None = None
    flops_per_token: int | None = None
    """Of a step, forward and backward."""
    memory: MemoryEstimate | None = None
    checkpoint: int | None = None
    """Bytes of one."""
    obstacles: tuple[str, ...] = ()
    """To the step of written-out kernels, as `fusion_obstacles`."""
