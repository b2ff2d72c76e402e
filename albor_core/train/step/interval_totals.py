"""What a log interval adds up to.

The device keeps one row a step, numbers side by side, by one small launch; what they add up to is
worked out on the host, when the rows have come. Five numbers every step has, and then those that
the recipe names.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field, fields, replace

import torch
from torch import Tensor

from albor_core.train.step.spikes import Spike, SpikeWatch

COLUMNS = ("loss", "norm", "skip", "counts", "spike")
"""Numbers of any step; see `IntervalTotals.add`."""
ROOM = 1024
"""Steps whose rows the device keeps; a longer interval is added up in between, one wait each."""


@dataclass(frozen=True)
class Readings:
    """One interval. `loss` is the mean of its finite losses in nats per token, NaN or infinite if
    it had none; `grad_norm` the largest, NaN if one was, so that no spike hides in between.
    """

    loss: float
    grad_norm: float
    skipped: int
    worst_row: int
    """The most steps in a row that were skipped, counting from earlier intervals."""
    spikes: int = 0
    """Steps whose gradient ZClip scaled down."""
    spike: Spike | None = None
    """Of the loss, counted from the end of the interval."""
    unsure: int = 0
    """Last steps that may turn out to be the beginning of one."""
    fault: tuple[float, str] | None = None
    """The first loss that the recipe calls unsound, and why."""
    named: Mapping[str, float] = field(default_factory=dict)
    """Means of the recipe's own figures over the steps where they are finite."""


@dataclass
class _Sums:
    """Sums over an interval so far. The order is that of checkpoints: new fields come last."""

    loss: float = 0.0
    sound: float = 0.0
    odd_loss: float = 0.0
    norm: float = 0.0
    skipped: float = 0.0
    in_a_row: float = 0.0
    worst_row: float = 0.0
    unused: float = 0.0  # in older checkpoints the largest loss
    spikes: float = 0.0
    spike_steps: float = 0.0  # of the first loss spike, as in `Spike`; 0: none
    spike_loss: float = 0.0
    spike_times: float = 0.0

    def add(self, loss: float, norm: float, skip: float, counts: float, spike: float) -> None:
        if math.isfinite(loss):
            self.loss, self.sound = self.loss + loss, self.sound + 1
        else:
            self.odd_loss = loss
        self.norm = math.nan if math.isnan(self.norm + norm) else max(self.norm, norm)
        self.skipped += skip
        if counts > 0:
            self.in_a_row += 1
        elif not skip > 0:
            self.in_a_row = 0.0
        self.worst_row = max(self.worst_row, self.in_a_row)
        self.spikes += spike

    def seize(self, spike: Spike | None) -> None:
        """What the watch said of the step just added; the first spike of an interval counts."""
        if self.spike_steps:
            self.spike_steps += 1
        elif spike is not None:
            self.spike_steps, self.spike_loss, self.spike_times = astuple(spike)

    def readings(self, unsure: int) -> Readings:
        loss = self.loss / self.sound if self.sound else self.odd_loss
        skipped, worst, spikes = map(int, (self.skipped, self.worst_row, self.spikes))
        spike = Spike(int(self.spike_steps), self.spike_loss, self.spike_times)
        found = spike if spike.steps else None
        return Readings(loss, self.norm, skipped, worst, spikes, found, unsure)


class _Means:
    """Means of some figures, each over the steps of an interval in which it is finite."""

    def __init__(self, number: int) -> None:
        self._sums, self._counts = [0.0] * number, [0.0] * number

    def add(self, values: Sequence[float]) -> None:
        for index, value in enumerate(values):
            if math.isfinite(value):
                self._sums[index] += value
                self._counts[index] += 1

    def take(self) -> list[float | None]:
        """The means, None where there is none; then it begins anew."""
        pairs = zip(self._sums, self._counts, strict=True)
        found = [total / count if count else None for total, count in pairs]
        self._sums, self._counts = [0.0] * len(found), [0.0] * len(found)
        return found

    def state(self) -> list[float]:
        return [*self._sums, *self._counts]

    def load(self, state: Sequence[float]) -> None:
        """What `state` gave; of other figures, nothing."""
        number = len(self._sums)
        if len(state) == 2 * number:
            self._sums, self._counts = [*state[:number]], [*state[number:]]


class IntervalTotals:
    """The interval that goes on. Part of a checkpoint, which may fall inside an interval."""

    def __init__(
        self,
        device: torch.device,
        spikes: SpikeWatch,
        names: Sequence[str] = (),
        fault_of: Callable[[float], str] = lambda loss: "",
    ) -> None:
        """`spikes` is told of every step; what it knows is saved by itself. `names`: of the
        recipe's figures; `fault_of`: its `loss_fault`.
        """
        self.fault_of = fault_of
        self._fault: tuple[float, str] | None = None
        self.width, self._names = len(COLUMNS) + len(names), tuple(names)
        self._rows = torch.zeros((ROOM, self.width), dtype=torch.float32, device=device)
        self._count = 0
        self._sums = _Sums()
        self._named = _Means(len(names))
        self.spikes = spikes

    def add(
        self,
        loss: Tensor,
        norm: Tensor,
        skip: Tensor,
        counts: Tensor,
        spike: Tensor,
        *named: Tensor,
    ) -> None:
        """One step, fp32 scalars: its loss, gradient norm, whether its update was skipped (1 or 0),
        whether that counts against the run (an fp16 overflow while the scale is being found does
        not), whether ZClip scaled the gradient down, and the recipe's figures in their order.
        """
        if self._count == ROOM:
            self._add_up()
        torch.stack((loss, norm, skip, counts, spike, *named), out=self._rows[self._count])
        self._count += 1

    def drain(self) -> Tensor:
        """(steps, width) on the device, for `readings_of`, until the next `add`; the next interval
        starts. Nothing waits.
        """
        taken = self._rows[: self._count]
        self._count = 0
        return taken

    def readings_of(self, rows: Iterable[Sequence[float]]) -> Readings:
        """What the rows that `take` gave add up to, before anything else is taken."""
        self._add(rows)
        found, in_a_row = self._sums.readings(self.spikes.unsure), self._sums.in_a_row
        self._sums = _Sums(in_a_row=in_a_row, worst_row=in_a_row)
        found, self._fault = replace(found, fault=self._fault), None
        named = dict(zip(self._names, self._named.take(), strict=True))
        return replace(
            found, named={name: mean for name, mean in named.items() if mean is not None}
        )

    def _add_up(self) -> None:
        """Waits for the device."""
        self._add(self.drain().tolist())

    def _add(self, rows: Iterable[Sequence[float]]) -> None:
        for row in rows:
            loss, *rest = row[: len(COLUMNS)]
            self._sums.add(loss, *rest)
            self._sums.seize(self.spikes.add(loss))
            if self._fault is None and (reason := self.fault_of(loss)):
                self._fault = loss, reason
            self._named.add(row[len(COLUMNS) :])

    def to_json(self) -> list[str]:
        """Exact, and NaN survives JSON. Waits for the device."""
        self._add_up()
        return [float(value).hex() for value in (*astuple(self._sums), *self._named.state())]

    def load(self, saved: list[str]) -> None:
        """Restore the state that `to_json` returned; fields that came later begin at 0, and so do
        `spikes`."""
        self.reset()
        values, own = list(map(float.fromhex, saved)), len(fields(_Sums))
        self._sums = _Sums(*values[:own])
        self._named.load(values[own:])

    def reset_skip_streak(self) -> None:
        """Begin a new row of skipped or high steps, after a rollback. Waits for the device."""
        self._add_up()
        self._fault = None
        self._sums.in_a_row = self._sums.worst_row = self._sums.spike_steps = 0.0
        self.spikes.reset_skip_streak()

    def reset(self) -> None:
        """Reset the totals to those before the first step."""
        self._count, self._sums, self._fault = 0, _Sums(), None
        self._named = _Means(len(self._names))
        self.spikes.reset()
