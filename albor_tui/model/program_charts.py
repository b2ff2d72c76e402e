"""Which of its metrics the Overview shows of a program that is not ours."""

from __future__ import annotations

from collections.abc import Sequence

from albor_core.feed.view import ChartChoice, TerminalView
from albor_core.run.values.directions import direction

LOSSES = ("train/loss", "val/loss")
_MACHINE = ("brick/", "gpu", "host/", "perf/")
_BY_DIRECTION = ("max", "min", None)
_TILES = 8


def own_choice(keys: Sequence[str]) -> TerminalView | None:
    """What the Overview shows of a program that logs no loss: its own metrics, first what is to
    grow. None where the house's choice has something to show, or nothing has.
    """
    if not {*LOSSES}.isdisjoint(keys):
        return None
    own = [key for key in keys if not key.startswith(_MACHINE)]
    if not own:
        return None
    own.sort(key=lambda key: _BY_DIRECTION.index(direction(key)))
    large, small = ChartChoice(own[0], is_loss_curve=True), map(ChartChoice, own[1:4])
    return TerminalView(metrics=tuple(own[:_TILES]), charts=(large, *small))
