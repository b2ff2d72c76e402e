"""Which runs are shown and in what order. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable

from albor_core.feed.view import RunView

ORDERS = ("recent", "run", "loss", "val ppl", "tok/s", "eta", "alerts")


def _number(value: float | None) -> tuple[int, float]:
    """Numbers first, NaN after them, unknown last."""
    if value is None:
        return (2, 0.0)
    return (1, 0.0) if math.isnan(value) else (0, value)


_KEYS: dict[str, Callable[[RunView], object]] = {
    "recent": lambda v: (not v.is_active, -(v.created or 0.0)),
    "run": lambda v: (v.name or v.id).lower(),
    "loss": lambda v: _number(v.loss),
    "val ppl": lambda v: _number(v.val_ppl),
    "tok/s": lambda v: _number(None if v.tokens_per_s is None else -v.tokens_per_s),
    "eta": lambda v: _number(v.eta_s if v.is_live else None),
    "alerts": lambda v: -v.alerts_open,
}


def arrange(
    rows: tuple[RunView, ...], *, words: str = "", order: str = "recent", reverse: bool = False
) -> tuple[RunView, ...]:
    """Rows that contain every word of `words` in name, id, experiment, state or tags; sorted, ties
    in the order of the feed."""
    wanted = words.lower().split()
    kept = [view for view in rows if all(word in _haystack(view) for word in wanted)]
    kept.sort(key=_KEYS[order], reverse=reverse)  # type: ignore[arg-type]
    return tuple(kept)


def _haystack(view: RunView) -> str:
    parts = (view.name, view.id, view.experiment, view.status, view.host, *view.tags)
    return " ".join(parts).lower()
