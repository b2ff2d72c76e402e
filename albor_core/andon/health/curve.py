"""A recorded curve, as those who compare curves hand it around."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Curve(NamedTuple):
    """In order of steps."""

    steps: Sequence[float]
    values: Sequence[float]
