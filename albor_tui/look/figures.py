"""Headline figures as text: how each unit of run/headlines.py is written in a cell."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from albor_tui.look import quantity

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
