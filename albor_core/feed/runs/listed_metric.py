"""Which metric a list of runs names beside its columns, and whose trend it draws. Pure."""

from __future__ import annotations

from albor_core.feed.view.run_view import RunView
from albor_core.run.headlines import HEADLINES, LOSSES
from albor_core.run.values.main_metrics import MainMetric, beside_columns

_LISTED = tuple(one for one in HEADLINES if one.is_listed)
_LISTED_KEYS = frozenset(one.key for one in _LISTED)


def beside(view: RunView) -> MainMetric | None:
    """The metric that stands for a run, as far as no other column of a list says it."""
    if not view.metrics:
        return None
    said = [one.key for one in _LISTED if getattr(view, one.name) is not None]
    return beside_columns((one for one in view.metrics if one.name not in _LISTED_KEYS), said)


def with_trend(view: RunView) -> str | None:
    """The metric whose trend a list draws: the one it names, else the first; None: the loss."""
    if (own := beside(view)) is not None:
        return None if own.name in LOSSES else own.name
    first = view.metrics[0].name if view.metrics else LOSSES[0]
    return None if first in LOSSES else first
