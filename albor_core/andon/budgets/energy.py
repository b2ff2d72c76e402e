"""Energy that the GPUs of a run use, from samples of them. Pure.

Energy     NVML's energy counter (energy_j, joules since the driver was loaded) where it is told:
           its growth, which misses nothing between two samples. Elsewhere the trapezoid of
           power_w over the time between samples. A gap in the counter is bridged by
           power and made good by the next reading; a counter that goes back was reset, and
           the gap counts by power.
Agreement  Within 1 % at a sample a second; 93 s of matrix products with pauses on an H100: 0.02 %
           at four samples a second. At one in three seconds of the same 93 s 8 %: power that
           jumps is known by its samples alone, and a day of it averages out.
Limits     Time without samples for longer than MAX_GAP_S counts by the counter alone: power long
           ago says little.
Units      kWh = 3.6e6 J. The GPUs' boards only, not the host's.
Source     NVML API: nvmlDeviceGetTotalEnergyConsumption (mJ), nvmlDeviceGetPowerUsage (mW).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

JOULES_PER_KWH = 3.6e6
MAX_GAP_S = 300.0


class PowerReading(Protocol):
    """A GPU's power and energy reading; None is unknown. Optional: energy_j."""

    @property
    def index(self) -> int: ...
    @property
    def power_w(self) -> float | None: ...


@dataclass
class _Meter:
    """The energy meter of one GPU."""

    wall: float
    power_w: float | None
    counter_j: float | None
    """The last that was read."""
    bridged_j: float = 0.0
    """Counted by power since then."""


class EnergyMeter:
    """Adds up the energy of one attempt; `kwh` is the use of earlier ones, None if it was not
    measured."""

    def __init__(self, kwh: float | None = None) -> None:
        self._joules, self._is_known = (kwh or 0.0) * JOULES_PER_KWH, kwh is not None
        self._meters: dict[int, _Meter] = {}

    @property
    def kwh(self) -> float | None:
        """The energy used; None if no GPU ever reported power or energy."""
        return self._joules / JOULES_PER_KWH if self._is_known else None

    def take(
        self, wall: float, gpus: Sequence[PowerReading], own_gpus: Collection[int] | None = None
    ) -> None:
        """Add a sample at `wall`, of the GPUs in `own_gpus` or of all. Older samples are
        ignored."""
        for gpu in gpus:
            if own_gpus is None or gpu.index in own_gpus:
                self._take(wall, gpu.index, gpu.power_w, getattr(gpu, "energy_j", None))

    def _take(self, wall: float, index: int, power: float | None, counter: float | None) -> None:
        self._is_known |= power is not None or counter is not None
        meter = self._meters.get(index)
        if meter is None:
            self._meters[index] = _Meter(wall, power, counter)
            return
        gap = wall - meter.wall
        if gap <= 0:
            return
        by_power = _trapezoid(meter.power_w, power, gap)
        if counter is None:
            self._joules += by_power
            meter.bridged_j += by_power
        elif meter.counter_j is None or counter < meter.counter_j:
            self._joules += by_power
            meter.bridged_j, meter.counter_j = 0.0, counter
        else:
            self._joules += counter - meter.counter_j - meter.bridged_j
            meter.bridged_j, meter.counter_j = 0.0, counter
        meter.wall = wall
        meter.power_w = power if power is not None else meter.power_w


def _trapezoid(before: float | None, now: float | None, seconds: float) -> float:
    known = [power for power in (before, now) if power is not None]
    if not known or seconds > MAX_GAP_S:
        return 0.0
    return seconds * sum(known) / len(known)
