"""What the columns of a table are: step, time, run, the word that tells train from validation, and
metrics.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from albor_core.integrations.closing_record import is_closing
from albor_core.integrations.importers.foreign import Losses, Point, numbers_in
from albor_core.integrations.importers.tables.rows import (
    KEYS,
    RUNS,
    SPLITS,
    STEPS,
    WALLS,
    Row,
)
from albor_core.integrations.importers.trackio import utc
from albor_core.run.values.lenient import is_number

_ERA = (1e9, 1e10)  # 2001 to 2286 in seconds; the same digits in milliseconds are taken as such
_PARTS = {
    word: part
    for part, words in {
        "train": "train training trn fit train_inner",
        "val": "val valid validation dev eval evaluation evaluate validate",
        "test": "test testing",
    }.items()
    for word in words.split()
}
_SHARED = frozenset(("epoch", "lr", "learning_rate", "grad_norm"))  # of the run, not of a part
_PROGRAM_STEPS = ("train/global_step", "trainer/global_step", "global_step")


@dataclass
class Columns:
    """What is known of a table's columns once all its rows were seen."""

    split: str | None = None
    axes: dict[str, float] = field(default_factory=dict)
    """Columns that may be the program's step, where W&B's `_step` counts calls: the last value."""

    @classmethod
    def of(cls, rows: Iterable[Row]) -> Columns:
        """Read a table once."""
        columns, is_first = cls(), True
        for row in rows:
            if columns.split is None:
                columns.split = _split_of(row)
            if is_first:
                columns.axes = dict.fromkeys((n for n in _PROGRAM_STEPS if n in row), -1.0)
            is_first = False
            for name, last in list(columns.axes.items()):
                value = row.get(name)
                if is_number(value) and value >= last and value == value // 1:
                    columns.axes[name] = value
                else:
                    del columns.axes[name]
        return columns

    def point(self, row: Row, losses: Losses) -> Point:
        """A row as values of one step."""
        step, wall = self._step(row), _wall(_first(row, WALLS))
        key = _first(row, KEYS)
        part = self._part(row)
        if isinstance(key, str) and "value" in row:
            return Point(step, wall, numbers_in({_named(key, part): row["value"]}, losses))
        used = {*STEPS, *RUNS, "experiment", self.split if part else None}
        used.update(WALLS if wall is not None else ())
        values = {k: v for k, v in row.items() if k not in used}
        if is_closing(values):  # means over the run, no point of its curves
            values = {k if k in _SHARED else f"summary/{k}": v for k, v in values.items()}
        return Point(
            step, wall, numbers_in({_named(k, part): v for k, v in values.items()}, losses)
        )

    def _step(self, row: Row) -> Any:
        if "_step" in row and "step" not in row and self.axes:
            return _whole(row[next(iter(self.axes))])
        return _whole(_first(row, STEPS))

    def _part(self, row: Row) -> str:
        said = row.get(self.split) if self.split is not None else None
        word = said.strip() if isinstance(said, str) else ""
        return _PARTS.get(word.lower(), word)


def run_of(row: Row) -> str | None:
    """The name of the run that a row belongs to, if it says one."""
    said = _first(row, RUNS)
    return str(said) if isinstance(said, str | int | float) and said != "" else None


def _split_of(row: Row) -> str | None:
    """The column whose word tells the rows of one step apart, if this row shows it."""
    for name in SPLITS:
        said = row.get(name)
        if isinstance(said, str) and said.strip().lower() in _PARTS:
            return name
    return None


def _named(key: str, part: str) -> str:
    """The name of a metric in a part of the run, where it does not say the part itself."""
    is_told = key.split("/")[0].split("_")[0].lower() in _PARTS
    is_grouped = "/" in key and (part == "train" or key.startswith("optim/"))
    return key if not part or key in _SHARED or is_told or is_grouped else f"{part}/{key}"


def _whole(said: Any) -> Any:
    """A step said as 10.0 is 10; None for one that is not a number."""
    return int(said) if isinstance(said, float) and said.is_integer() else said


def _first(row: Row, names: tuple[str, ...]) -> Any:
    for name in names:
        if (value := row.get(name)) is not None:
            return value
    return None


def _wall(said: Any) -> float | None:
    if isinstance(said, str):
        return utc(said)
    if not is_number(said):
        return None
    for scale in (1.0, 1000.0):
        if _ERA[0] <= said / scale < _ERA[1]:
            return float(said / scale)
    return None
