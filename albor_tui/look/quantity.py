"""Quantities in the fixed widths of the cockpit, on the formats that every front end shares.

A cell leaves out the space before a unit and the B of a byte unit (9.27Gi, 12m05s); number and unit
are those of run/values/quantity.py. Unknown (None) is the missing mark.
"""

from __future__ import annotations

import time

from albor_core.run.values import quantity
from albor_core.run.values.quantity import UNKNOWN, extreme, short_count
from albor_tui.look import glyphs

counted = quantity.counted


def _shown(text: str) -> str:
    return glyphs.current.missing if text == UNKNOWN else text


def _cell(text: str) -> str:
    return _shown(text.replace(" ", ""))


def _odd(value: float | int | None) -> str | None:
    """The text for a value that is not a finite number, None for one that is."""
    return None if quantity.is_finite(value) else _shown(quantity.odd(value))


def loss(value: float | None) -> str:
    """A loss: four digits after the point while it is small, always at most 7 columns."""
    if (odd := _odd(value)) is not None:
        return odd
    assert value is not None
    size = abs(value)
    if size >= 10_000 or 0 < size < 1e-3:
        return f"{value:.1e}".replace("e+0", "e").replace("e-0", "e-").replace("e+", "e")
    return f"{value:.{4 if size < 10 else 3 if size < 100 else 2 if size < 1000 else 1}f}"


def metric(value: float | None, key: str) -> str:
    """The value of any metric, by its name."""
    return _shown(quantity.figure(value, key))


def ratio(value: float | None) -> str:
    """A perplexity or norm: three significant digits, at most 7 columns."""
    if (odd := _odd(value)) is not None:
        return odd
    assert value is not None
    size = abs(value)
    if size >= 1000:
        return short_count(value)
    if 0 < size < 0.01:
        return exponent(value) if size >= 1e-9 else extreme(value)
    return f"{value:.{2 if size < 100 else 1}f}"


def exponent(value: float | None) -> str:
    """A learning rate: 3.00e-4."""
    if (odd := _odd(value)) is not None:
        return odd
    assert value is not None
    mantissa, power = f"{value:.2e}".split("e")
    return f"{mantissa}e{int(power)}"


def si(value: float | None) -> str:
    """Three significant digits and k, M, B, T: 912k, 1.31M; at most 5 columns."""
    return _shown(short_count(value))


def count(value: float | None) -> str:
    """A whole number with separators: 15,280."""
    return _shown(quantity.count(value))


def byte_size(value: float | None) -> str:
    """Bytes where there is room, in a sentence or a title: 61.2 GiB."""
    return _shown(quantity.byte_size(value))


def byte_cell(value: float | None) -> str:
    """Bytes in a cell or a gauge, at most 7 columns: 61.2Gi."""
    text = _cell(quantity.byte_size(value))
    return text.removesuffix("B") if text.endswith("iB") else text


def percent(value: float | None, digits: int = 0) -> str:
    """A share 0..1 as percent: 41%."""
    return _shown(quantity.percent(value, digits))


def milliseconds(value: float | None) -> str:
    """A time given in milliseconds: 0.4ms, 103ms, 12.5s."""
    return _cell(quantity.milliseconds(value))


def duration(seconds: float | None) -> str:
    """Two units at most, never longer than 7 columns: 45s, 12m05s, 3h12m, 4d06h, 250d."""
    return _cell(quantity.duration(seconds))


def age(seconds: float | None) -> str:
    """An age in one unit: 8s, 12m, 3h, 5d."""
    return _shown(quantity.age(seconds))


def clock(wall: float | None) -> str:
    """A moment in UTC seconds as local date and time: 2026-03-01 14:05:09."""
    if (odd := _odd(wall)) is not None:
        return odd
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(wall))
    except (OverflowError, ValueError, OSError):  # a number that is not a time
        return glyphs.current.missing


def moment(wall: float, now: float) -> str:
    """A moment near `now` by the local clock: 19:21, or 12 Mar 19:21 where that is far."""
    try:
        form = "%H:%M" if abs(wall - now) < 18 * 3600 else "%d %b %H:%M"
        return time.strftime(form, time.localtime(wall))
    except (OverflowError, ValueError, OSError):
        return glyphs.current.missing


def amount(value: float | None) -> str:
    """The amount of a budget: 11.2, 2.6B; without decimals if it is whole."""
    if value is not None and 0 < abs(value) < 1000:
        return f"{value:.1f}".removesuffix(".0")
    return si(value)
