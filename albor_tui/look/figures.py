"""Figures as text: how each unit of run/headlines.py, and any metric, is written in a cell."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from rich.cells import cell_len

from albor_core.run.values.clean import clean
from albor_core.run.values.directions import direction
from albor_core.run.values.main_metrics import MainMetric
from albor_tui.look import glyphs, quantity

_TEXTS: Mapping[str, Callable[[float | None], str]] = {
    "loss": quantity.loss,
    "ratio": quantity.ratio,
    "rate": quantity.si,
    "share": partial(quantity.percent, digits=1),
    "lr": quantity.exponent,
    "ms": quantity.milliseconds,
    "tokens": quantity.si,
}
WIDTHS = {"loss": 7, "ratio": 6, "rate": 5, "share": 5, "lr": 7, "ms": 6, "tokens": 5}
"""Cells of a column that has room for any value of the unit."""


def text_of(unit: str, value: float | None) -> str:
    """A value of a unit of run/headlines.py."""
    return _TEXTS[unit](value)


def apart(values: Sequence[float | None], words: Sequence[str], room: int) -> list[str]:
    """Values of one metric beside each other: their `words` where those tell them apart, else all
    with the same digits behind the point, as many as that takes, or as fit in `room` cells.
    """
    pairs = [*zip(values, words, strict=True)]
    best = {value: word for value, word in pairs if value is not None and math.isfinite(value)}
    if not best or (_told_apart(best) == len(best) and _are_alike([*best.values()])):
        return [*words]
    most = 0
    for form in _forms([abs(value) for value in best if value]):
        texts = {value: format(value, form) for value in best}
        if max(map(len, texts.values())) <= room and (count := _told_apart(texts)) > most:
            best, most = texts, count
        if most == len(best):
            break
    return [word if value is None else best.get(value, word) for value, word in pairs]


def _told_apart(texts: Mapping[float, str]) -> int:
    """How many of these values can be told from the others, and from 0."""
    return len({text for value, text in texts.items() if not value or text.strip("-0.,")})


def _are_alike(words: Sequence[str]) -> bool:
    """Whether all have as many digits behind the point, or a unit or power behind them."""
    plain = [word for word in words if word[-1:].isdigit() and "e" not in word]
    return len({len(word.partition(".")[2]) for word in plain}) < 2


def _forms(sizes: Sequence[float]) -> Iterator[str]:
    """Number formats of more and more digits: four significant ones of the largest value first, and
    two of the smallest where it is not tiny.
    """
    powers = [math.floor(math.log10(size)) for size in sizes]
    if powers and -4 <= max(powers) < 9:
        first = max(0, 3 - max(powers), min(4, 1 - min(powers)))
        yield from (f",.{digits}f" for digits in range(first, 13))
    yield from (f".{digits}e" for digits in range(2, 13))


def name_in(key: str, room: int) -> str:
    """A metric's name in `room` cells: the first parts of a path give way, unless they say what it
    is. It may be longer yet.
    """
    name = clean(key)
    while cell_len(name) > room and "/" in name:
        tail = name.partition("/")[2]
        if direction(name) is not None and direction(tail) is None:
            break
        name = tail
    return name


def way(one: MainMetric) -> str:
    """The mark behind a value of the direction in which it is better; "" if that is unknown."""
    arrows = {"max": glyphs.current.arrow_up, "min": glyphs.current.arrow_down}
    return f" {arrows[one.better]}" if one.better else ""
