"""The newest figures of a run, of what its state file, its journal and a store tell.

The state file of a life that was killed may be a quarter of a second older than its journal, and a
store may lag behind both or have gone on when the file could not be written: whatever is younger
counts, and the others complete it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from albor_core.run.journal import parse_line
from albor_core.run.values.lenient import Document, finite, integer, number

TAIL_BYTES = 16 << 10  # a few intervals: what is newest is near the end
_KEYS = {
    "tokens": "train/tokens",
    "loss": "train/loss",
    "val_loss": "val/loss",
    "val_ppl": "val/ppl",
    "tokens_per_s": "perf/tokens_per_s",
    "mfu": "perf/mfu",
}


@dataclass(frozen=True)
class NewestFigures:
    """What a run was at a step, and when that was written. Unknown is None."""

    wall: float | None = None
    step: int | None = None
    tokens: float | None = None
    loss: float | None = None
    val_loss: float | None = None
    val_ppl: float | None = None
    val_step: int | None = None
    tokens_per_s: float | None = None
    mfu: float | None = None

    def is_after(self, other: NewestFigures) -> bool:
        """Whether they were written later; figures of no time are of long ago."""
        return self.wall is not None and (other.wall is None or self.wall > other.wall)


def newest(first: NewestFigures, second: NewestFigures) -> NewestFigures:
    """The later ones of two, completed by the others; `first` where nothing tells."""
    later, earlier = (second, first) if second.is_after(first) else (first, second)
    if later.step is None:
        later, earlier = earlier, later
    return completed(later, earlier)


def completed(figures: NewestFigures, by: NewestFigures) -> NewestFigures:
    """`figures`, and those of the other where they are not known."""
    names = [f.name for f in fields(figures)]
    if figures.val_loss is not None:  # the step is that of its own value, or unknown
        names.remove("val_step")
    return replace(figures, **{n: getattr(by, n) for n in names if getattr(figures, n) is None})


def brought_up(own: NewestFigures, stored: NewestFigures, *, is_starting: bool) -> NewestFigures:
    """What a run's files tell, with a store's figures where those are of a later step, or where no
    file tells any. All steps that are told of a run that `is_starting` are of the life before.
    """
    if is_starting:
        return replace(completed(own, stored), step=None, tokens=None)
    is_ahead = (stored.step or 0) > (own.step or 0) and stored.is_after(own)
    return newest(own, stored) if is_ahead or own.step is None else completed(own, stored)


def share_done(step: int | None, max_steps: int | None) -> float | None:
    """How far a run is, 0..1."""
    return min(1.0, max(0.0, step / max_steps)) if step is not None and max_steps else None


def figures_of_state(state: Document) -> NewestFigures:
    """What a state file tells of a run's figures. A later life than the first that has come to no
    step yet says nothing of steps.
    """
    step, loss = integer(state, "global_step"), number(state, "loss")
    loss = number(state, "loss_text") if loss is None else loss
    is_before_all = not step and loss is None and (integer(state, "attempt") or 0) > 1
    tokens = finite(state, "tokens")
    return NewestFigures(
        wall=finite(state, "wall"),
        step=None if is_before_all else step,
        tokens=None if is_before_all else tokens,
        loss=loss,
        val_loss=number(state, "val_loss"),
        val_ppl=number(state, "val_ppl"),
        val_step=integer(state, "val_step"),
        tokens_per_s=number(state, "tokens_per_second"),
        mfu=number(state, "mfu"),
    )


def figures_of_journal(path: Path) -> NewestFigures:
    """What the end of a journal tells; no figures where there is none to be read."""
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
    found: dict[str, Any] = {}
    rewound_to: int | None = None  # later steps of earlier records were taken back
    for record in reversed(records):
        if record.get("t") == "r" and (to := integer(record, "to")) is not None:
            rewound_to = to if rewound_to is None else min(to, rewound_to)
            continue
        step, values = integer(record, "step"), record.get("v")
        if record.get("t") != "m" or step is None or not isinstance(values, Mapping):
            continue
        if rewound_to is not None and step > rewound_to:
            continue
        found.setdefault("wall", finite(record, "wall"))
        found["step"] = max(step, found.get("step", step))
        for name, key in _KEYS.items():
            if name not in found and (value := number(values, key)) is not None:
                found[name] = value
                if name == "val_loss":
                    found["val_step"] = step
    return NewestFigures(**found)
