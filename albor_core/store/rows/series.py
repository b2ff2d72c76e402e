"""A metric ready to draw: alone here, since a chart must not wait for the other rows (rows.py)."""

from __future__ import annotations

import math
from collections.abc import Sequence

from albor_core.run.light_dataclass import dataclass


@dataclass(frozen=True)
class Series:
    """A metric over steps, one entry per bucket; where `is_raw` an entry is one recorded point.

    `steps` holds the first step of each bucket. minimum and maximum keep every spike, Inf too; a
    bucket whose points are all NaN has NaN in all four. `nonfinite` counts NaN and Inf per bucket.
    One that no store made may leave out what is not known, and have steps between two whole ones.
    """

    key: str
    steps: Sequence[float] = ()
    minimum: Sequence[float] = ()
    maximum: Sequence[float] = ()
    mean: Sequence[float] = ()
    last: Sequence[float] = ()
    counts: Sequence[int] = ()
    nonfinite: Sequence[int] = ()
    is_raw: bool = True
    axis: str = "step"
    """What `steps` count: "step", or "seconds" since the run was made, of one that has no steps."""

    @property
    def is_empty(self) -> bool:
        return not self.steps

    @property
    def newest(self) -> float:
        """The value that was logged last, which in a bucket is not its mean; NaN where there is
        none.
        """
        values = self.last or self.mean
        return values[-1] if values else math.nan
