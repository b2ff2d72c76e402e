"""Figures as text: how each unit of run/headlines.py, and any metric, is written in a cell."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
