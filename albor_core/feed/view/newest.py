"""The newest figures of a run, of what its state file, its journal and a store tell.

The state file of an attempt that was killed may be a quarter of a second older than its journal,
and a store may lag behind both or have gone on when the file could not be written: whatever is
younger counts, and the others complete it.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from itertools import islice
from pathlib import Path

from albor_core.run.headlines import LOSSES, NEWEST
from albor_core.run.journal import parse_line
from albor_core.run.light_dataclass import dataclass
from albor_core.run.values.lenient import (
    Document,
    finite,
    integer,
    mapping,
    number,
    number_of,
)
from albor_core.run.values.main_metrics import MOST_KEYS, Logged

TAIL_BYTES = 16 << 10  # a few intervals: what is newest is near the end


@dataclass(frozen=True)
class NewestFigures:
    """What a run was at a step, and when that was written. `values` has those of the NEWEST
    headlines that are known, by their names; `val_step` is of its own `val_loss`.
    """

    wall: float | None = None
    step: int | None = None
    val_step: int | None = None
    values: Mapping[str, float] = field(default_factory=dict)

    def is_after(self, other: NewestFigures) -> bool:
        """Whether they were written later; figures of no time are of long ago."""
        return self.wall is not None and (other.wall is None or self.wall > other.wall)

    def without_steps(self) -> NewestFigures:
        """The figures of an attempt that has not reached a step."""
        values = {name: value for name, value in self.values.items() if name != "tokens"}
        return replace(self, step=None, values=values)

    def fields(self) -> dict[str, float | None]:
        """Each headline's value, None where it is unknown."""
        return {one.name: self.values.get(one.name) for one in NEWEST}


def newest(first: NewestFigures, second: NewestFigures) -> NewestFigures:
    """The later ones of two, completed by the others; `first` where nothing tells."""
    later, earlier = (second, first) if second.is_after(first) else (first, second)
    if later.step is None:
        later, earlier = earlier, later
    return completed(later, earlier)


def completed(figures: NewestFigures, by: NewestFigures) -> NewestFigures:
    """`figures`, and those of the other where they are not known."""
    # the step of a validation is that of its own value, or unknown
    val_step = figures.val_step if "val_loss" in figures.values else by.val_step
    return NewestFigures(
        wall=by.wall if figures.wall is None else figures.wall,
        step=by.step if figures.step is None else figures.step,
        val_step=val_step if figures.val_step is None else figures.val_step,
        values={**by.values, **figures.values},
    )


def brought_up(own: NewestFigures, stored: NewestFigures, *, is_starting: bool) -> NewestFigures:
    """What a run's files tell, with a store's figures where those are of a later step, or where no
    file tells any. All steps that are told of a run that `is_starting` are of the attempt before.
    """
    if is_starting:
        return completed(own, stored).without_steps()
    is_ahead = (stored.step or 0) > (own.step or 0) and stored.is_after(own)
    return newest(own, stored) if is_ahead or own.step is None else completed(own, stored)


def is_past_end(step: int | None, max_steps: int | None) -> bool:
    """Whether a program goes on past the steps that it was said to take."""
    return step is not None and bool(max_steps) and step > (max_steps or 0)


def share_done(step: int | None, max_steps: int | None) -> float | None:
    """How far a run is, 0..1; None where that is not known, or it goes on past its end."""
    if step is None or not max_steps or is_past_end(step, max_steps):
        return None
    return max(0.0, step / max_steps)


def figures_of_state(state: Document) -> NewestFigures:
    """What a state file tells of a run's figures. A later attempt than the first that has come to
    no step yet says nothing of steps.
    """
    step, values = integer(state, "global_step"), known(state, {n.name: n.state for n in NEWEST})
    if "loss" not in values and (loss := number(state, "loss_text")) is not None:
        values["loss"] = loss
    found = NewestFigures(finite(state, "wall"), step, integer(state, "val_step"), values)
    is_later_life = (integer(state, "attempt") or 0) > 1
    return found.without_steps() if is_later_life and not step and "loss" not in values else found


def metrics_of_state(state: Document) -> tuple[Logged, ...]:
    """The metrics in a state file, including Albor's own losses."""
    values = figures_of_state(state).values
    house = (Logged(one.key, values.get(one.name)) for one in NEWEST if one.key in LOSSES)
    told = mapping(state, "metrics")
    others = (
        Logged(name, number_of(values[0]), number_of(values[1]), number_of(values[2]))
        for name, values in islice(told.items(), MOST_KEYS)
        if isinstance(values, Sequence) and len(values) == 3
    )
    return tuple(one for one in (*house, *others) if one.last is not None)


def known(said: Document, names: Mapping[str, str]) -> dict[str, float]:
    """The numbers that a document has, each by the name that it is to have; tokens are counted."""
    found = {n: (finite if n == "tokens" else number)(said, key) for n, key in names.items()}
    return {name: value for name, value in found.items() if value is not None}


def whole_tokens(figures: Mapping[str, float | None]) -> dict[str, float | None]:
    """The same with tokens as the count that they are; what no count is, is unknown."""
    tokens = figures["tokens"]
    is_count = tokens is not None and math.isfinite(tokens)
    return {**figures, "tokens": int(tokens) if is_count and tokens is not None else None}


def figures_of_journal(path: Path) -> NewestFigures:
    """The figures at the end of a journal; none if it is unreadable."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(fd, "rb") as file:
            file.seek(max(0, os.fstat(fd).st_size - TAIL_BYTES))
            lines = file.read(TAIL_BYTES).splitlines(keepends=True)
    except OSError:
        return NewestFigures()
    whole = (parse_line(line) for line in lines if line.endswith(b"\n"))
    return figures_of_records([record for record in whole if record is not None])


def figures_of_records(records: Sequence[Document]) -> NewestFigures:
    """The same of a journal's newest records, oldest first."""
    found = NewestFigures()
    rewound_to: int | None = None  # later steps of earlier records were taken back
    for record in reversed(records):
        if record.get("t") == "r" and (to := integer(record, "to")) is not None:
            rewound_to = to if rewound_to is None else min(to, rewound_to)
            continue
        step, logged = integer(record, "step"), record.get("v")
        if record.get("t") != "m" or step is None or not isinstance(logged, Mapping):
            continue
        if rewound_to is not None and step > rewound_to:
            continue
        earlier = known(logged, {one.name: one.key for one in NEWEST})
        val_step = step if "val_loss" in earlier else None
        furthest = step if found.step is None else max(step, found.step)
        own = NewestFigures(finite(record, "wall"), step, val_step, earlier)
        found = replace(completed(found, own), step=furthest)
    return found
