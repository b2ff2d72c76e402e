"""The clock of a run: the sequences that it has trained on.

Schedule, warm-up, end, evaluations, saves and log lines hang on it. A config speaks of steps; they
are those of the batch with which the run began (`unit` sequences each), also when it goes on with a
larger or smaller one. So a changed batch moves none of them, and an undisturbed run counts as ever.

A run may begin with smaller steps, or with its sequences cut into shorter ones. Both are functions
of the sequences that it has seen, so it resumes anywhere in between; neither moves the schedule.

Where in the data the run is, is another number: the cursor, which also counts what a rollback left
behind and the end of an epoch that fills no batch. Sequence i of epoch e is number e * N + i.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from albor_core.config.config import Config


@dataclass
class Place:
    """The position of a run in its data and steps."""

    step: int = 0
    sequences: int = 0
    """Trained on."""
    before: int = -1
    """`sequences` before the last step; -1 before the first."""
    cursor: int = 0
    """Number of the sequence behind the last one that was read."""
    unit: int = 0
    """Sequences of a step as the config counts them; 0 before the run has begun."""

    def passed(self, every: int) -> bool:
        """Whether a multiple of `every` config steps was reached by the last step."""
        interval = every * self.unit
        return self.sequences // interval > self.before // interval


@dataclass(frozen=True)
class Clock:
    """Converts between steps and sequences, by a config and the size of its data."""

    num_sequences: int
    """N of the data, times `passes`."""
    batch: int
    """Sequences of a step now."""
    unit: int
    """Sequences of a step as the config counts them."""
    epochs: int
    max_steps: int | None
    ramp: tuple[tuple[int, int], ...] = ()
    """(config step, sequences of a step before it), ascending; then `batch`."""
    cuts: tuple[tuple[int, int], ...] = ()
    """(config step, pieces that a sequence is cut into before it), ascending; then it is whole."""
    passes: int = 1
    """Over all data that are one epoch here: those of a mixture have no ends, and are one."""

    @classmethod
    def of(cls, config: Config, num_sequences: int, unit: int | None = None) -> Clock:
        """`unit`: of a run that has begun."""
        training = config.training
        batch = config.sequences_per_step
        size, length = config.data.batch_size, config.data.seq_len
        passes = training.epochs if config.data.mixture else 1
        return cls(
            num_sequences * passes,
            batch,
            unit or batch,
            training.epochs // passes,
            training.max_steps,
            tuple((one.until, size * one.gradient_accumulation) for one in training.batch_ramp),
            tuple((one.until, length // one.seq_len) for one in training.seq_len_ramp),
            passes,
        )

    @property
    def per_epoch(self) -> int:
        """Config steps of one pass over the data."""
        return self.num_sequences // self.passes // self.unit

    @property
    def reachable(self) -> int:
        """Config steps that the data holds."""
        return self.num_sequences // self.unit * self.epochs

    @property
    def planned(self) -> int:
        """Config steps of the whole run, undisturbed: where the schedule ends."""
        return self.reachable if self.max_steps is None else self.max_steps

    def batch_at(self, sequences: int) -> int:
        """Sequences of the step that begins after so many."""
        return self._now(self.ramp, self.batch, sequences)

    def pieces_at(self, sequences: int) -> int:
        """Pieces that each of its sequences is cut into."""
        return self._now(self.cuts, 1, sequences)

    def _now(self, stages: tuple[tuple[int, int], ...], last: int, sequences: int) -> int:
        return next((value for until, value in stages if sequences < until * self.unit), last)

    def start(self, cursor: int, batch: int | None = None) -> int:
        """Number of the first sequence of the next batch: no batch reaches over an epoch's end."""
        epoch, within = divmod(cursor, self.num_sequences)
        fits = within + (batch or self.batch) <= self.num_sequences
        return cursor if fits else (epoch + 1) * self.num_sequences

    def batch_number(self, start: int) -> int:
        """1, 2, ... of the batch that begins there, as batches of this size are counted."""
        epoch, within = divmod(start, self.num_sequences)
        return epoch * (self.num_sequences // self.batch) + within // self.batch + 1

    def advance(self, place: Place) -> None:
        """Advance the place by one step."""
        batch = self.batch_at(place.sequences)
        place.cursor = self.start(place.cursor, batch) + batch
        place.before, place.sequences = place.sequences, place.sequences + batch
        place.step += 1

    def left(self, place: Place) -> tuple[int, int]:
        """(steps, their sequences) that the run will still take: none goes beyond the last epoch or
        `max_steps`.
        """
        steps, sequences, cursor = 0, place.sequences, place.cursor
        for until, batch in (*self.ramp, (None, self.batch)):
            number = most = self._steps_with(batch, sequences, cursor)
            if until is not None:
                number = min(most, max(0, -(-(until * self.unit - sequences) // batch)))
            cursor = self._cursor_after(number, batch, cursor)
            steps, sequences = steps + number, sequences + number * batch
            if until is not None and sequences < until * self.unit:
                break  # it ends within this stage
        return steps, sequences - place.sequences

    def _steps_with(self, batch: int, sequences: int, cursor: int) -> int:
        """Steps until the end, if all had one batch size."""
        epoch, within = divmod(self.start(cursor, batch), self.num_sequences)
        after = (self.epochs - epoch - 1) * (self.num_sequences // batch)
        in_data = 0 if after < 0 else after + (self.num_sequences - within) // batch
        if self.max_steps is None:
            return in_data
        return max(0, min(in_data, (self.max_steps * self.unit - sequences) // batch))

    def _cursor_after(self, steps: int, batch: int, cursor: int) -> int:
        if not steps:
            return cursor
        start, per_epoch = self.start(cursor, batch), self.num_sequences // batch
        epoch, within = divmod(start, self.num_sequences)
        here = (self.num_sequences - within) // batch
        if steps <= here:
            return start + steps * batch
        epochs, rest = divmod(steps - here - 1, per_epoch)
        return (epoch + 1 + epochs) * self.num_sequences + (rest + 1) * batch

    def steps_left(self, place: Place) -> int:
        return self.left(place)[0]

    def last_step(self, place: Place) -> int:
        return place.step + self.steps_left(place)

    def is_behind(self, place: Place) -> bool:
        """Whether the run has passed its end."""
        if self.max_steps is not None and place.sequences > self.max_steps * self.unit:
            return True
        return place.cursor > self.epochs * self.num_sequences


def place_in(trainer: Mapping[str, Any], *, seq_len: int, num_sequences: int) -> Place:
    """The place in a checkpoint's trainer.json, on data of N sequences; older checkpoints have only
    the step. Sequences of another length than `seq_len` are counted anew, by their tokens.
    """
    saved, config = trainer["progress"], trainer["config"]
    step = int(saved["step"])
    if "sequences" in saved:
        place = Place(step, *(int(saved[k]) for k in ("sequences", "before", "cursor", "unit")))
    else:
        unit = config["data"]["batch_size"] * config["training"]["gradient_accumulation"]
        position = step + int(saved.get("data_offset", 0))
        epoch, within = divmod(position, max(1, num_sequences // unit))
        cursor = epoch * num_sequences + within * unit
        place = Place(step, step * unit, (step - 1) * unit if step else -1, cursor, unit)
    was = config["data"]["seq_len"]
    if was != seq_len:
        place.sequences, place.cursor = (
            -(-number * was // seq_len) for number in (place.sequences, place.cursor)
        )
        place.before, place.unit = (
            place.before * was // seq_len,
            max(1, round(place.unit * was / seq_len)),
        )
    return place
