"""Numbers as people write them in a config: `32_768`, `32K`, `1.5M`, `10B`, `3e-4`.

The rule: K is 1,024 and G is 1,024^3, because people who write them mean a power of two (a 32K
vocabulary, 5G of disk); M, B and T are 10^6, 10^9 and 10^12, because people who write them mean a
count of tokens or parameters. A boolean is never a number.
"""

from __future__ import annotations

import re
from fractions import Fraction

SUFFIXES = {"": 1, "K": 1024, "M": 10**6, "G": 1024**3, "B": 10**9, "T": 10**12}
WRITTEN = r"([+-]?)(\d[\d_]*(?:\.\d+)?|\.\d+)(?:[eE]([+-]?\d{1,2}))?\s*([KMGBTkmgbt]?)"
_SHORT = re.compile(WRITTEN)


def parse_count(value: object) -> int:
    """A whole number from an int, a whole float (1e6) or text with a suffix. Raises ValueError."""
    if isinstance(value, bool):
        raise ValueError("must be a whole number, not true or false")
    if isinstance(value, int):
        return value
    exact = Fraction(value) if isinstance(value, float) and abs(value) < 1e18 else _exact(value)
    if exact is None or exact.denominator != 1:
        raise ValueError("must be a whole number such as 2000, 32_768, 32K or 10B")
    return int(exact)


def parse_real(value: object) -> float:
    """A number from an int, a float or text such as `3e-4`. Raises ValueError."""
    if isinstance(value, bool):
        raise ValueError("must be a number, not true or false")
    if isinstance(value, int | float):
        return float(value)
    if isinstance(value, str) and "_" not in value:
        try:
            return float(value)  # the nearest double; text with a suffix takes the exact way below
        except ValueError:
            pass
    exact = _exact(value)
    if exact is None:
        raise ValueError("must be a number such as 0.1, 3e-4 or 10B")
    return float(exact)


def _exact(value: object) -> Fraction | None:
    match = _SHORT.fullmatch(value.strip()) if isinstance(value, str) and len(value) < 64 else None
    if match is None:
        return None
    sign, digits, exponent, suffix = match.groups()
    number = Fraction(digits.replace("_", "")) * Fraction(10) ** int(exponent or 0)
    return number * SUFFIXES[suffix.upper()] * (-1 if sign == "-" else 1)
