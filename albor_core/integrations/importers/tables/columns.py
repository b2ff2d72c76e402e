"""What the columns of a table are: step, time, run, the word that tells train from validation, and
metrics.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from albor_core.integrations.closing_record import is_closing
from albor_core.integrations.importers.foreign import Example, Losses, Point, numbers_in
from albor_core.integrations.importers.tables.listed_runs import ListedRuns
from albor_core.integrations.importers.tables.notation import Notation
from albor_core.integrations.importers.tables.places import (
    EPOCH,
    LearnedPlaces,
    RowPlace,
    RowPlaces,
    step_column,
    step_word,
)
from albor_core.integrations.importers.tables.rows import (
    KEYS,
    RUNS,
    SPLITS,
    VALUES,
    WALLS,
    Row,
)
from albor_core.integrations.importers.trackio import utc
from albor_core.run.values.lenient import finite_of, is_number, number_of, real

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
_PROGRAM_STEPS = ("train/global_step", "trainer/global_step", "global_step", "time/batch")
_TIME = "_timestamp"
_KINDS = ("type", "event", "kind")
_LAST_WORDS = frozenset(("summary", "final", "run_summary", "final_summary", "result", "results"))
_WORDED = frozenset((*RUNS, *KEYS, *SPLITS, *_KINDS, "experiment"))


@dataclass
class Columns:
    """Facts of a table's columns, known once all rows were read."""

    split: str | None = None
    axes: dict[str, float] = field(default_factory=dict)
    """Columns that may be the program's step, where W&B's `_step` counts calls: the last value."""
    notation: Notation = field(default_factory=Notation)
    places: dict[str | None, LearnedPlaces] = field(default_factory=dict)
    """Of each run."""
    is_list_of_runs: bool = False
    """Each row is a run, as a page of runs is downloaded, and no step of one."""

    @classmethod
    def of(cls, rows: Iterable[Row], most_runs: int) -> Columns:
        """Read a table once."""
        columns, is_first, listed = cls(), True, ListedRuns()
        for row in rows:
            listed.see(row)
            if columns.split is None:
                columns.split = _split_of(row)
            if is_first:
                columns.axes = dict.fromkeys((n for n in _PROGRAM_STEPS if n in row), -1.0)
            is_first = False
            columns._see(row)
            name = run_of(row)
            if name in columns.places or len(columns.places) <= most_runs:
                read = columns.numbers(row)
                if keys := _metrics(read):
                    places = columns.places.setdefault(name, LearnedPlaces())
                    places.see(read, columns.part(row), keys)
        columns.is_list_of_runs = listed.is_one
        return columns

    def _see(self, row: Row) -> None:
        for name, last in list(self.axes.items()):
            value = row.get(name)
            if is_number(value) and value >= last and value == value // 1:
                self.axes[name] = value
            else:
                del self.axes[name]
        for name, value in row.items():
            if isinstance(value, str):
                self.notation.see(name, value)

    def numbers(self, row: Row, told: list[tuple[str, str, float]] | None = None) -> Row:
        """A row with its numbers as such, however they are written; what had to be decided of them
        is added to `told` as kind, column and number.
        """
        found: dict[str, Any] = {}
        for name, value in row.items():
            found[name] = value
            read = None
            if isinstance(value, str) and name not in _WORDED:
                read = self.notation.number(name, value)
            if read is not None:
                found[name] = read[0]
                if told is not None:
                    told.append((read[1], name, float(read[0])))
        axis = next(iter(self.axes), None)
        if axis is not None and "step" not in row and ("_step" in row or step_word(row) is None):
            found["step"] = row[axis]
        return found

    def place_columns(self, row: Row) -> set[str | None]:
        """The columns that give the position of a row. W&B counts its calls besides the program's
        step.
        """
        axis = next(iter(self.axes), None)
        again = axis if axis == "global_step" and row.get("step") == row.get(axis) else None
        calls = "_step" if step_column(row) != "_step" else None
        used = {step_column(row), again, calls, _time_column(row)}
        return used | set(_times_beside(row))

    def unread(self, row: Row, place: RowPlace) -> list[str]:
        """Columns of numbers that are not metrics, besides those that identify a row."""
        if (one := _only_value(row)) is None:
            calls = row.get("_step") if step_column(row) != "_step" else None
            return ["_step"] if is_number(calls) and calls != place.step else []
        used = self.place_columns(row) | {*RUNS, "experiment", _value_column(row), self.split}
        used.add(EPOCH if place.axis == EPOCH or one[0] == EPOCH else None)
        return [name for name, value in row.items() if name not in used and is_number(value)]

    def part(self, row: Row) -> str:
        """The part of a row: train, val, test, another word, or "" if unknown."""
        said = row.get(self.split) if self.split is not None else None
        word = said.strip() if isinstance(said, str) else ""
        return _PARTS.get(word.lower(), word)


class RowReader:
    """The rows of one run as points, asked in their order."""

    def __init__(self, columns: Columns, run: str | None) -> None:
        self._columns = columns
        self._places = RowPlaces(columns.places.get(run) or LearnedPlaces())

    def point(self, row: Row, losses: Losses) -> Point:
        """A row as values of one step."""
        told: list[tuple[str, str, float]] = []
        row, part = self._columns.numbers(row, told), self._columns.part(row)
        place, wall = self._places.next_place(row, part), _wall(row.get(_time_column(row) or ""))
        values = self._values(row, part, place)
        numbers = numbers_in(values, losses, step=place.step)
        for name in self._columns.unread(row, place):
            example = Example(name, place.step, real(row[name]))
            losses.note("beside another column", example=example)
        for kind, name, number in told:
            metric = next(iter(values), name) if name in VALUES and name not in values else name
            losses.note(kind, example=Example(metric, place.step, number))
        if place.is_moved and numbers:
            key, value = next(iter(numbers.items()))
            example = Example(key, place.step, number_of(value))
            losses.note("renumbered", len(numbers), example)
        return Point(place.step, wall, numbers, place.axis)

    def _values(self, row: Row, part: str, place: RowPlace) -> dict[str, Any]:
        if (one := _only_value(row)) is not None:
            return {_named(one[0], part): one[1]}
        used = {*self._columns.place_columns(row), *RUNS, "experiment"}
        used.add(self._columns.split if part else None)
        values = {k: v for k, v in row.items() if k not in used}
        is_ours = place.is_closing or is_closing(values)
        if is_ours or _is_last_word(row):  # means over the run, no point of its curves
            return {
                k if k in _SHARED else f"summary/{_named(k, part)}": v for k, v in values.items()
            }
        return {_named(k, part): v for k, v in values.items()}


def run_of(row: Row) -> str | None:
    """The name of the run that a row belongs to, if it says one."""
    said = _first(row, RUNS)
    return str(said) if isinstance(said, str | int | float) and said != "" else None


def _times_beside(row: Row) -> tuple[str, ...]:
    """Columns with the times of the values of another, as SwanLab writes them."""
    return tuple(name for name in row if name.endswith(_TIME) and name.removesuffix(_TIME) in row)


def _time_column(row: Row) -> str | None:
    """The column that a row says its time in."""
    names = (*WALLS, *_times_beside(row))
    return next((name for name in names if _wall(row.get(name)) is not None), None)


def _value_column(row: Row) -> str | None:
    return next((name for name in VALUES if row.get(name) is not None), None)


def _only_value(row: Row) -> tuple[str, Any] | None:
    """The metric and value of a row that has one of each; None for other rows."""
    key = _first(row, KEYS)
    is_one = isinstance(key, str) and any(name in row for name in VALUES)
    return (key, _first(row, VALUES)) if is_one else None


def _metrics(row: Row) -> list[str]:
    """The columns of a row that have numbers, but for its place."""
    if (one := _only_value(row)) is not None:
        row = dict([one])
    places = (step_column(row), _time_column(row), "_step")
    numbers = numbers_in(row, Losses())
    return [name for name, number in numbers.items() if number != {} and name not in places]


def _is_last_word(row: Row) -> bool:
    """Whether a row calls itself what is said at the end."""
    said = (row.get(name) for name in (*SPLITS, *_KINDS))
    return any(isinstance(word, str) and word.strip().lower() in _LAST_WORDS for word in said)


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


def _first(row: Row, names: tuple[str, ...]) -> Any:
    for name in names:
        if (value := row.get(name)) is not None:
            return value
    return None


def _wall(said: Any) -> float | None:
    if isinstance(said, str):
        return utc(said)
    seconds = finite_of(said)
    for scale in (1.0, 1000.0):
        if seconds is not None and _ERA[0] <= seconds / scale < _ERA[1]:
            return seconds / scale
    return None
