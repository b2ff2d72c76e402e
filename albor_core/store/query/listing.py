"""The run table: which runs, in which order, with which columns.

Ten thousand rows must be ready before a person notices, so a row is made without `__init__` and
only those asked for are made at all. Unknown values sort last, NaN just before them.
"""

from __future__ import annotations

import json
import math
import os
import sqlite3
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from typing import Any, NamedTuple

from albor_core.run.errors import UsageError
from albor_core.run.headlines import HOUSE_NAMES, STORED
from albor_core.run.home.registry import PlacesNow
from albor_core.run.values.flatten import nested
from albor_core.run.values.lenient import whole_of
from albor_core.store.file.crowded import crowded, logged_without_room, without_room
from albor_core.store.file.goals import goals_of_metric
from albor_core.store.file.paths import global_store
from albor_core.store.file.search import find, param_keys, param_lists
from albor_core.store.query.conditions import NUMBERS, Lookups, Sql, condition, figure, stored
from albor_core.store.query.terms import MAX_CHARS, STATS, Filter
from albor_core.store.rows.run_row import Param, RunRow

SORT_KEYS: Mapping[str, str] = {
    **NUMBERS,
    "id": "r.run",
    "name": "r.name COLLATE NOCASE",
    "experiment": "(SELECT name FROM experiments WHERE id = r.experiment_id) COLLATE NOCASE",
    "status": "r.ended_status",
    "host": "r.host",
    "kind": "r.kind",
}
_TEXT_SORTS = ("id", "name", "experiment", "status", "host", "kind")
ASCENDING = (*_TEXT_SORTS, *(one.name for one in STORED if one.better == "min"))
MAX_COLUMNS = 64


def _as_text(*columns: str) -> str:
    """Columns of texts, in which a store may hold a blob all the same."""
    return ", ".join(f"CAST({column} AS TEXT)" for column in columns)


_SOURCES: Mapping[str, str] = {
    **{one.name: stored(one) for one in STORED},
    "id": "r.run",
    "experiment": "e.name",
    "tags": "r.id",
}


def _column(field: str) -> str:
    """What a field of RunRow is read from; tags are completed, in the place of the row's id."""
    source = _SOURCES.get(field, f"r.{field}")
    return _as_text(source) if field in _TEXTS else source


_FIELDS = tuple(field.name for field in fields(RunRow))
_TEXTS = (
    *("id", "name", "experiment", "kind", "path", "host"),
    *("git_commit", "ended_status", "ended_reason"),
)
_FROM = " FROM runs r JOIN experiments e ON e.id = r.experiment_id"
RUN = f"SELECT {', '.join(map(_column, _FIELDS))}{_FROM}"
_DIRTY, _PINNED, _TAGS = map(_FIELDS.index, ("git_dirty", "pinned", "tags"))
_ID, _PATH, _CREATED = map(_FIELDS.index, ("id", "path", "created"))
_FIGURES = tuple(_FIELDS.index(one.name) for one in STORED)
_MAX_MARKS = 100


TEXT_COLUMNS = {  # texts that are columns where no metric or param is called so
    "group": Sql("json_extract(r.facts, '$.group')"),
    "job_type": Sql("json_extract(r.facts, '$.job_type')"),
    "notes": Sql(
        "(SELECT group_concat(n.text, '; ') FROM"
        " (SELECT text FROM notes WHERE run_id = r.id ORDER BY at) n)"
    ),
}


class ListColumn(NamedTuple):
    """A metric or param as a column: `lr`, `val/loss`, or with a stat `val/loss:min`."""

    name: str
    stat: str = ""


def parse_column(text: str) -> ListColumn:
    """A column's name as people write it. Raises UsageError for an empty or endless one."""
    name, colon, stat = text.rpartition(":")
    made = ListColumn(name, stat) if colon and stat in STATS else ListColumn(text)
    if not made.name.strip() or len(text) > MAX_CHARS:
        raise UsageError(
            f"{text[:40]!r} is not a column", hint="--columns id,status,loss,val/loss:min"
        )
    return made


class ListQuery(NamedTuple):
    """What is asked of the run table. `statuses`: see conditions.condition; without them no filter
    by status can be asked.
    """

    filter: Filter = Filter()
    statuses: Mapping[str, str] | None = None
    sort: str = "created"
    descending: bool = True
    pinned_first: bool = False
    limit: int | None = None


def rows_of(db: sqlite3.Connection, question: ListQuery) -> list[RunRow]:
    """The rows, in order. Raises UsageError for an unknown sort key."""
    # sorting small rows first takes a fifth of the time of sorting whole ones
    order = _in_order(db, question, "r.id")
    chosen = " WHERE r.id IN (SELECT value FROM json_each(?))"
    found = {row[-1]: row for row in db.execute(RUN + chosen, (json.dumps(order),))}
    return with_tags(db, [found[number] for number in order])


def ids_of(db: sqlite3.Connection, question: ListQuery) -> list[str]:
    """The ids of the rows, in order. Raises UsageError for an unknown sort key."""
    return _in_order(db, question, _as_text("r.run"))


def _in_order(db: sqlite3.Connection, question: ListQuery, column: str) -> list[Any]:
    where, by = _where(db, question), _order(db, question.sort)
    way = "DESC" if question.descending else "ASC"
    pinned = "r.pinned DESC, " if question.pinned_first else ""
    limit = -1 if question.limit is None else max(question.limit, 0)
    rows = db.execute(
        f"SELECT {column}, {by.text} AS x FROM runs r WHERE {where.text}"
        f" ORDER BY {pinned}x IS NULL, x = 'nan', x {way}, r.run {way} LIMIT ?",
        (*by.values, *where.values, limit),
    )
    return [found for found, _ in rows]


def by_id(db: sqlite3.Connection, runs: Collection[str]) -> list[RunRow]:
    """The rows of these runs, of those that there are, in no order."""
    chosen = " WHERE r.run IN (SELECT value FROM json_each(?))"
    return with_tags(db, db.execute(RUN + chosen, (json.dumps([*runs]),)).fetchall())


def outstanding(db: sqlite3.Connection, limit: int) -> list[str]:
    """The newest runs that are pinned or have no recorded end."""
    rows = db.execute(
        f"SELECT {_as_text('run')} FROM runs WHERE pinned = 1 OR ended_status IS NULL"
        " ORDER BY created DESC LIMIT ?",
        (limit,),
    )
    return [run for (run,) in rows]


def ids(db: sqlite3.Connection, question: ListQuery) -> frozenset[str]:
    """The runs that fulfil the filter, whatever their order and number."""
    where = _where(db, question)
    rows = db.execute(f"SELECT r.run FROM runs r WHERE {where.text}", where.values)
    return frozenset(run for (run,) in rows)


def pointers(db: sqlite3.Connection) -> frozenset[str]:
    """`ID.json` of every run; joined by what no file name holds, which is faster than rows."""
    (names,) = db.execute("SELECT group_concat(run || '.json', '/') FROM runs").fetchone()
    return frozenset((names or "").split("/"))


def count(db: sqlite3.Connection, question: ListQuery) -> int:
    """How many runs fulfil the filter."""
    where = _where(db, question)
    row = db.execute(f"SELECT count(*) FROM runs r WHERE {where.text}", where.values).fetchone()
    return int(row[0])


def names(db: sqlite3.Connection) -> list[tuple[str, str, str]]:
    """Id, name and path of every run."""
    return db.execute(f"SELECT {_as_text('run', 'name', 'path')} FROM runs ORDER BY id").fetchall()


def _places(db: sqlite3.Connection) -> PlacesNow:
    file = db.execute("PRAGMA database_list").fetchone()[2]
    try:
        return PlacesNow(is_ours=os.path.samefile(file, global_store()))  # noqa: PTH121
    except OSError:
        return PlacesNow(is_ours=False)


def unended(db: sqlite3.Connection) -> list[tuple[str, str]]:
    """Id and path of the runs without a recorded end: some may be at work."""
    places = _places(db)
    rows = db.execute(
        f"SELECT {_as_text('run', 'path')}, created FROM runs WHERE ended_status IS NULL"
    )
    return [(run, places.of(run, path, created)) for run, path, created in rows]


def indexed(
    db: sqlite3.Connection, shown: Collection[str]
) -> list[tuple[str, str, int, int, str | None]]:
    """Id, path, byte of the journal that its rows end at, whether it has ended, and facts that
    tell of lost lines, of the runs in `shown` and of those without a recorded end.
    """
    ids, places = json.dumps(list(shown)), _places(db)
    rows = db.execute(
        f"SELECT {_as_text('r.run', 'r.path')}, r.created, coalesce(j.offset, 0),"
        " r.ended_status IS NOT NULL,"
        " CASE WHEN instr(r.facts, '\"lines_lost\"') THEN r.facts END"
        " FROM runs r LEFT JOIN journal j ON j.run_id = r.id AND j.file = 'journal'"
        " WHERE r.ended_status IS NULL OR r.run IN (SELECT value FROM json_each(?))",
        (ids,),
    )
    return [(run, places.of(run, path, when), *rest) for run, path, when, *rest in rows]


def losses(db: sqlite3.Connection) -> dict[str, tuple[int, int]]:
    """By run, the counts of lost lines and of lost console bytes in its facts."""
    columns = _as_text("run", "facts")
    rows = db.execute(f"SELECT {columns} FROM runs WHERE instr(facts, '_lost\"')")
    found = {
        run: (_count_of(facts, "lines_lost"), _count_of(facts, "console_bytes_lost"))
        for run, facts in rows
    }
    return {run: counts for run, counts in found.items() if any(counts)}


def _count_of(facts: str, key: str) -> int:
    with suppress(ValueError, RecursionError, AttributeError):
        return max(0, whole_of(json.loads(facts).get(key)) or 0)
    return 0


def cells(
    db: sqlite3.Connection, runs: Sequence[str], columns: Sequence[ListColumn]
) -> dict[str, tuple[Param, ...]]:
    """By run, the values of the columns, in their order; None is unknown, NaN is NaN."""
    if len(columns) > MAX_COLUMNS:
        raise UsageError(f"{len(columns)} columns; at most {MAX_COLUMNS}")
    if not columns:
        return dict.fromkeys(runs, ())
    lookups = _lookups(db)
    parts = [_value(db, column, lookups) for column in columns]
    rows = db.execute(
        f"SELECT r.run, {', '.join(part.text for part in parts)} FROM runs r"
        " WHERE r.run IN (SELECT value FROM json_each(?))",
        (*(value for part in parts for value in part.values), json.dumps([*runs])),
    )
    found = {run: tuple(math.nan if v == "nan" else v for v in values) for run, *values in rows}
    for place, column in enumerate(columns):
        if column.stat or column.name in NUMBERS:
            continue
        values = {run: cells[place] for run, cells in found.items()}
        better = _lists(db, column.name, values) | _truths(db, column.name, values, lookups)
        for run, value in better.items():
            found[run] = (*found[run][:place], value, *found[run][place + 1 :])
    return found


def _lists(db: sqlite3.Connection, name: str, values: Mapping[str, Param]) -> dict[str, Param]:
    """Of runs without a value the list that they have, as JSON: a store has its items alone."""
    without = [run for run, value in values.items() if value is None]
    found: dict[str, Param] = {}
    for key in param_lists(db, name) if without else ():
        rows = db.execute(
            "SELECT r.run, p.key, p.value FROM params p JOIN runs r ON r.id = p.run_id"
            " WHERE r.run IN (SELECT value FROM json_each(?)) AND substr(p.key, 1, ?) = ?",
            (json.dumps(without), len(key) + 1, f"{key}."),
        )
        items: dict[str, dict[str, Any]] = {}
        for run, item, value in rows:
            items.setdefault(run, {})[item[len(key) + 1 :]] = json.loads(value)
        found = {**{run: json.dumps(nested(parts)) for run, parts in items.items()}, **found}
    return found


def _truths(
    db: sqlite3.Connection, name: str, values: Mapping[str, Param], lookups: Lookups
) -> dict[str, Param]:
    """Of runs whose value is a truth that truth, which SQLite gives as 0 or 1."""
    bits = [run for run, value in values.items() if type(value) is int and value in (0, 1)]
    if not bits:
        return {}
    rows = db.execute(
        "SELECT r.run FROM runs r WHERE r.run IN (SELECT value FROM json_each(?)) AND EXISTS"
        " (SELECT 1 FROM params p WHERE p.run_id = r.id AND p.value IN ('true', 'false')"
        " AND p.key IN (SELECT value FROM json_each(?)))",
        (json.dumps(bits), json.dumps(lookups.keys(name))),
    )
    return {run: bool(values[run]) for (run,) in rows}


def _value(db: sqlite3.Connection, column: ListColumn, lookups: Lookups) -> Sql:
    is_said = not column.stat and column.name in TEXT_COLUMNS and not is_known(db, *column)
    return TEXT_COLUMNS[column.name] if is_said else figure(*column, lookups)


def is_known(db: sqlite3.Connection, name: str, stat: str = "") -> bool:
    """Whether any run has a metric or param of this name; a `stat` is of metrics only."""
    if not stat and (name in NUMBERS or param_keys(db, name) or param_lists(db, name)):
        return True
    return bool(metric_keys(db, name)) or (bool(stat) and name in HOUSE_NAMES)


def metric_keys(db: sqlite3.Connection, name: str) -> list[str]:
    """The metrics that `name` may mean, the likeliest first: itself, its house name (`loss` is
    `train/loss`), or else the only one of the store that ends with it.
    """
    said = dict.fromkeys((name, HOUSE_NAMES.get(name, name)))
    found = [key for key in said if _is_logged(db, key)]
    if found:
        return found
    ending = f"/{name}"
    rows = db.execute(
        "SELECT DISTINCT name FROM keys WHERE substr(name, ?) = ? LIMIT 2", (-len(ending), ending)
    ).fetchall()
    return [rows[0][0]] if len(rows) == 1 else []


def _is_logged(db: sqlite3.Connection, key: str) -> bool:
    return db.execute("SELECT 1 FROM keys WHERE name = ? LIMIT 1", (key,)).fetchone() is not None


def measured(db: sqlite3.Connection) -> frozenset[str]:
    """Every name that `is_known`, params in full and by their end."""
    keys = [name for (name,) in db.execute("SELECT DISTINCT name FROM keys")]
    params = [name for (name,) in db.execute("SELECT DISTINCT key FROM params")]
    return frozenset((*NUMBERS, *keys, *params, *(name.rpartition(".")[2] for name in params)))


def _where(db: sqlite3.Connection, question: ListQuery) -> Sql:
    if question.statuses is None and question.filter.needs_status:
        raise TypeError("a filter by status needs statuses: feed/runs/listed_status.statuses_for")
    return condition(question.filter, question.statuses or {}, _lookups(db))


def _lookups(db: sqlite3.Connection) -> Lookups:
    return Lookups(
        lambda words: find(db, words),
        lambda name: param_keys(db, name),
        lambda name: goals_of_metric(db, name),
        lambda name: metric_keys(db, name),
    )


def _order(db: sqlite3.Connection, sort: str) -> Sql:
    if sort in SORT_KEYS:
        return Sql(SORT_KEYS[sort])
    column = parse_column(sort or "-")
    if not (is_known(db, *column) or (column.name in TEXT_COLUMNS and not column.stat)):
        hint = f"one of {', '.join((*SORT_KEYS, *TEXT_COLUMNS))}, or a metric or param"
        if run := logged_without_room(crowded(db), sort):
            what, hint = without_room(run, sort)
            raise UsageError(f"cannot sort by {sort!r}: {what}", hint=hint)
        raise UsageError(f"cannot sort by {sort!r}: no run has such a metric or param", hint=hint)
    return _value(db, column, _lookups(db))


def with_tags(db: sqlite3.Connection, rows: Sequence[Any]) -> list[RunRow]:
    """Rows of RUN, completed."""
    tags = _tags_of(db, [row[-1] for row in rows] if len(rows) <= _MAX_MARKS else None)
    places = _places(db)
    return [_run_row(row, tags.get(row[-1], ()), places) for row in rows]


def _tags_of(db: sqlite3.Connection, numbers: Sequence[int] | None) -> dict[int, tuple[str, ...]]:
    where = "" if numbers is None else f" WHERE run_id IN ({', '.join('?' * len(numbers))})"
    rows = db.execute(
        f"SELECT run_id, {_as_text('tag')} FROM tags{where} ORDER BY run_id, tag", numbers or ()
    )
    found: dict[int, tuple[str, ...]] = {}
    for number, tag in rows:
        found[number] = (*found.get(number, ()), tag)
    return found


def _run_row(row: Sequence[Any], tags: tuple[str, ...], places: PlacesNow) -> RunRow:
    columns: list[Any] = [*row]  # ten thousand of these make a list: no slices, no loops
    columns[_TAGS] = tags
    columns[_PATH] = places.of(columns[_ID], columns[_PATH], columns[_CREATED])
    columns[_PINNED] = columns[_PINNED] == 1
    if columns[_DIRTY] is not None:
        columns[_DIRTY] = columns[_DIRTY] == 1
    if "nan" in columns:
        for at in _FIGURES:
            columns[at] = math.nan if columns[at] == "nan" else columns[at]
    made = object.__new__(RunRow)
    made.__dict__.update(zip(_FIELDS, columns, strict=True))  # __init__ would take 5 us a row
    return made
