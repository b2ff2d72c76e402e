"""What the Overview shows of a run whose config does not say it: the metrics that stand for it."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from albor_core.feed.view.run_view import ChartChoice, TerminalView
from albor_core.run.headlines import LOSSES as JUDGES

LOSSES = ("train/loss", "val/loss")
HOUSE = ("optim/lr", "optim/grad_norm", "perf/tokens_per_s")
TILES = 8
_SMALL = 3
_REFRESH_MS = 800


def own_choice(
    names: Sequence[str], keys: Collection[str], *, is_house: bool
) -> TerminalView | None:
    """Charts and tiles of a run that `names` stand for, the first one first, and that logs `keys`.
    None where the house's choice is the one: of Albor's own training, unless a person chose.
    """
    if not names or (is_house and names[0] == LOSSES[0]):
        return None
    is_by_loss = names[0] in LOSSES
    large = ChartChoice(LOSSES[0] if is_by_loss else names[0], is_loss_curve=True)
    rest = [name for name in names[1:] if not (is_by_loss and name in JUDGES)]
    house = [key for key in HOUSE if key in keys and key not in names]
    judges = [name for name in names[1:] if name in JUDGES and name not in LOSSES]
    small = dict.fromkeys((*rest, *house, *judges))
    charts = (large, *map(ChartChoice, [*small][:_SMALL]))
    return TerminalView(_REFRESH_MS, metrics=tuple(names[:TILES]), charts=charts)
