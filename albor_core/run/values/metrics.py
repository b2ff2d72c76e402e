"""What anybody's training loop may hand over as a metric, made into what a journal holds.

One rule each, and none raises: float, int and bool are numbers; NaN and Inf are data; an integer
beyond 64 bits becomes the nearest float, or Inf; numpy and torch scalars, and arrays of one
element, give their item; a mapping is flattened with `/`; None is "unknown" and left out; anything
else is not a number, left out and counted, and so is an object that raises when it is asked. One
call takes 100,000 values. Keys become text of 1 to 256 printable characters. What was odd is
counted by kind, with the first example.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Any

from albor_core.run.headlines import HEADLINES, recorded_names
from albor_core.run.light_dataclass import dataclass
from albor_core.run.values.lenient import number_word, real

MAX_KEY_CHARS = 256
MAX_NAMES = 10_000  # of one run, beside those that always have room
NO_ROOM_EVENT = "track.too_many_names"
_MAX_SHAPES = 256
_PLAIN = frozenset((float, int))  # exactly: a bool, numpy or torch scalar takes the general way
MAX_DEPTH = 8
MAX_VALUES = 100_000  # of one call
_WALL = "_wall"  # the store's own series
_MAX_EXAMPLE = 120
ODD_WORDS = {  # of what is lost, to be told once; the others are counted alone
    "not_a_mapping": "log takes names and their numbers, not {}",
    "not_a_number": "{} is not a number and left out; run.image, run.text, run.table, run.histogram"
    " and run.audio keep other things",
    "too_many_values": f"more than {MAX_VALUES:,} values in one log: {{}} and the rest left out",
    "nested_too_deep": f"more than {MAX_DEPTH} mappings in each other: {{}} left out",
    "bad_step": "step {} is not a step; counted on from the last",
}


@dataclass
class Odd:
    """Counts of odd values so far: kind -> how often, and the first example of each kind."""

    counts: dict[str, int] = field(default_factory=dict)
    examples: dict[str, str] = field(default_factory=dict)

    def note(self, kind: str, *example: object) -> None:
        """Count one. The example is shown to people: bounded, printable, made once a kind."""
        self.counts[kind] = self.counts.get(kind, 0) + 1
        if kind not in self.examples:
            text = " = ".join(as_text(part)[:_MAX_EXAMPLE] for part in example)
            self.examples[kind] = printable(text)[:_MAX_EXAMPLE]

    @property
    def total(self) -> int:
        return sum(self.counts.values())


def tidy(values: Any, odd: Odd) -> dict[str, float | int]:
    """The numbers in `values` by their keys, flat. Raises nothing, whatever it is given."""
    found: dict[str, float | int] = {}
    items = _items(values)
    if items is None:
        odd.note("not_a_mapping", values)
    else:
        _collect(items, "", 1, found, _Room(MAX_VALUES), odd)
    return dict(zip(recorded_names(tuple(found)), found.values(), strict=True))


@dataclass
class _Room:
    """How many values may still be looked at: mappings in each other's loops multiply."""

    left: int

    def takes_one(self) -> bool:
        self.left -= 1
        return self.left >= 0


def _items(value: Any) -> list[tuple[Any, Any]] | None:
    """The items of a mapping; None for anything else, or if it cannot be read."""
    try:
        return list(value.items()) if isinstance(value, Mapping) else None
    except Exception:  # a foreign mapping
        return None


def _collect(
    items: list[tuple[Any, Any]],
    prefix: str,
    depth: int,
    found: dict[str, float | int],
    room: _Room,
    odd: Odd,
) -> None:
    for key, value in items:
        name = f"{prefix}/{as_text(key)}" if prefix else as_text(key)
        if not room.takes_one():
            odd.note("too_many_values", name)
            return
        if value is None:
            continue
        inner = _items(value)
        if inner is not None:
            if depth < MAX_DEPTH:
                _collect(inner, name, depth + 1, found, room, odd)
            else:
                odd.note("nested_too_deep", name)
            continue
        number = as_number(value)
        if number is None:
            odd.note("not_a_number", name, value)
            continue
        if isinstance(value, int) and isinstance(number, float):
            odd.note("huge_integer", name)
        safe = safe_key(name)
        if safe != name:
            odd.note("key_changed", name)
        found[safe] = number


def as_number(value: Any) -> float | int | None:
    """The number that `value` is, or None. An integer beyond 64 bits comes back as a float."""
    try:
        return _plain(value)
    except Exception:  # a foreign object: whatever it raises, it gave no number
        return None


def _plain(value: Any) -> float | int | None:
    if not isinstance(value, bool | int | float):
        value = _item(value)
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, int):
        value = int(value)
        return value if -(2**63) <= value < 2**63 else real(value)
    return float(value) if isinstance(value, float) else None


def _item(value: Any) -> Any:
    """The one element of an array or tensor, or a number of another kind (Decimal, Fraction).
    Raises what the object does.
    """
    if isinstance(value, str | bytes | bytearray | complex):
        return None
    if callable(getattr(value, "item", None)):
        return value.item()  # raises where there is more than one element
    return float(value) if hasattr(type(value), "__float__") else None


def safe_key(key: str) -> str:
    """`key` as a store holds it: printable, not empty, at most 256 characters and still its own."""
    name = printable(key) or "(empty)"
    if name == _WALL:
        return "_wall_"
    if len(name) > MAX_KEY_CHARS:
        mark = zlib.crc32(key.encode("utf-8", "backslashreplace"))
        return f"{name[: MAX_KEY_CHARS - 9]}~{mark:08x}"
    return name


def printable(text: str) -> str:
    """Control characters, line separators and lone surrogates as escapes."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode("ascii")
        for char in text
    )


def as_json(value: Any, *, most: int = MAX_VALUES) -> Any:
    """Any object as JSON data: a config, or the data of an event. NaN and Inf become their names,
    what has no form in JSON or lies 8 deep its text of at most 1,000 characters.
    What is beyond `most` values is left out. Raises nothing.
    """
    return _json(value, 0, _Room(most))


def _json(value: Any, depth: int, room: _Room) -> Any:
    if value is None or value is True or value is False:
        return value
    held = _held(value)
    if held is not None and depth < MAX_DEPTH:
        if isinstance(held, dict):
            return {k: _json(v, depth + 1, room) for k, v in held.items() if room.takes_one()}
        return [_json(item, depth + 1, room) for item in held if room.takes_one()]
    number = None if held is not None else as_number(value)
    if number is None:
        return as_text(value) if _is_text(value) else as_text(value)[:1000]
    return number_word(number)


def _held(value: Any) -> dict[str, Any] | list[Any] | None:
    """The first of what a mapping, list, tuple or set holds; None for anything else, and for what
    cannot be read.
    """
    items = _items(value)
    if items is not None:
        return {printable(as_text(key)): item for key, item in items[:MAX_VALUES]}
    try:
        return (
            list(value)[:MAX_VALUES] if isinstance(value, list | tuple | set | frozenset) else None
        )
    except Exception:  # a foreign list
        return None


def _is_text(value: object) -> bool:
    return issubclass(type(value), str)


def as_text(value: object) -> str:
    """The text of anything, as a plain str. Raises nothing."""
    try:
        return str.__str__(value if isinstance(value, str) else str(value))
    except Exception:  # a foreign __str__; digits of an integer beyond Python's limit
        return f"<{type(value).__name__}>"


class NameRoom:
    """The limit of metric names in a run's store: the first MAX_NAMES, plus Albor's own, those with
    a goal and pinned ones.
    """

    def __init__(self) -> None:
        self._always = {one.key for one in HEADLINES}
        self._names: set[str] = set()
        self.refused: dict[str, None] = {}
        """What had no room, as far as it was asked about."""

    def always(self, names: Iterable[str]) -> None:
        """Names that have room however many there are, MAX_NAMES of them."""
        free = MAX_NAMES + len(HEADLINES) - len(self._always)
        given = [name for name in names if name not in self._always][:free]
        self._always.update(given)
        for name in given:
            self.refused.pop(name, None)

    def takes(self, name: str) -> bool:
        """Whether the metric is kept; asked again, the answer stays."""
        if name in self._names or name in self._always:
            return True
        if len(self._names) >= MAX_NAMES:
            self.refused[name] = None
            return False
        self._names.add(name)
        return True

    def lacks(self, name: str) -> bool:
        """Whether the metric has no room, or had none so far."""
        is_kept = name in self._names or name in self._always
        return len(self._names) >= MAX_NAMES and not is_kept

    @property
    def asked(self) -> int:
        """How many names there are, kept or not, without those that always have room."""
        return len(self._names) + len(self.refused)


class LoggedNames:
    """The names of what a loop logs: final ones, and whether the run's store has room for them."""

    def __init__(self, recorded: Iterable[str] = ()) -> None:
        self.room = NameRoom()
        self._shapes: dict[tuple[Any, ...], tuple[str, ...]] = {}  # () where the keys are the names
        for name in recorded:
            self.room.takes(name)

    def named(self, values: Any, odd: Odd) -> dict[str, float | int]:
        """`values` with final names; a dict of plain numbers whose keys were seen before costs a
        look-up.
        """
        if type(values) is dict and _PLAIN.issuperset(map(type, values.values())):
            keys = tuple(values)
            try:
                names = self._shapes.get(keys)
            except Exception:  # a foreign key, which cannot be compared
                names = None
            if names is not None:
                return dict(zip(names, values.values(), strict=True)) if names else values
            self._learn(keys)
        found = tidy(values, odd)
        for name in found:
            self.room.takes(name)
        return found

    def _learn(self, keys: tuple[Any, ...]) -> None:
        if not all(type(key) is str and safe_key(key) == key for key in keys):
            return  # counted as odd each time
        names = recorded_names(keys)
        if len(self._shapes) >= _MAX_SHAPES:  # keys that never repeat
            self._shapes.clear()
        self._shapes[keys] = () if names == keys else names
