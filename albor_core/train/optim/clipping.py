"""How far a step may go: gradients are scaled (`Clip`, `ZClip`), and their noise is measured.

Nothing here waits for the host, a CUDA graph can replay it, and its state is part of a checkpoint.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from albor_core.config.sections.training import TrainingConfig

STD_FLOOR = 0.05  # of the mean: norms that hardly vary would otherwise never be allowed to rise
NOISE_DECAY = 0.99
INITIAL_STATS = ("0x0p+0",) * 3
"""State of a ZClip or a NoiseScale before the first step, as `to_json` gives it."""


def clip_factor(norm: Tensor, max_norm: float) -> Tensor:
    """What torch.nn.utils.clip_grads_with_norm_ multiplies with."""
    return (max_norm / (norm + 1e-6)).clamp(max=1.0)


class _RunningState:
    """Three numbers on the device that follow a run."""

    def __init__(self, device: torch.device) -> None:
        self.state = torch.zeros(3, dtype=torch.float64, device=device)

    def to_json(self) -> list[str]:
        """Exact. Waits for the device."""
        return [value.hex() for value in self.state.tolist()]

    def load(self, saved: Sequence[str]) -> None:
        self.state.copy_(torch.tensor([float.fromhex(t) for t in saved], dtype=torch.float64))


class ZClip(_RunningState):
    """An upper bound for the gradient norm that follows the run: mean and variance of past norms.

    A norm z > threshold standard deviations above the mean is brought down to mean + threshold^2 /
    z deviations, so the wilder it is, the nearer to the mean; what was allowed goes into the
    statistics. The first `warmup` steps only fill them. Source: Kumar et al. 2025,
    arXiv:2504.02507, section 3 (reciprocal clipping); the floor under the deviation is ours.
    """

    def __init__(
        self, device: torch.device, *, threshold: float, decay: float, warmup: int
    ) -> None:
        self.threshold, self.decay, self.warmup = threshold, decay, warmup
        super().__init__(device)  # mean, variance, steps seen

    def bound(self, norm: Tensor, skip: Tensor) -> tuple[Tensor, Tensor]:
        """(what of `norm` is allowed, 1.0 if that is less than all), and remember it.

        A step that is skipped (`skip` 1.0) leaves no trace.
        """
        seen_norm = norm.double()
        mean, variance, seen = self.state.unbind()
        deviation = torch.maximum(variance.sqrt(), STD_FLOOR * mean)
        z = (seen_norm - mean) / deviation
        spikes = (seen >= self.warmup) & (z > self.threshold)
        allowed = torch.where(spikes, mean + self.threshold**2 / z * deviation, seen_norm)
        # Welford's running mean and variance while warming up, exponential ones afterwards
        weight = torch.where(seen < self.warmup, 1 / (seen + 1), 1 - self.decay)
        new_mean = mean + weight * (allowed - mean)
        filled = variance + weight * ((allowed - mean) * (allowed - new_mean) - variance)
        faded = self.decay * variance + (1 - self.decay) * (allowed - new_mean).square()
        new_variance = torch.where(seen < self.warmup, filled, faded)
        updated = torch.stack((new_mean, new_variance, seen + 1))
        self.state.copy_(torch.where(skip > 0, self.state, updated))
        return allowed.to(norm.dtype), spikes.to(norm.dtype) * (1 - skip)


class Clip:
    """What gradients are multiplied with: the stricter of a fixed limit and ZClip, or nothing."""

    def __init__(self, max_norm: float | None = None, zclip: ZClip | None = None) -> None:
        self.max_norm, self.zclip = max_norm, zclip

    def factor(self, norm: Tensor, skip: Tensor) -> tuple[Tensor | None, Tensor]:
        """(factor for gradients of this norm or None, 1.0 if ZClip found a spike); on the device.

        Called once a step: ZClip learns from it.
        """
        scale = None if self.max_norm is None else clip_factor(norm, self.max_norm)
        if self.zclip is None:
            return scale, torch.zeros_like(norm)
        allowed, spike = self.zclip.bound(norm, skip)
        calmed = torch.where(spike > 0, allowed / norm, 1.0)
        return calmed if scale is None else torch.minimum(scale, calmed), spike


def clip_from(training: TrainingConfig, device: torch.device) -> Clip:
    """The gradient clipping of a config."""
    wanted = training.stability
    zclip = ZClip(
        device,
        threshold=wanted.zclip_threshold,
        decay=wanted.zclip_decay,
        warmup=wanted.zclip_warmup,
    )
    return Clip(training.grad_clip, zclip if wanted.zclip else None)


class NoiseScale(_RunningState):
    """The simple gradient noise scale, tr(S) / |G|^2: the batch size at which noise and signal of a
    gradient are equal, in the unit of the batch sizes given (tokens).

    From the squared gradient norms of a small and a big batch of the same weights (McCandlish et
    al. 2018, arXiv:1812.06162, appendix A.1): |G|^2 = (b2 n2 - b1 n1) / (b2 - b1) and tr(S) = (n1 -
    n2) / (1/b1 - 1/b2) are unbiased; each is averaged by itself, since their ratio is not.
    """

    # state: running tr(S), running |G|^2, their common weight

    def add(self, small: Tensor, small_size: int, big: Tensor, big_size: int) -> None:
        """Norms of the gradients of two batches; those that are not finite are left out."""
        n1, n2 = small.double().square(), big.double().square()
        trace = (n1 - n2) / (1 / small_size - 1 / big_size)
        signal = (big_size * n2 - small_size * n1) / (big_size - small_size)
        seen = torch.stack((trace, signal, torch.ones_like(trace)))
        updated = NOISE_DECAY * self.state + (1 - NOISE_DECAY) * seen
        self.state.copy_(torch.where(torch.isfinite(updated).all(), updated, self.state))


def noise_scale(state: Sequence[float]) -> float | None:
    """The noise scale from a NoiseScale's state. None before the first measurement, and while noise
    hides the signal.
    """
    trace, signal, weight = state
    return trace / signal if weight > 0 and signal > 0 and trace > 0 else None
