"""The common result of all importers: runs as neutral values.

A reader knows one format and nothing of Albor's files; `run_import.py` knows Albor's files and no
format. Between them stand the classes here. Nothing that is read is trusted: sizes and depths are
bounded, and what has no place in Albor is counted, not guessed.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from albor_core.run.values.metrics import MAX_DEPTH, printable, safe_key

if TYPE_CHECKING:
    import sqlite3

_MAX_KINDS = 100
_MAX_QUOTED = 60
REPLACED = "replaced"  # another value of its metric came later for its step
TAKEN_BACK = "taken back"  # by the source, which went on from an earlier step
NO_STEP = "no step"  # numbered by order
DAMAGED = "damaged record"
CALLS, ORDER = "calls of log", "order"  # axes that are not steps of the program
UNTOLD = "the source does not say how it ended"
_NOT_FINITE = {
    "nan": math.nan, "NaN": math.nan,
    "inf": math.inf, "Infinity": math.inf,
    "-inf": -math.inf, "-Infinity": -math.inf,
}  # fmt: skip


@dataclass(frozen=True)
class Point:
    """Values of one step. `step` None is the one after the last; `wall` is UTC seconds. `axis` is
    what a step counts where that is not the step of the program: a metric's name, CALLS, ORDER.
    """

    step: Any
    wall: float | None
    values: Mapping[str, Any]
    axis: str = ""


@dataclass(frozen=True)
class ForeignMedium:
    """A picture, sound, histogram, table or text, whole in memory; `content` is what its file will
    hold, in `form` (png, wav, json, txt, ...).
    """

    step: Any
    wall: float | None
    key: str
    kind: str
    form: str
    content: bytes
    meta: Mapping[str, Any] = field(default_factory=dict)
    caption: str = ""


@dataclass(frozen=True)
class Rewind:
    """The source took back what it had said after step `to`."""

    to: int


@dataclass(frozen=True)
class MetricWord:
    """What the author said of a metric: which way is better ("" where unsaid), and which of its
    values stands for the run.
    """

    metric: str
    goal: str = ""
    summary: str = ""


Item = Point | ForeignMedium | Rewind | MetricWord


@dataclass(frozen=True)
class Example:
    """The first value of a kind that did not come as it was: whose, where, what, which is a text
    where it is not a number. The metric is called as a store has it. What the source does not say
    is None, as is a step that is not an integer.
    """

    metric: str
    step: Any = None
    value: float | str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "metric", safe_key(self.metric))
        if not isinstance(self.step, int):
            object.__setattr__(self, "step", None)

    def __str__(self) -> str:
        place = "" if self.step is None else f" at step {self.step}"
        if isinstance(self.value, str):
            return f"{self.metric}{place}: {self.value!r}"
        return f"{self.metric}{place}" + ("" if self.value is None else f": {self.value:g}")


@dataclass
class Losses:
    """What could not be brought over as it was: kind -> how many, the first of each kind where it
    is known, and records whose bytes are damaged.

    The scribe counts what any source may have: REPLACED, TAKEN_BACK, NO_STEP. A reader counts what
    only it can know.
    """

    unmapped: Counter[str] = field(default_factory=Counter)
    damaged: int = 0
    examples: dict[str, Example] = field(default_factory=dict)

    def note(self, kind: str, count: int = 1, example: Example | None = None) -> None:
        """Count something that has no place here, or had to be changed. The number of kinds is
        bounded.
        """
        word = printable(kind)[:60] or "unnamed"
        if word not in self.unmapped and len(self.unmapped) >= _MAX_KINDS:
            word = "others"
        self.unmapped[word] += count
        if example is not None:
            self.examples.setdefault(word, example)

    def spoil(self, where: str, said: object = None, step: Any = None) -> None:
        """Count a record that cannot be read; of the first its place and how it begins are kept."""
        self.damaged += 1
        if DAMAGED not in self.examples:
            value = None if said is None else quoted(said)
            self.examples[DAMAGED] = Example(where, step, value)


@dataclass(frozen=True)
class ForeignRun:
    """One run of another tracker. `key` is what makes it the same run at the next import.

    `items` reads the history, in the source's order, and counts into the Losses it is given; it may
    be called again. Damage inside is counted; it raises DataError only where nothing can be read.
    """

    source: str
    key: str
    name: str
    experiment: str
    where: Path
    items: Callable[[Losses], Iterator[Item]]
    created: float | None = None
    ended: float | None = None
    status: str = "completed"
    ending: str = UNTOLD
    params: Mapping[str, Any] = field(default_factory=dict)
    tags: tuple[str, ...] = ()
    notes: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Refusal:
    """A file that looked like history and could not be read; the others are none the worse."""

    where: Path
    message: str


def _never(*_: object) -> bool:
    return False


def _alone(path: Path) -> Path:
    return path


@dataclass(frozen=True)
class Importer:
    """A format of history: how it is told from others, and how it is read.

    `find.IMPORTERS` lists one of each. No check runs, unpickles or unpacks anything.
    """

    name: str
    """What `--from` takes; the `source` of its runs."""
    title: str
    """What people call it."""
    read: Callable[[list[Path], Path], Iterator[ForeignRun | Refusal]]
    """The runs of some files; the path is where the search began."""
    may_be: Callable[[str], bool] = _never
    """Whether a file of this name, met in a folder, is worth opening."""
    is_file: Callable[[Path, bytes], bool] = _never
    """Whether a file that begins with these bytes, and is not a database, is of this format."""
    is_database: Callable[[sqlite3.Connection], bool] | None = None
    """Whether a SQLite database is, if any can be."""
    is_folder: Callable[[Path], bool] = _never
    """Whether a folder is a run of it; asked where `folder_mark` lies in the folder."""
    folder_mark: str = ""
    group: Callable[[Path], Path] = _alone
    """Files of which this is the same may belong to one run and are read together."""
    only_asked: bool = False
    """Any program writes such files: in a folder they are taken by their names, if asked for."""


def quoted(said: object) -> str:
    """An example of something that was left out: the beginning of its text."""
    return printable(str(said)[:_MAX_QUOTED].strip())


def numbers_in(
    values: Mapping[str, Any], losses: Losses, depth: int = 0, *, step: Any = None
) -> dict[str, Any]:
    """The numbers among JSON values, nested as they were; everything else is counted by kind, and
    the first of a kind named with the step that the values are of.

    NaN and Inf may come as the texts that JSON writers use for them.
    """
    found: dict[str, Any] = {}

    def leave(kind: str) -> None:
        said = "" if kind in losses.examples else quoted(value)
        losses.note(kind, example=Example(key, step, said))

    for key, value in values.items():
        if isinstance(value, bool | int | float):
            found[key] = value
        elif isinstance(value, str):
            if value in _NOT_FINITE:
                found[key] = _NOT_FINITE[value]
            else:
                leave("text")
        elif isinstance(value, Mapping):
            if "_type" in value:
                leave(str(value["_type"]))
            elif depth + 1 < MAX_DEPTH:
                found[key] = numbers_in(value, losses, depth + 1, step=step)
            else:
                leave("nested too deep")
        elif value is not None:
            leave("list")
    return found


def not_finite(said: str) -> bool:
    """Whether a text is how JSON writers spell NaN or an infinity."""
    return said in _NOT_FINITE


def mapping(value: Any) -> Mapping[str, Any]:
    """`value` if it is an object of JSON, else an empty one."""
    return value if isinstance(value, dict) else {}
