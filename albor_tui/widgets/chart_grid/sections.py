"""The metrics of a grid in sections, by the first part of their names; families of layers. Pure.

`train/loss` is in `train`; `layer07/norm`, `layers.7.norm` and `block_7/norm` are of one family
each, which is one panel of depth and step until it is opened. What is measured of the machine comes
last and is folded; of the others as many sections are open as fit a first look.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from albor_core.run.values.directions import is_of_machine

FEW = 12  # charts that need no sections, and that are open at first
LEAST_LAYERS = 3  # of a family
MOST_SAID = 200  # sections of which it is kept whether they are folded
MACHINE, PINNED, PLAIN = "machine", "pinned", "no prefix"
_FOLDED = "-"  # before the name of a section that the user folded
_LAYER = re.compile(
    r"(?P<head>(?:.*?[/._-])??)"
    r"(?P<word>layers?|blocks?|blk|stages?|experts?|heads?|depth|gpu|rank|h)"
    r"(?P<gap>[/._-]?)(?P<number>\d{1,6})(?P<tail>(?:[/._-].*)?)",
    re.IGNORECASE | re.DOTALL,
)


@dataclass(frozen=True)
class Cell:
    """A place in the grid: the chart of one key, or the panel of a family."""

    name: str
    keys: tuple[str, ...] = field(compare=False)
    rows: tuple[str, ...] = field(default=(), compare=False)
    """Names of a panel's rows, one for each key."""

    @property
    def is_panel(self) -> bool:
        return bool(self.rows)


@dataclass(frozen=True)
class ChartSection:
    """Keys that are folded together, and what is shown of them when they are not. An opened family
    is one as well."""

    name: str
    keys: tuple[str, ...] = field(compare=False)
    cells: tuple[Cell, ...] = field(compare=False)
    is_family: bool = False


@lru_cache(maxsize=8192)
def layer_parts(key: str) -> tuple[str, str, str] | None:
    """The family of a key, where its section is not in its head the word for it, and the number of
    its layer; None for a key without a layer."""
    found = _LAYER.fullmatch(key)
    if found is None:
        return None
    head, word, gap, number, tail = found.group("head", "word", "gap", "number", "tail")
    return f"{head}{word}{gap}*{tail}", word if "/" not in head else "", number


@lru_cache(maxsize=8192)
def section_name(key: str) -> str:
    """The section of a key by its name alone."""
    if is_of_machine(key):
        return MACHINE
    layer = layer_parts(key)
    if layer is not None and layer[1]:
        return layer[1]
    first, slash, _ = key.partition("/")
    return first if slash and first else PLAIN


def group_sections(keys: Iterable[str]) -> tuple[ChartSection, ...]:
    """Sections in the order in which their first keys come, the machine last."""
    found: dict[str, list[str]] = {}
    for key in keys:
        found.setdefault(section_name(key), []).append(key)
    if MACHINE in found:
        found[MACHINE] = found.pop(MACHINE)
    return tuple(ChartSection(name, tuple(some), _cells(some)) for name, some in found.items())


def _cells(keys: Iterable[str]) -> tuple[Cell, ...]:
    """A cell for each key; one for the keys of a family that has enough layers."""
    families: dict[str, dict[str, str]] = {}
    singles: dict[str, str] = {}
    for key in keys:
        layer = layer_parts(key)
        if layer is None:
            singles[key] = key
        else:
            singles[key] = layer[0]
            families.setdefault(layer[0], {})[key] = layer[2]
    cells: dict[str, Cell] = {}
    for key, name in singles.items():
        members = families.get(name, {})
        if len(members) >= LEAST_LAYERS:
            cells.setdefault(name, _panel(name, members))
        else:
            cells[key] = Cell(key, (key,))
    return tuple(cells.values())


def _panel(name: str, members: Mapping[str, str]) -> Cell:
    deep = sorted(members, key=lambda key: (int(members[key]), key))
    return Cell(name, tuple(deep), tuple(members[key] for key in deep))


class Folds:
    """Which sections are open: what the user said of each, else what fits a first look."""

    def __init__(self, changes: Iterable[str] = ()) -> None:
        """`changes`: names of sections that were opened, "-" and the name of those folded."""
        self._said: dict[str, bool] = {}
        for name in changes:
            is_folded = name.startswith(_FOLDED)
            self._said[name[len(_FOLDED) :] if is_folded else name] = not is_folded

    @property
    def changes(self) -> tuple[str, ...]:
        """What the user said, as it is kept."""
        return tuple(name if is_open else _FOLDED + name for name, is_open in self._said.items())

    def say(self, name: str, *, is_open: bool) -> None:
        """Open or fold a section or a family."""
        self._said.pop(name, None)
        self._said[name] = is_open
        for oldest in list(self._said)[:-MOST_SAID]:
            del self._said[oldest]

    def opened(self, sections: Iterable[ChartSection]) -> frozenset[str]:
        """Names of the sections and families that are open."""
        found, room, is_first = set(), FEW, True
        for section in sections:
            charts = len(section.cells)
            fits = is_first or (section.name != MACHINE and charts <= room)
            if self._said.get(section.name, section.name == PINNED or fits):
                found.add(section.name)
                room -= 0 if section.name == PINNED else charts
            is_first = is_first and section.name == PINNED
            panels = [cell.name for cell in section.cells if cell.is_panel]
            found.update(name for name in panels if self._said.get(name))
        return frozenset(found)
