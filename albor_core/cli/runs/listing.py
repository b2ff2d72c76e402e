"""`albor runs ls`: the run table, filtered, sorted, with the columns one likes, or in groups."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from albor_core.cli.common.count import Count
from albor_core.cli.common.goals import goal_option
from albor_core.cli.common.lookup import db_option, open_table, unlisted
from albor_core.cli.common.output import (
    clean,
    emit,
    json_option,
    number,
    say,
    table,
    talk,
    when,
)
from albor_core.run.errors import UsageError
from albor_core.run.headlines import STORED, Headline
from albor_core.run.values.quantity import age, duration

if TYPE_CHECKING:
    from albor_core.feed.runs.store_lag import Arrears
    from albor_core.run.values.directions import Direction
    from albor_core.store.query.group import Band, GroupRow
    from albor_core.store.query.listing import Column
    from albor_core.store.query.table import RunList
    from albor_core.store.query.terms import Filter
    from albor_core.store.rows.run_row import Param, RunRow

_NEGATED = re.compile(r"""-(?=[^-\s:<>=!"',]+[:<>=!]|["'])""")
_MOST = (1 << 63) - 1  # what SQLite takes
_CATCH_UP_S = 5.0  # for what ended runs wrote last and nobody indexed
_ASCENDING = tuple(one.name for one in STORED if one.better == "min")
_SPECS = {"tokens": ",.0f", "loss": ".4f", "ratio": ",.2f", "rate": ",.0f", "share": ".1%"}
_TEXT_SORTS = ("id", "name", "experiment", "status", "host", "kind")


class _FilterCommand(click.Command):
    """Takes `-tag:x` as a term of the filter instead of as an option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        end = args.index("--") if "--" in args else len(args)
        said = [_NEGATED.sub("!", word, count=1) for word in args[:end]]
        return super().parse_args(ctx, said + args[end:])


class Listing(NamedTuple):
    """What is shown: rows in order, how many there are, and what the rows themselves do not hold,
    by run: the present word, the parent, the values of `extra`, how long it has been silent.
    """

    rows: tuple[RunRow, ...]
    total: int
    words: Mapping[str, str]
    parents: Mapping[str, str]
    extra: tuple[str, ...]
    values: Mapping[str, Sequence[Param]]
    groups: tuple[GroupRow, ...] | None
    silent_s: Mapping[str, float | None] = {}
    arrears: Mapping[str, Arrears] = {}
    """Of ended runs, those that the filter leaves out too: with all its lines one may belong here.
    """


@click.command(cls=_FilterCommand)
@click.argument("terms", nargs=-1, metavar="[FILTER]...")
@click.option(
    "--limit", metavar="N", default=100, type=Count(1, _MOST), show_default=True,
    help="Show at most N runs or groups.",
)  # fmt: skip
@click.option(
    "--sort", default="created", show_default=True,
    help="A column, metric or param; newest, best, or without a known direction largest first.",
)  # fmt: skip
@goal_option
@click.option("--reverse", is_flag=True, help="Reverse the order.")
@click.option("--columns", help="Comma-separated: id,status,loss,lr,val/loss:min.")
@click.option("--group", "grouped", is_flag=True, help="Group runs of one config: mean and band.")
@click.option("--experiment", help="Show only runs of this experiment.")
@click.option("--name", help="Show only runs whose name or id contains this.")
@click.option("--global", "everywhere", is_flag=True, help="Use the global store (the default).")
@db_option
@json_option
def ls(
    terms: tuple[str, ...],
    limit: int,
    sort: str,
    goals: tuple[str, ...],
    reverse: bool,
    columns: str | None,
    grouped: bool,
    experiment: str | None,
    name: str | None,
    everywhere: bool,
    db: str | None,
    as_json: bool,
) -> None:
    """List runs, pinned ones first, then the newest, with what each is doing now.

    \b
    A FILTER is one or more terms, all of which must hold:
      status:running,failed     running paused restarting unguarded stalled queued
                                completed stopped failed lost unknown, or active, ended
      tag:a experiment:b host:c kind:train   exact, or the beginning: host:gpu*
      name:part id:start commit:start parent:RUN
      train/loss<3 val/loss:min<=2.5         a metric: last, best, min, max or count
      lr>=1e-4 optimizer.name:adamw step>0   a param by its end, a column of the table
      since:2d before:2026-01-31             30m 12h 2d 1w, or a time in UTC
      has:nan,alert,note,tag,artifact,params,parent,end      pinned
      words "in quotes"                      in names, notes, tags and params
    `-` or `!` before a term: not. Quote < and > for the shell.
    """
    from albor_core.run.values.directions import parse_goals

    where, ways = _filter(" ".join(terms)), parse_goals(goals)
    wanted = [word.strip() for word in (columns or "").split(",") if word.strip()]
    reader = open_table(db)
    found, absent = Listing((), 0, {}, {}, (), {}, () if grouped else None), 0
    is_whole = not (terms or experiment or name)
    if reader is not None:
        with reader:
            absent = unlisted(reader) if is_whole and db is None else 0
            descending = _is_descending(reader, sort, ways, experiment)
            asked = {"limit": limit, "sort": sort, "descending": descending != reverse}
            asked |= {"experiment": experiment, "name": name}
            make = _current if db is None else _listing
            found = make(reader, where, wanted, asked, grouped=grouped)
    if as_json:
        emit(_document(found))
    else:
        _say_listing(found, wanted, is_whole=is_whole, is_behind=absent > 0)
    if absent:
        talk(f"{absent:,} registered run(s) are not in the store; next: albor db rebuild")
    for line in _shortfalls(found.arrears):
        talk(line)


def _say_listing(found: Listing, wanted: Sequence[str], *, is_whole: bool, is_behind: bool) -> None:
    if not found.rows:
        start = "no runs yet; start one with: albor demo"
        say("no run matches" if not is_whole else "no runs in the store" if is_behind else start)
    elif found.groups is not None:
        say(_group_table(found.groups, found.extra))
    else:
        say(_run_table(found, wanted or _default(found)))
        if found.total > len(found.rows):
            talk(f"{len(found.rows)} of {found.total} runs; more with --limit")


def _current(
    reader: RunList,
    where: Filter,
    wanted: Sequence[str],
    asked: dict[str, Any],
    *,
    grouped: bool,
) -> Listing:
    """The listing once ended runs have all their lines in the store, as far as that can be had."""
    from albor_core.feed.runs.store_lag import find_arrears, index_arrears

    def late(shown: Collection[str]) -> list[str]:
        return [run for run, one in find_arrears(reader, shown).items() if one.unindexed_bytes]

    index_arrears(reader, late(()), timeout_s=_CATCH_UP_S)
    found = _listing(reader, where, wanted, dict(asked), grouped=grouped)
    shown = [row.id for row in found.rows]
    if again := late(shown):
        index_arrears(reader, again, timeout_s=_CATCH_UP_S)
        found = _listing(reader, where, wanted, dict(asked), grouped=grouped)
    return found._replace(arrears=find_arrears(reader, shown))


def _shortfalls(arrears: Mapping[str, Arrears]) -> Iterator[str]:
    """A sentence for each kind of thing that the figures of ended runs are short of."""
    late = {run: one.unindexed_bytes for run, one in arrears.items() if one.unindexed_bytes}
    if late:
        yield (
            f"what is shown of {_some(late)} may be a part: {sum(late.values()):,} bytes of journal"
            " are not in the store yet; next: albor db rebuild"
        )
    lost = {run: one.lines_lost for run, one in arrears.items() if one.lines_lost}
    if lost:
        yield f"{sum(lost.values()):,} line(s) that {_some(lost)} logged could not be written"


def _some(runs: Collection[str]) -> str:
    names = [clean(run) for run in runs]
    return " ".join(names[:3]) + (f" and {len(names) - 3:,} more" if len(names) > 3 else "")


def _filter(text: str) -> Filter:
    from albor_core.store.query.terms import Filter

    if not text.strip():
        return Filter()
    from albor_core.store.query.filter import parse_filter

    return parse_filter(text)


def _is_descending(
    reader: RunList, sort: str, ways: Mapping[str, Direction], experiment: str | None
) -> bool:
    """Newest and largest first; names from A, and metrics from the best where that is known."""
    from albor_core.run.values.directions import direction
    from albor_core.store.query.listing import SORT_KEYS, parse_column

    if sort in SORT_KEYS:
        return sort not in (*_TEXT_SORTS, *_ASCENDING)
    metric, stat = parse_column(sort or "-")
    if stat == "count":
        return True
    if metric not in ways and (declared := reader.goal(metric, experiment)) is not None:
        ways = {**ways, metric: declared}
    return direction(metric, ways) != "min"


def _listing(
    reader: RunList, where: Filter, wanted: Sequence[str], asked: dict[str, Any], *, grouped: bool
) -> Listing:
    from albor_core.feed.runs.list_states import present, words_of_unended

    if where.terms:
        from albor_core.store.query.names import Unknown

        unknown = Unknown(where)
        unknown.look(reader)
        unknown.refuse()
    words = words_of_unended(reader.unended()) if where.needs_status else {}
    asked |= {"where": where, "statuses": words, "pinned_first": True}
    limit = asked["limit"]
    rows = reader.runs(**{**asked, "limit": None} if grouped else asked)
    columns = _extra(wanted)
    groups = _groups(reader, rows, columns, limit) if grouped else None
    total = len(rows)
    if groups is not None:
        members = {run for group in groups for run in group.runs}
        rows = tuple(row for row in rows if row.id in members)
    elif total == limit:
        total = max(total, reader.count(where, words))
    ids = [row.id for row in rows]
    cells = reader.cells(ids, columns)
    by_column = zip(columns, *cells.values(), strict=True)
    _refuse_unknown(reader, [column.name for column, *found in by_column if not {*found} - {None}])
    now = {row.id: present(row) for row in rows}
    return Listing(
        tuple(row for _, row in now.values()),
        total,
        {run: words.get(run) or status.word for run, (status, _) in now.items()},
        reader.parents(ids),
        tuple(":".join(part for part in column if part) for column in columns),
        cells,
        groups,
        {run: status.silent_s for run, (status, _) in now.items()},
    )


def _groups(
    reader: RunList, rows: Sequence[RunRow], columns: Sequence[Column], limit: int
) -> tuple[GroupRow, ...]:
    from albor_core.store.query.group import groups_of

    return groups_of(reader, rows, columns)[: max(limit, 0)]


def _extra(wanted: Sequence[str]) -> list[Column]:
    """The columns that are metrics or params."""
    from albor_core.store.query.listing import parse_column

    return [parse_column(word) for word in wanted if word not in _FIELDS]


def _refuse_unknown(reader: RunList, names: Sequence[str]) -> None:
    """Raises UsageError where a column names what no run of a store with runs has."""
    unknown = next((name for name in names if not reader.is_known(name)), None)
    if unknown is None or reader.is_empty():
        return
    from albor_core.store.query.names import nearest

    close = nearest(unknown, {*reader.measured(), *_FIELDS})
    raise UsageError(
        f"cannot show column {unknown!r}: no run has such a metric or param{close}",
        hint="albor runs show RUN has the metrics and params of a run",
    )


def _document(found: Listing) -> dict[str, Any]:
    from albor_core.feed.runs.store_lag import Arrears

    document: dict[str, Any] = {
        "schema": "albor.runs.ls/1",
        "total": found.total,
        "runs": [
            {
                **vars(row),
                "status": found.words[row.id],
                "silent_s": found.silent_s.get(row.id),
                "parent": found.parents.get(row.id),
                **found.arrears.get(row.id, Arrears())._asdict(),
                "values": dict(zip(found.extra, found.values.get(row.id, ()), strict=False)),
            }
            for row in found.rows
        ],
    }
    if found.groups is not None:
        document["groups"] = [
            {**vars(group), "bands": {name: vars(band) for name, band in group.bands.items()}}
            for group in found.groups
        ]
    return document


_Cell = Callable[["RunRow", Listing], str]


def _figure(one: Headline) -> _Cell:
    return lambda row, _: number(getattr(row, one.name), _SPECS[one.unit])


_FIELDS: Mapping[str, tuple[str, _Cell]] = {  # column: its head, its text
    "id": ("run", lambda row, _: f"{row.id} *" if row.pinned else row.id),
    "name": ("name", lambda row, _: row.name),
    "experiment": ("experiment", lambda row, _: row.experiment),
    "kind": ("kind", lambda row, _: row.kind),
    "status": ("status", lambda row, found: _status(row, found)),
    "created": ("created", lambda row, _: when(row.created)),
    "age": ("age", lambda row, _: duration(None if row.created is None else _age(row.created))),
    "elapsed_s": ("elapsed", lambda row, _: duration(_elapsed(row))),
    "step": ("step", lambda row, found: _step(row, found)),
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
_DEFAULT = (
    *("id", "status", "step", "loss", "val_loss", "val_ppl", "tokens", "tokens_per_s"),
    "alerts",
)


def _default(found: Listing) -> Sequence[str]:
    """With the names where they say more than the ids."""
    if all(row.name in ("", row.id) for row in found.rows):
        return _DEFAULT
    return ("id", "name", *_DEFAULT[1:])


_LEFT = ("id", "name", "experiment", "kind", "status", "created", "host", "commit", "tags",
         "parent", "path")  # fmt: skip


def _run_table(found: Listing, wanted: Sequence[str]) -> str:
    heads = [_FIELDS[word][0] if word in _FIELDS else word for word in wanted]
    right = [head for head, word in zip(heads, wanted, strict=True) if word not in _LEFT]
    lines = []
    for row in found.rows:
        extra = iter(found.values.get(row.id, ()))
        lines.append(
            [
                _FIELDS[w][1](row, found) if w in _FIELDS else _text(next(extra, None))
                for w in wanted
            ]
        )
    return table(heads, lines, right=right)


def _group_table(groups: Sequence[GroupRow], extra: Sequence[str]) -> str:
    names = ["loss", "val_loss", "val_ppl", *extra]
    lines = [
        (
            f"{group.name} *" if group.pinned else group.name,
            group.experiment,
            str(len(group.runs)),
            *(_band_text(group.bands[name]) for name in names),
        )
        for group in groups
    ]
    heads = ("runs of one config", "experiment", "n", *(name.replace("_", " ") for name in names))
    return table(heads, lines, right=heads[2:])


def _band_text(band: Band) -> str:
    diverged = f" ({band.nonfinite} not finite)" if band.nonfinite else ""
    if band.mean is None:
        return f"-{diverged}"
    return f"{band.mean:.4g}" + (f" +- {band.std:.2g}" if band.std else "") + diverged


def _status(row: RunRow, found: Listing) -> str:
    """The word, or that it is silent: `silent 2m`."""
    silent_s = found.silent_s.get(row.id)
    return found.words[row.id] if silent_s is None else f"silent {age(silent_s)}"


def _step(row: RunRow, found: Listing) -> str:
    """How far it is; a life that has come to no step yet is at none that anybody knows."""
    is_starting = row.attempts > 1 and found.words[row.id] in ("running", "unguarded")
    has_none = row.last_step is None and (is_starting or not row.max_steps)
    step = "-" if has_none else str(row.last_step or 0)
    return f"{step}/{row.max_steps}" if row.max_steps else step


def _age(wall: float) -> float:
    return max(0.0, time.time() - wall)


def _elapsed(row: RunRow) -> float | None:
    known = row.last_wall is not None and row.first_wall is not None
    return row.last_wall - row.first_wall if known else None  # type: ignore[operator]


def _text(value: Param) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    return "-" if value is None else str(value)
