"""A recorded curve, the common type of code that compares curves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Curve(NamedTuple):
    """Points of a curve in order of steps."""

    steps: Sequence[float]
    values: Sequence[float]
