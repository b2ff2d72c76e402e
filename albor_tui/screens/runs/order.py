"""Which runs are shown, in what order and in which groups. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable

from albor_core.feed.runs.listed_metric import beside
from albor_core.feed.view.run_status import shown_word
from albor_core.feed.view.run_view import RunView
from albor_core.run.status import SILENT
from albor_core.run.values.quantity import counted
from albor_tui.look import quantity

SORTS = {  # by order the store's sort key, and whether the largest comes first
    "recent": ("created", True),
    "run": ("name", False),
    "loss": ("loss", False),
    "ppl": ("val_ppl", False),
    "tok/s": ("tokens_per_s", True),
    "ends": ("created", True),  # runs at work have one, and they are always here
    "alert": ("alerts", True),
}
ORDERS = tuple(SORTS)
_FIGURES = {"loss": "loss", "ppl": "val_ppl", "tok/s": "tokens_per_s"}  # fields of a view
_MOST_METRICS = 3
GROUPS = ("", "experiment", "state", "tag", "host")
DIED_S = 12 * 3600.0  # a death is news for the length of a night
Group = tuple[int, str]  # index of its first run, title


def _by_number(value: float | None) -> tuple[int, float]:
    """Numbers first, NaN after them, unknown last."""
    if value is None:
        return (2, 0.0)
    return (1, 0.0) if math.isnan(value) else (0, value)


def _urgency(view: RunView) -> int:
    """The rank in the list: active runs first, then those that wait to start or died while the user
    was away, then pinned ones."""
    if view.is_active:
        return 0
    if view.status == "queued":
        return 1
    if view.status in ("failed", "lost") and view.age_s is not None and view.age_s < DIED_S:
        return 1
    return 2 if view.is_pinned else 3


_KEYS: dict[str, Callable[[RunView], object]] = {
    "recent": lambda v: (_urgency(v), -(v.created or 0.0)),
    "run": lambda v: (v.name or v.id).lower(),
    "loss": lambda v: _by_number(v.loss),
    "ppl": lambda v: _by_number(v.val_ppl),
    "tok/s": lambda v: _by_number(None if v.tokens_per_s is None else -v.tokens_per_s),
    "ends": lambda v: _by_number(v.eta_s if v.is_live else None),
    "alert": lambda v: -v.alerts_open,
}


def orders_of(rows: Iterable[RunView]) -> tuple[str, ...]:
    """What a list of these runs can be ordered by: what it shows, and with the figures of the
    house the metrics that stand for its runs, those of most runs first.
    """
    seen: set[str] = set()
    own: Counter[str] = Counter()
    for view in rows:
        seen |= {order for order, name in _FIGURES.items() if getattr(view, name) is not None}
        if (one := beside(view)) is not None and one.better is not None:
            own[one.name] += 1
    known = [order for order in ORDERS if order not in _FIGURES or order in seen]
    return (*known, *(name for name, _ in own.most_common(_MOST_METRICS) if name not in known))


def next_order(order: str, rows: Iterable[RunView]) -> str:
    """The order behind this one, of those that a list of these runs can have."""
    orders = orders_of(rows)
    at = orders.index(order) if order in orders else -1
    return orders[(at + 1) % len(orders)]


def needed_for(order: str, group: str, rows: Iterable[RunView]) -> frozenset[str]:
    """The ids of the runs whose metrics must be known: of all, where the order or the headings of
    groups are made of them.
    """
    return frozenset(view.id for view in rows) if order not in SORTS or group else frozenset()


def question_of(order: str, rows: Iterable[RunView]) -> tuple[str, bool]:
    """The store's sort key of an order, and whether the largest comes first."""
    return SORTS.get(order) or (order, _better(order, rows) == "max")


def _better(metric: str, rows: Iterable[RunView]) -> str:
    found = (one for view in rows for one in view.metrics if one.name == metric and one.better)
    return next((one.better or "" for one in found), "")


def _by_metric(name: str, rows: Iterable[RunView]) -> Callable[[RunView], object]:
    """The best first, by the side that is better."""
    sign = -1.0 if _better(name, rows) == "max" else 1.0

    def key(view: RunView) -> tuple[int, float]:
        last = next((one.last for one in view.metrics if one.name == name), None)
        return _by_number(None if last is None else sign * last)

    return key


_GROUP_OF: dict[str, Callable[[RunView], str]] = {
    "experiment": lambda v: v.experiment or "no experiment",
    "state": lambda v: SILENT if v.is_silent else shown_word(v.status),
    "tag": lambda v: " ".join(v.tags) or "no tags",
    "host": lambda v: v.host or "host not known",
}


def arrange(
    rows: tuple[RunView, ...],
    *,
    words: str = "",
    only: Collection[str] | None = None,
    order: str = "recent",
    reverse: bool = False,
) -> tuple[RunView, ...]:
    """Rows that contain every word of `words` in name, id, experiment, state or tags, or those
    whose ids are in `only`; sorted, ties in the order of the feed."""
    kept: list[RunView] = list(rows)
    if only is not None:
        kept = [view for view in kept if view.id in only]
    elif wanted := words.lower().split():
        kept = [view for view in kept if all(word in _haystack(view) for word in wanted)]
    key = _KEYS.get(order) or _by_metric(order, rows)
    kept.sort(key=key, reverse=reverse)  # type: ignore[arg-type]
    return tuple(kept)


def grouped(rows: tuple[RunView, ...], by: str) -> tuple[tuple[RunView, ...], tuple[Group, ...]]:
    """The same rows with those of a group together, in the order of each group's first row, and
    where the groups begin. `by` is one of GROUPS; "" groups nothing."""
    if not by:
        return rows, ()
    groups: dict[str, list[RunView]] = {}
    for view in rows:
        groups.setdefault(_GROUP_OF[by](view), []).append(view)
    starts: list[Group] = []
    arranged: list[RunView] = []
    for name, members in groups.items():
        starts.append((len(arranged), _title(name, members)))
        arranged += members
    return tuple(arranged), tuple(starts)


def is_plain(words: str) -> bool:
    """Whether a filter is words alone, which need no store."""
    return not any(sign in words for sign in ':<>=!"') and not any(
        word.startswith("-") for word in words.split()
    )


def _title(name: str, members: list[RunView]) -> str:
    active = sum(view.is_active for view in members)
    parts = [name, counted(len(members), "run")]
    parts += [f"{active} active"] if active else []
    parts += [best] if (best := _best_of(members)) else []
    return "   ".join(parts)


def _best_of(members: list[RunView]) -> str:
    """The best of a group by what stands for all of its runs; else their lowest loss."""
    own = [beside(view) for view in members]
    first = own[0]
    if first is not None and first.better and all(o and o.name == first.name for o in own):
        lasts = [one.last for one in own if one and one.last is not None]
        finite = [last for last in lasts if math.isfinite(last)]
        best = max if first.better == "max" else min
        return f"best {first.name} {quantity.metric(best(finite), first.name)}" if finite else ""
    known = [v.loss for v in members if v.loss is not None and math.isfinite(v.loss)]
    return f"lowest loss {min(known):.4f}" if known else ""


def _haystack(view: RunView) -> str:
    states = (view.status, view.shown_status, "died" if view.status == "failed" else "")
    parts = (view.name, view.id, view.experiment, *states, view.host, *view.tags)
    return " ".join(parts).lower()
