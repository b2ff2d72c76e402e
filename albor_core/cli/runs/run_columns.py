"""The columns of `albor runs ls`: what each says of a run, and which are shown where none are asked
for.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from albor_core.cli.common.output import cell_width, metric_text, number, table, when
from albor_core.run.headlines import STORED, Headline
from albor_core.run.values.main_metrics import MainMetric, beside_columns
from albor_core.run.values.quantity import duration

if TYPE_CHECKING:
    from albor_core.feed.runs.store_lag import Arrears
    from albor_core.store.query.group import Band, GroupRow
    from albor_core.store.rows.run_row import Param, RunRow

_SPECS = {"tokens": ",.0f", "loss": ".4f", "ratio": ",.2f", "rate": ",.0f", "share": ".1%"}


class Listing(NamedTuple):
    """What is shown: rows in order, how many there are, and what the rows themselves do not hold,
    by run: the present word, the parent, the values of `extra`, how long it has been silent, the
    metrics that stand for it.
    """

    rows: tuple[RunRow, ...]
    total: int
    words: Mapping[str, str]
    parents: Mapping[str, str]
    extra: tuple[str, ...]
    values: Mapping[str, Sequence[Param]]
    groups: tuple[GroupRow, ...] | None
    silent_s: Mapping[str, float | None] = {}
    mains: Mapping[str, tuple[MainMetric, ...]] = {}
    arrears: Mapping[str, Arrears] = {}
    """Of ended runs, those that the filter leaves out too: with all its lines one may belong here.
    """


_Cell = Callable[["RunRow", Listing], str]


def _figure(one: Headline) -> _Cell:
    return lambda row, _: number(getattr(row, one.name), _SPECS[one.unit])


FIELDS: Mapping[str, tuple[str, _Cell]] = {  # column: its head, its text
    "id": ("run", lambda row, _: f"{row.id} *" if row.pinned else row.id),
    "name": ("name", lambda row, _: row.name),
    "experiment": ("experiment", lambda row, _: row.experiment),
    "kind": ("kind", lambda row, _: row.kind),
    "status": ("status", lambda row, found: _status(row, found)),
    "created": ("created", lambda row, _: when(row.created)),
    "age": ("age", lambda row, _: duration(None if row.created is None else _age(row.created))),
    "elapsed_s": ("elapsed", lambda row, _: duration(elapsed_s(row))),
    "duration": ("duration", lambda row, found: duration(duration_of(row, found.words[row.id]))),
    "step": ("step", lambda row, found: _step(row, found)),
    "metric": ("metric", lambda row, found: _main(row, found, ())),
    **{one.name: (one.title, _figure(one)) for one in STORED},
    "alerts": ("alerts", lambda row, _: str(row.alerts_open or "-")),
    "attempts": ("attempts", lambda row, _: str(row.attempts)),
    "seed": ("seed", lambda row, _: "-" if row.seed is None else str(row.seed)),
    "host": ("host", lambda row, _: row.host or "-"),
    "commit": ("commit", lambda row, _: (row.git_commit or "-")[:10]),
    "tags": ("tags", lambda row, _: " ".join(row.tags) or "-"),
    "parent": ("parent", lambda row, found: found.parents.get(row.id, "-")),
    "path": ("path", lambda row, _: row.path),
}
_HOUSE = ("loss", "val_loss", "val_ppl", "val_bpb", "tokens", "tokens_per_s")
_LEFT = ("id", "name", "experiment", "kind", "status", "created", "host", "commit", "tags",
         "parent", "path", "metric")  # fmt: skip


_DEFAULT = ("id", "name", "status", "step", "duration", "metric", *_HOUSE, "alerts")
# what a narrow terminal does without, the first one first; the metric says what a loss said
_LUXURIES = ("duration", "val_ppl", "val_bpb", "tokens", "tokens_per_s", "name", "val_loss", "loss")


def default_table(found: Listing, limit: int | None) -> str:
    """The table where no columns are asked for: those that say something, as far as they fit into
    `limit` cells.
    """
    wanted = _telling(found)
    for luxury in _LUXURIES:
        made = run_table(found, wanted)
        if limit is None or max(map(cell_width, made.splitlines())) <= limit:
            return made
        if luxury == "loss" and "metric" not in wanted:
            break
        wanted = [word for word in wanted if word != luxury]
    return run_table(found, wanted, limit)


def _telling(found: Listing) -> list[str]:
    """Names are shown where they say more than the ids, a run's own metrics where they say more
    than the columns of the house, of which those that no run has are left out.
    """
    house = [one for one in _HOUSE if any(getattr(row, one) is not None for row in found.rows)]
    shown = _keys_of(house)
    others = (beside_columns(found.mains.get(row.id, ()), shown) for row in found.rows)
    dropped = {*_HOUSE} - {*house}
    dropped |= set() if any(row.name not in ("", row.id) for row in found.rows) else {"name"}
    dropped |= set() if any(one is not None for one in others) else {"metric"}
    took = (duration_of(row, found.words[row.id]) for row in found.rows)
    dropped |= set() if any(one is not None for one in took) else {"duration"}
    return [word for word in _DEFAULT if word not in dropped]


def _keys_of(columns: Sequence[str]) -> tuple[str, ...]:
    """The metrics that columns say."""
    return tuple(one.key for one in STORED if one.name in columns)


def run_table(found: Listing, wanted: Sequence[str], limit: int | None = None) -> str:
    heads = [FIELDS[word][0] if word in FIELDS else word for word in wanted]
    right = [head for head, word in zip(heads, wanted, strict=True) if word not in _LEFT]
    shown = _keys_of(wanted)
    lines = []
    for row in found.rows:
        extra = iter(found.values.get(row.id, ()))
        lines.append(
            [
                _main(row, found, shown)
                if w == "metric"
                else FIELDS[w][1](row, found)
                if w in FIELDS
                else _text(next(extra, None))
                for w in wanted
            ]
        )
    return table(heads, lines, right=right, limit=limit)


def group_table(groups: Sequence[GroupRow], extra: Sequence[str]) -> str:
    names = ["loss", "val_loss", "val_ppl", *extra]
    lines = [
        (
            _group_name(group),
            group.experiment,
            str(len(group.runs)),
            *(_band_text(group.bands[name]) for name in names),
        )
        for group in groups
    ]
    heads = ("runs of one config", "experiment", "n", *(name.replace("_", " ") for name in names))
    return table(heads, lines, right=heads[2:])


def _group_name(group: GroupRow) -> str:
    pin = " *" if group.pinned else ""
    return f"{group.name}{pin}" + (f" (and {len(group.ranks)} of ranks)" if group.ranks else "")


def _band_text(band: Band) -> str:
    diverged = f" ({band.nonfinite} not finite)" if band.nonfinite else ""
    if band.mean is None:
        return f"-{diverged}"
    return f"{band.mean:.4g}" + (f" +- {band.std:.2g}" if band.std else "") + diverged


def _main(row: RunRow, found: Listing, shown: Sequence[str]) -> str:
    """The first of its main metrics that no column of `shown` metrics says."""
    one = beside_columns(found.mains.get(row.id, ()), shown)
    return "-" if one is None else metric_text(one)


def _status(row: RunRow, found: Listing) -> str:
    """The word, or that it is silent: `silent 2m`."""
    from albor_core.feed.view.run_status import shown_word

    return shown_word(found.words[row.id], found.silent_s.get(row.id))


def _step(row: RunRow, found: Listing) -> str:
    """How far it is; an attempt that has come to no step yet is at none that anybody knows."""
    is_starting = row.attempts > 1 and found.words[row.id] in ("running", "unguarded")
    has_none = row.last_step is None and (is_starting or not row.max_steps)
    step = "-" if has_none else str(row.last_step or 0)
    return f"{step}/{row.max_steps}" if row.max_steps else step


def _age(wall: float) -> float:
    return max(0.0, time.time() - wall)


def duration_of(row: RunRow, word: str) -> float | None:
    """Seconds from its beginning to its end, now, or its last news; of an import, between its
    values. None before it.
    """
    if word == "queued":
        return None
    if row.kind == "imported":
        return elapsed_s(row)
    is_over = row.ended_status is not None or word in ("lost", "unknown")
    end = (row.ended_wall or row.last_wall) if is_over else time.time()
    return None if row.created is None or end is None else max(0.0, end - row.created)


def elapsed_s(row: RunRow) -> float | None:
    """Seconds between its first value and its last."""
    known = row.last_wall is not None and row.first_wall is not None
    return row.last_wall - row.first_wall if known else None  # type: ignore[operator]


def _text(value: Param) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, bool):
        return str(value).lower()
    return "-" if value is None else str(value)
