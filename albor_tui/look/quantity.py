"""Numbers as people read them: fixed widths, units, and a visible word for what is not a number.

Unknown (None) is the missing mark; NaN and Inf are words, since they are data.
"""

from __future__ import annotations

import math
import time

from albor_tui.look import glyphs

_HUGE = 0.9995e15  # beyond any unit: somebody's mistake, shown as such and within its column
_FOREVER_S = 86400e6


def _odd(value: float | int | None) -> str | None:
    """The text for a value that is no finite number, None for one that is."""
    if value is None or isinstance(value, str):
        return glyphs.current.missing
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return None


def loss(value: float | None) -> str:
    """A loss: four digits after the point while it is small, always at most 7 columns."""
    if (odd := _odd(value)) is not None:
        return odd
    assert value is not None
    size = abs(value)
    if size >= 10_000 or 0 < size < 1e-3:
        return f"{value:.1e}".replace("e+0", "e").replace("e-0", "e-").replace("e+", "e")
    return f"{value:.{4 if size < 10 else 3 if size < 100 else 2 if size < 1000 else 1}f}"


def ratio(value: float | None) -> str:
    """A perplexity or norm: three significant digits, at most 7 columns."""
    if (odd := _odd(value)) is not None:
        return odd
    assert value is not None
    size = abs(value)
    if size >= 1000:
        return si(value)
    if 0 < size < 0.01:
        return exponent(value) if size >= 1e-9 else _extreme(value)
    return f"{value:.{2 if size < 100 else 1}f}"


def exponent(value: float | None) -> str:
    """A learning rate: 3.00e-4."""
    if (odd := _odd(value)) is not None:
        return odd
    assert value is not None
    mantissa, power = f"{value:.2e}".split("e")
    return f"{mantissa}e{int(power)}"


def _extreme(value: float) -> str:
    """What is beyond all units, in 6 columns: 1e308, 5e-300."""
    return f"{value:.0e}".replace("e+0", "e").replace("e+", "e")


def si(value: float | None) -> str:
    """Three significant digits and k, M, G, T: 912k, 1.31M; at most 5 columns."""
    if (odd := _odd(value)) is not None:
        return odd
    assert value is not None
    size = abs(value)
    if size >= _HUGE:
        return _extreme(value)
    for unit, scale in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if size >= scale * 0.9995:
            return _three(value / scale) + unit
    return _three(value) if size < 10 and value != int(value) else f"{value:.0f}"


def count(value: float | None) -> str:
    """A whole number with separators: 15,280."""
    if (odd := _odd(value)) is not None:
        return odd
    return f"{int(value or 0):,}" if abs(value or 0) < _HUGE else _extreme(value or 0)


def tokens(value: float | None) -> str:
    """Tokens, with B for 10^9 as the field says it."""
    return si(value).replace("G", "B")


def bytes_(value: float | None) -> str:
    """Bytes in binary units: 61.2G."""
    if (odd := _odd(value)) is not None:
        return odd
    assert value is not None
    size = float(value)
    if abs(size) >= _HUGE:
        return _extreme(size) + "B"
    for unit in ("B", "K", "M", "G", "T"):
        if abs(size) < 999.5 or unit == "T":
            return f"{size:.0f}{unit}" if unit == "B" else _three(size) + unit
        size /= 1024
    return ""  # not reached: T takes everything


def percent(value: float | None, digits: int = 0) -> str:
    """A share 0..1 as percent, without the space that a table cannot spare."""
    if (odd := _odd(value)) is not None:
        return odd
    assert value is not None
    size = abs(value)
    if size >= 9_999.995:
        mantissa, power = f"{value:.0e}".split("e")
        return f"{mantissa}e{int(power) + 2}%"  # a hundred times 1e308 is no number any more
    return f"{value * 100:.{digits if size < 10 else 0}f}%"


def milliseconds(value: float | None) -> str:
    """A time given in milliseconds: 0.4ms, 103ms, 12.5s."""
    if (odd := _odd(value)) is not None:
        return odd
    assert value is not None
    if abs(value) >= 1e9:
        return f"{_extreme(value / 1000)}s"
    if value >= 10_000:
        return f"{value / 1000:.1f}s"
    return f"{value:.{1 if value < 100 else 0}f}ms"


def duration(seconds: float | None) -> str:
    """Two units at most, never longer than 7 columns: 45s, 12m05s, 3h12m, 4d06h, 250d."""
    if (odd := _odd(seconds)) is not None:
        return odd
    assert seconds is not None
    if seconds >= _FOREVER_S:
        return f"{_extreme(seconds / 86400)}d"
    s = max(0, round(seconds))
    if s < 60:
        return f"{s}s"
    if s < 3600:
        return f"{s // 60}m{s % 60:02d}s"
    if s < 86400:
        return f"{s // 3600}h{s % 3600 // 60:02d}m"
    if s < 100 * 86400:
        return f"{s // 86400}d{s % 86400 // 3600:02d}h"
    return f"{s // 86400}d"


def age(seconds: float | None) -> str:
    """One unit, for how long ago: 8s, 12m, 3h, 5d."""
    if (odd := _odd(seconds)) is not None:
        return odd
    assert seconds is not None
    if seconds >= _FOREVER_S:
        return f"{_extreme(seconds / 86400)}d"
    s = max(0, int(seconds))
    for unit, scale in (("d", 86400), ("h", 3600), ("m", 60)):
        if s >= 2 * scale or (scale < 86400 and s >= scale):
            return f"{s // scale}{unit}"
    return f"{s}s"


def clock(wall: float | None) -> str:
    """A moment in UTC seconds as local date and time: 2026-03-01 14:05:09."""
    if (odd := _odd(wall)) is not None:
        return odd
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(wall))
    except (OverflowError, ValueError, OSError):  # a number that is no time
        return glyphs.current.missing


def _three(value: float) -> str:
    size = abs(value)
    return f"{value:.{2 if size < 9.995 else 1 if size < 99.95 else 0}f}"
