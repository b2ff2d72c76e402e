"""`albor runs ls --group-by KEY`: a row for each value of a param, a metric or a column."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from albor_core.cli.common.output import table, when
from albor_core.cli.runs.run_columns import FIELDS, Listing, duration_of, elapsed_s
from albor_core.run.headlines import STORED
from albor_core.run.status import SILENT
from albor_core.run.values.lenient import is_number, real
from albor_core.run.values.quantity import duration, figure, is_finite

if TYPE_CHECKING:
    from albor_core.store.query.group import Band
    from albor_core.store.query.table import RunList
    from albor_core.store.rows.run_row import Param, RunRow

_TIMES: Mapping[str, Callable[[RunRow, Listing], float | None]] = {
    "duration": lambda row, found: duration_of(row, found.words[row.id]),
    "elapsed_s": lambda row, _: elapsed_s(row),
}
_NUMBERS = {
    **{one.name: one.name for one in STORED},
    **{"step": "last_step", "alerts": "alerts_open", "attempts": "attempts"},
}
_TEXTS = {"id": "id", "name": "name", "host": "host", "commit": "git_commit"}
_UNORDERED = ("created", "last", "max_steps")  # of which a mean says nothing
_HOUSE = ("loss", "val_loss", "val_ppl")
_KEYS = {one.name: one.key for one in STORED if one.stat == "last"}
_MOST_DECIMALS = 8


class GroupOrder(NamedTuple):
    """How groups are sorted: by the value of the key if that is `sort`, else by their mean of it;
    `is_descending` is the usual way of a column, which `is_reversed` turns round.
    """

    sort: str | None
    is_descending: bool = False
    is_reversed: bool = False


class ValueGroup(NamedTuple):
    """The runs of one value. `values` has it as it was written; `states` counts the statuses, of
    which `state` is the worst; `bands` has the columns that are numbers, `texts` what the runs have
    in the others. `ranks` are runs of the same jobs that do not count, as in a GroupRow.
    """

    label: str
    values: tuple[Param, ...]
    runs: tuple[str, ...]
    ranks: tuple[str, ...]
    state: str
    states: Mapping[str, int]
    bands: Mapping[str, Band]
    texts: Mapping[str, tuple[str, ...]]


class ValueGroups(NamedTuple):
    """The groups of a list of runs by `key`. `metric` stands for most of the runs; None where they
    log nothing."""

    key: str
    metric: str | None = None
    groups: tuple[ValueGroup, ...] = ()


def empty_groups(key: str | None) -> ValueGroups | None:
    """The groups of no runs, None where nothing is grouped."""
    return None if key is None else ValueGroups(key)


def value_groups(
    reader: RunList, found: Listing, key: str | None, wanted: Sequence[str], order: GroupOrder
) -> ValueGroups | None:
    """The runs of `found` by `key`, with the columns that are wanted, and what stands for the runs
    beside them; None where there is no key.
    """
    if key is None:
        return None
    metric = _standing_metric(found)
    names = [*(wanted or (one for one in _HOUSE if any(getattr(r, one) for r in found.rows)))]
    if metric is not None and metric not in (_KEYS.get(name, name) for name in names):
        names.append(metric)
    if order.sort and order.sort not in (key, *names, *_UNORDERED):
        names.append(order.sort)
    columns = {name: _column(reader, found, name) for name in dict.fromkeys(names) if name != key}
    groups = _groups(found, _column(reader, found, key), columns)
    return ValueGroups(key, metric, _in_order(groups, found, key, order))


def value_table(found: ValueGroups, limit: int | None = None) -> str:
    """The groups as a table for people, each with its worst state; `limit`: see `table`."""
    some = found.groups[0]
    heads = (found.key, "n", "state", *some.bands, *some.texts)
    lines = [
        (
            _name(group),
            str(len(group.runs)),
            _state(group),
            *(band_text(band, name) for name, band in group.bands.items()),
            *(_texts(texts) for texts in group.texts.values()),
        )
        for group in found.groups
    ]
    return table(heads, lines, right=("n", *some.bands), limit=limit)


def grouped_by(found: ValueGroups, total: int) -> dict[str, Any]:
    """The groups as a part of the document; `total`: how many there are without a limit."""
    groups = [
        {**one._asdict(), "bands": {name: vars(band) for name, band in one.bands.items()}}
        for one in found.groups
    ]
    return {"key": found.key, "metric": found.metric, "total": total, "groups": groups}


def band_text(band: Band, name: str = "") -> str:
    """Mean and standard deviation, with as many decimals as the deviation asks for."""
    diverged = f" ({band.nonfinite} not finite)" if band.nonfinite else ""
    mean, std = band.mean, band.std
    if not is_finite(mean) or (std is not None and not is_finite(std)):
        return f"{'-' if mean is None else figure(mean)}{diverged}"
    if name in _TIMES:
        return duration(mean) + ("" if std is None else f" +- {duration(std)}") + diverged
    if not std:
        return figure(mean, _KEYS.get(name, name)) + ("" if std is None else " +- 0") + diverged
    decimals = max(0, 1 - math.floor(math.log10(std)))
    if decimals > _MOST_DECIMALS or abs(mean) >= 10**_MOST_DECIMALS:
        return f"{mean:.5g} +- {std:.2g}{diverged}"
    return f"{mean:,.{decimals}f} +- {std:,.{decimals}f}{diverged}"


def _standing_metric(found: Listing) -> str | None:
    """What stands first for most of the runs, of what says which way it is better."""
    leads = Counter(
        next((one.name for one in mains if one.better is not None), mains[0].name)
        for mains in found.mains.values()
        if mains
    )
    return leads.most_common(1)[0][0] if leads else None


def _column(reader: RunList, found: Listing, name: str) -> Mapping[str, Param]:
    """By run its value of a column, a metric or a param."""
    from albor_core.store.query.listing import parse_column

    if name in FIELDS and name != "seed":  # which may be a param
        return {row.id: _field(name, row, found) for row in found.rows}
    asked = reader.cells([row.id for row in found.rows], [parse_column(name)])
    if name == "seed":  # of which a mean says nothing
        return {run: None if value is None else str(value) for run, (value,) in asked.items()}
    return {run: value for run, (value,) in asked.items()}


def _field(name: str, row: RunRow, found: Listing) -> Param:
    from albor_core.feed.view.run_status import shown_word

    if name in _TIMES:
        return _TIMES[name](row, found)
    if name in _NUMBERS:
        return getattr(row, _NUMBERS[name])  # type: ignore[no-any-return]
    if name in ("created", "age"):  # to the second each run would be a group of its own
        text = when(row.created, "%Y-%m-%d")
    elif name == "metric":
        text = found.mains[row.id][0].name if found.mains.get(row.id) else "-"
    elif name == "status":  # for how long a run is silent makes no group
        text = SILENT if found.silent_s.get(row.id) is not None else shown_word(found.words[row.id])
    elif name in _TEXTS:
        value = getattr(row, _TEXTS[name])
        return None if value in (None, "") else str(value)
    else:
        text = FIELDS[name][1](row, found)
    return None if text in ("-", "") else text


def _groups(
    found: Listing, values: Mapping[str, Param], columns: Mapping[str, Mapping[str, Param]]
) -> list[ValueGroup]:
    from albor_core.feed.workspace.groups import group_label, group_runs
    from albor_core.store.query.group import band

    ranks = {run for group in found.groups or () for run in group.ranks}
    numeric = {name for name, cells in columns.items() if any(map(is_number, cells.values()))}
    made = []
    for one in group_runs([row.id for row in found.rows], values, {}, found.words):
        runs = tuple(run for run in one.runs if run not in ranks)

        def of(name: str, runs: Sequence[str] = runs) -> list[Param]:
            return [columns[name].get(run) for run in runs]

        made.append(
            ValueGroup(
                one.label,
                tuple(dict.fromkeys(values.get(run) for run in one.runs)),
                runs,
                tuple(run for run in one.runs if run in ranks),
                one.state,
                Counter(found.words[run] for run in one.runs),
                {
                    name: band(real(value) if is_number(value) else None for value in of(name))
                    for name in columns
                    if name in numeric
                },
                {
                    name: tuple(dict.fromkeys(group_label(v) for v in of(name) if v is not None))
                    for name in columns
                    if name not in numeric
                },
            )
        )
    return made


def _in_order(
    groups: Sequence[ValueGroup], found: Listing, key: str, order: GroupOrder
) -> tuple[ValueGroup, ...]:
    """The groups in order; those without a value, or without a mean, last whichever way it goes."""
    from albor_core.feed.workspace.groups import MISSING

    if order.sort == key:
        known = [one for one in groups if one.label != MISSING]
        missing = [one for one in groups if one.label == MISSING]
        return (*known[:: -1 if order.is_reversed else 1], *missing)
    way = -1 if order.is_descending != order.is_reversed else 1
    first = {row.id: index for index, row in enumerate(found.rows)}

    def place(one: ValueGroup) -> tuple[bool, float]:
        if order.sort is None or order.sort not in one.bands:  # a text: the runs are in that order
            return not one.runs, min(first[run] for run in (*one.runs, *one.ranks))
        mean = one.bands[order.sort].mean
        return mean is None, way * (mean or 0.0)

    return tuple(sorted(groups, key=place))


def _name(group: ValueGroup) -> str:
    return f"{group.label} (and {len(group.ranks)} of ranks)" if group.ranks else group.label


def _state(group: ValueGroup) -> str:
    """The worst state, and of how many runs where not all have it."""
    from albor_core.feed.view.run_status import shown_word

    word, total = shown_word(group.state), sum(group.states.values())
    count = group.states.get(group.state, 0)
    return word if count == total else f"{word} ({count} of {total})"


def _texts(texts: Sequence[str]) -> str:
    return " ".join(texts[:3]) + (f" and {len(texts) - 3} more" if len(texts) > 3 else "") or "-"
