"""Which runs are shown, and in what order. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from albor_core.feed.runs.cells import AMOUNTS, RunCells
from albor_core.feed.runs.column_values import FIELDS, UNREAD, cell_value
from albor_core.feed.view.run_view import RunView
from albor_core.feed.workspace.my_metric import leading_metric
from albor_core.run.headlines import HEADLINES, STORED
from albor_core.run.values.clean import natural_place
from albor_core.run.values.directions import direction
from albor_core.store.query.terms import STATS
from albor_tui.widgets.run_columns import BUILT_IN, METRIC

RECENT = "recent"  # the order of a list that was not given another
DIED_S = 12 * 3600.0  # a death is news for the length of a night
_EXPERIMENTS = 3  # the largest, of which one says what is best
_FIELDS = {one.key: one.name for one in HEADLINES if one.name in BUILT_IN and one.stat == "last"}


class ColumnOrder(NamedTuple):
    """How runs are put in order: by which value, whether the largest comes first, and what the
    store calls it.
    """

    value: Callable[[RunView], object]
    is_falling: bool = False
    store: str = "created"


_WAYS = {  # columns whose largest values come first, or that a store knows by another name
    "done": (True, "step"),
    "duration": (True, "elapsed_s"),
    "ends": (False, "created"),
    "alerts": (True, "alerts"),
    "step": (True, "step"),
    "created": (True, "created"),
    "seen": (False, "last"),
    "tags": (False, "created"),
    "commit": (False, "created"),
    "attempts": (True, "attempts"),
    **{one.name: (one.better != "min", one.name) for one in STORED},
}
_ORDERS: Mapping[str, ColumnOrder] = {
    key: ColumnOrder(value, *_WAYS.get(key, (False, key)))
    for key, value in FIELDS.items()
    if key in BUILT_IN
}


def metric_column(metric: str) -> str:
    """The column of a metric: of a figure of the house its own."""
    return _FIELDS.get(metric, metric)


def my_metric(rows: Sequence[RunView], chosen: Mapping[str, str]) -> str:
    """The column of the metric that these runs are judged by, of several experiments those of the
    one with most runs; "" where nothing is known.
    """
    for experiment, _ in Counter(view.experiment for view in rows).most_common(_EXPERIMENTS):
        if name := leading_metric(experiment, rows, chosen):
            return metric_column(name)
    return ""


def better_side(key: str, rows: Iterable[RunView] = ()) -> str:
    """The side on which a metric is better: as one of its runs says, or its name; "" if neither."""
    name, colon, stat = key.rpartition(":")
    name = name if colon and stat in STATS else key
    for one in STORED:
        if one.name == name:
            return one.better or ""
    told = (one for view in rows for one in view.metrics if one.name == name and one.better)
    first = next(told, None)
    return (first.better if first is not None else direction(name)) or ""


def column_order(key: str, rows: Sequence[RunView], cells: RunCells) -> ColumnOrder:
    """The order by a column."""
    if key in _ORDERS:
        return _ORDERS[key]
    return ColumnOrder(
        lambda view: cell_value(view, key, cells),
        better_side(key, rows) == "max",
        "created" if key in cells.absent or key in AMOUNTS else key,
    )


def orders_of(columns: Iterable[str], metric: str) -> tuple[str, ...]:
    """What a list with these columns is ordered by in turn: its metric, then the columns from left
    to right.
    """
    others = (key for key in columns if key not in (METRIC, "trend"))
    return tuple(dict.fromkeys((RECENT, *((metric,) if metric else ()), *others)))


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


def chosen(
    rows: Iterable[RunView], words: str = "", only: Collection[str] | None = None
) -> list[RunView]:
    """Rows that contain every word of `words` in name, id, experiment, state or tags, or those
    whose ids are in `only`."""
    if only is not None:
        return [view for view in rows if view.id in only]
    wanted = words.lower().split()
    return [view for view in rows if all(word in _haystack(view) for word in wanted)]


def arrange(
    rows: Sequence[RunView], order: ColumnOrder | None = None, *, reverse: bool = False
) -> tuple[RunView, ...]:
    """Rows in an order, ties in the order of the feed; what is not a number or not known comes
    last, turned round or not. Without an order the newest are first, those at work before them.
    """
    if order is None:
        return tuple(
            sorted(rows, key=lambda v: (_urgency(v), -(v.created or 0.0)), reverse=reverse)
        )
    known: list[tuple[tuple[int, float, tuple[Any, ...]], RunView]] = []
    rest: tuple[list[RunView], ...] = ([], [], [])
    for view in rows:
        value = order.value(view)
        if isinstance(value, str):
            known.append(((1, 0.0, natural_place(value.lower())), view))
        elif isinstance(value, int | float):
            if math.isnan(value):
                rest[0].append(view)
            else:
                known.append(((0, value, ()), view))
        else:
            rest[2 if value is UNREAD else 1].append(view)
    known.sort(key=lambda pair: pair[0], reverse=order.is_falling != reverse)
    return (*(view for _, view in known), *rest[0], *rest[1], *rest[2])


def is_plain(words: str) -> bool:
    """Whether a filter is words alone, which need no store."""
    return not any(sign in words for sign in ':<>=!"') and not any(
        word.startswith("-") for word in words.split()
    )


def _haystack(view: RunView) -> str:
    states = (view.status, view.shown_status, "died" if view.status == "failed" else "")
    parts = (view.name, view.id, view.experiment, *states, view.host, *view.tags)
    return " ".join(parts).lower()
