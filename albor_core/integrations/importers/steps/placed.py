"""The steps and values of one metric while its history is read: what a later value replaces, and
what the source takes back. Pure.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left, bisect_right

_BITS = struct.Struct("<d")


def is_same(one: float, other: float) -> bool:
    """Whether two values are the same to the last bit; NaN is."""
    return _BITS.pack(one) == _BITS.pack(other)


class Placed:
    """Steps in order stand in arrays, 16 bytes each; those that came late, in a dictionary."""

    def __init__(self) -> None:
        self._steps, self._values = array("q"), array("d")
        self._late: dict[int, float] = {}

    @property
    def last(self) -> int | None:
        """The newest step."""
        return self._steps[-1] if self._steps else None

    def put(self, step: int, value: float) -> float | None:
        """Take a value; returns the one that was there, None if there was none."""
        number = float(value)
        if not self._steps or step > self._steps[-1]:
            self._steps.append(step)
            self._values.append(number)
            return None
        at = bisect_left(self._steps, step)
        if self._steps[at] == step:
            before, self._values[at] = self._values[at], number
        elif step in self._late:
            before, self._late[step] = self._late[step], number
        else:
            self._late[step] = number
            return None
        return before

    def rewind(self, to: int) -> tuple[int, tuple[int, float] | None]:
        """Let go what lies behind step `to`: how many, and the first of them."""
        at = bisect_right(self._steps, to)
        gone = {step: self._late.pop(step) for step in [s for s in self._late if s > to]}
        gone |= dict(zip(self._steps[at : at + 1], self._values[at : at + 1], strict=True))
        count = len(gone) + max(0, len(self._steps) - at - 1)
        del self._steps[at:], self._values[at:]
        if self._late and (not self._steps or max(self._late) > self._steps[-1]):
            self._settle()
        return count, min(gone.items()) if gone else None

    def _settle(self) -> None:
        """All in order again: what came late is the newest now."""
        all_of_it = sorted(
            {**dict(zip(self._steps, self._values, strict=True)), **self._late}.items()
        )
        self._steps = array("q", [step for step, _ in all_of_it])
        self._values = array("d", [value for _, value in all_of_it])
        self._late = {}
