"""The figures of a log interval, on their way from the device to the host.

Making one launches a copy behind the step's own work and waits for nothing; `read` waits for that
copy alone. So the loop can launch the next step in between, and the device has work while the
figures of this one are judged and written down.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from albor_core.train.optim.clipping import noise_scale
from albor_core.train.step.brick_timer import BrickTimes, StepEnd
from albor_core.train.step.interval_totals import IntervalTotals, Readings


@dataclass(frozen=True)
class IntervalFigures:
    """What an interval was on the device."""

    readings: Readings
    noise_scale: float | None
    """In tokens; see `stability.noise_scale`."""
    norms: dict[str, float]
    """L2 norm of each parameter's gradient in the last step, before clipping."""


class PendingFigures:
    """One interval: what `totals` has, `noise` as its owner keeps it, norms () by parameter, and
    where it ends.
    """

    def __init__(
        self,
        totals: IntervalTotals,
        noise: Tensor,
        norms: Mapping[str, Tensor],
        bricks: BrickTimes,
        end: StepEnd,
    ) -> None:
        self.bricks, self.end, self._totals = bricks, end, totals
        rows = totals.drain()
        self._names, self._split = tuple(norms), [rows.numel(), len(noise), len(norms)]
        parts = [rows.flatten(), noise] + ([torch.stack(list(norms.values()))] if norms else [])
        self._values = torch.cat([part.double() for part in parts])
        self._there: torch.cuda.Event | None = None
        if self._values.is_cuda:
            host = torch.empty(self._values.shape, dtype=torch.float64, pin_memory=True)
            self._values = host.copy_(self._values, non_blocking=True)
            self._there = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._there.record()

    def read(self) -> IntervalFigures:
        """Once. Waits until the step behind which this was made is done on the device."""
        if self._there is not None:
            self._there.synchronize()
        rows, noise, norms = torch.split(self._values, self._split)
        readings = self._totals.readings_of(rows.view(-1, self._totals.width).tolist())
        found = dict(zip(self._names, norms.tolist(), strict=True))
        return IntervalFigures(readings, noise_scale(noise.tolist()), found)
