"""At which step the rows of one run lie, where its columns count something else: the iterations of
an epoch, which begin again in the next; the epochs alone; the epoch of a validation. Pure.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from albor_core.integrations.importers.tables.rows import STEPS, Row
from albor_core.run.values.lenient import finite_of, whole_of

EPOCH = "epoch"
_BATCHES = ("batch", "batch_idx", "batch_index")  # a step only where they begin again by epochs
_MOST_EPOCHS = 1_000_000
_MOST_LAST = 3  # rows without a step that may close a run


@dataclass(frozen=True)
class RowPlace:
    """The position of a row: `step` None is the one after the last."""

    step: Any
    axis: str = ""
    is_moved: bool = False
    """It is not where its own column says."""
    is_closing: bool = False
    """Whether the value describes the whole run, and is not a point of its curves."""


@dataclass
class LearnedPlaces:
    """Facts about the rows of a run, complete once `see` had all of them."""

    has_step: bool = False
    tail: int = 0  # rows without a step since the last that has one
    is_parted: bool = False  # such rows lie between others
    has_updates: bool = False
    has_batches: bool = False
    _before: tuple[int, float] | None = None  # epoch and step of the row before, of training
    _drops: int = 0
    _rises: int = 0
    _stays: int = 0
    least: float | None = None
    most: float = 0
    stride: float | None = None
    first: int | None = None
    ends: dict[int, float] = field(default_factory=dict)  # by epoch: the last step in it
    bare: float | None = None  # the largest step of rows that tell it alone
    has_iterations: bool = False
    only_epochs: bool = True
    _in_epoch: set[str] = field(default_factory=set)
    _epoch: int | None = None

    def see(self, row: Row, part: str, keys: Collection[str]) -> None:
        """A row that has numbers under `keys`; `part` is what it is of, "" where unsaid."""
        epoch, step = _epoch_of(row), step_word(row)
        self._see_epoch(epoch, part, keys)
        if finite_of(step) is None:
            self.tail += 1
            return
        self.is_parted |= self.has_step and self.tail > 0
        self.has_step, self.tail = True, 0
        self.has_batches |= step_word(row, has_batches=False) is None
        self.has_updates |= "num_updates" in row
        self.has_iterations |= "iter" in row and "step" in row and epoch is not None
        if "iter" not in row and "step" in row and epoch is None:
            self.bare = max(step, self.bare or 0)
        elif epoch is not None and part in ("", "train"):
            self._see_step(epoch, step)

    def _see_epoch(self, epoch: int | None, part: str, keys: Collection[str]) -> None:
        """Whether a row an epoch is all there is, so that the epoch may stand for the step."""
        names = {f"{part}/{key}" for key in keys if key != EPOCH}
        if epoch != self._epoch:
            self._in_epoch.clear()
        elif not names.isdisjoint(self._in_epoch):
            self.only_epochs = False
        self.only_epochs &= epoch is not None
        self._epoch = epoch
        self._in_epoch |= names

    def _see_step(self, epoch: int, step: float) -> None:
        if self._before is not None:
            earlier, last = self._before
            self._drops += epoch > earlier and step < last
            self._stays += epoch > earlier and step == last
            self._rises += epoch > earlier and step > last
            if epoch == earlier and step > last:
                self.stride = min(step - last, self.stride or step - last)
        self._before = epoch, step
        self.least = step if self.least is None else min(step, self.least)
        self.most = max(step, self.most)
        self.first = epoch if self.first is None else min(epoch, self.first)
        if epoch in self.ends or len(self.ends) < _MOST_EPOCHS:
            self.ends[epoch] = max(step, self.ends.get(epoch, step))

    @property
    def begins_again(self) -> bool:
        """Whether steps are counted within each epoch."""
        return self._drops > self._rises or (self._stays > 0 and self._drops + self._rises == 0)

    @property
    def counts_batches(self) -> bool:
        """Whether a column of batches counts them: one that never rises is their size."""
        return self.has_batches and self.stride is not None

    @property
    def epoch_steps(self) -> float:
        """How many steps an epoch has, as far as was seen."""
        return self.most + (self.stride or 1 if self.least == 0 else 0)

    @property
    def has_epochs_of_validation(self) -> bool:
        """Whether rows with a step alone mean the epoch by it, as MMEngine's do."""
        is_epoch = self.bare is not None and self.bare <= max(self.ends, default=-1)
        return is_epoch and self.has_iterations


class RowPlaces:
    """The places of a run's rows, asked in their order."""

    def __init__(self, known: LearnedPlaces) -> None:
        self._known = known
        self._epochs = sorted(known.ends)
        self._begins_again = known.begins_again
        self._has_epochs_of_validation = known.has_epochs_of_validation
        self._has_step = False
        self._newest: float | None = None  # where the newest row lies
        self._life = 0  # added to epochs that began again
        self._epoch: int | None = None

    def next_place(self, row: Row, part: str) -> RowPlace:
        known = self._known
        said = step_word(row, has_batches=known.counts_batches)
        epoch = _epoch_of(row)
        if said is None:
            return self._without_step(epoch)
        if finite_of(said) is None:
            return RowPlace(said)
        self._has_step = True
        step = self._moved(row, said, epoch, part)
        is_summary = known.has_updates and "train_num_updates" in row and "num_updates" not in row
        place = RowPlace(_integral(step), "", step != said, is_summary)
        self._newest = step if self._newest is None else max(step, self._newest)
        return place

    def _without_step(self, epoch: int | None) -> RowPlace:
        known = self._known
        has_step = known.has_step and (known.counts_batches or not known.has_batches)
        if not has_step and known.only_epochs and epoch is not None:
            return self._by_epoch(epoch)
        is_closing = self._has_step and 0 < known.tail <= _MOST_LAST and not known.is_parted
        return RowPlace(_integral(self._newest) if is_closing else None, is_closing=is_closing)

    def _by_epoch(self, epoch: int) -> RowPlace:
        if self._epoch is not None and epoch < self._epoch and epoch <= 1:
            self._life = int(self._newest or 0) + 1 - epoch  # a training that goes on from its 1st
        self._epoch = epoch
        self._newest = epoch + self._life
        return RowPlace(epoch + self._life, EPOCH, self._life > 0)

    def _moved(self, row: Row, said: float, epoch: int | None, part: str) -> float:
        known = self._known
        if epoch is None and self._has_epochs_of_validation and "iter" not in row:
            return self._end_of(int(said))
        if epoch is None or known.first is None or not self._begins_again:
            return said
        if part not in ("", "train"):
            return self._end_of(epoch)
        return (epoch - known.first) * known.epoch_steps + said

    def _end_of(self, epoch: int) -> float:
        """The last step of training in an epoch, or in the newest before it."""
        known = self._known
        at = bisect_right(self._epochs, epoch)
        newest = self._epochs[max(0, at - 1)] if self._epochs else epoch
        end = known.ends.get(newest, 0)
        before = (newest - (known.first or 0)) * known.epoch_steps if self._begins_again else 0
        return before + end


def step_word(row: Row, *, has_batches: bool = True) -> Any:
    """The value in the first column of steps that a row fills; with `has_batches` an epoch includes
    batches.
    """
    name = step_column(row, has_batches=has_batches)
    return None if name is None else row[name]


def step_column(row: Row, *, has_batches: bool = False) -> str | None:
    """The column that a row says its step in."""
    names = (*STEPS, *_BATCHES) if EPOCH in row and has_batches else STEPS
    return next((name for name in names if row.get(name) is not None), None)


def _integral(said: Any) -> Any:
    """A step said as 10.0 is 10."""
    return int(said) if isinstance(said, float) and said.is_integer() else said


def _epoch_of(row: Row) -> int | None:
    epoch = whole_of(_integral(row.get(EPOCH)))
    return None if finite_of(epoch) is None else epoch
