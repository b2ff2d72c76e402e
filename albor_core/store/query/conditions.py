"""Filters as SQL: every word of a user is a bound parameter, the text is made of constants.

The expressions speak of `runs r`. A run whose value is unknown fulfils no comparison, and therefore
its negation. NaN compares as unknown, but `loss=nan` finds it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from albor_core.run.headlines import STORED, Headline
from albor_core.run.values.directions import Direction, direction
from albor_core.store.query.terms import Filter, Term


class Lookups(NamedTuple):
    """What has to be asked before the question itself: `find` gives the small ids of runs that hold
    some words, `keys` the params that a name may mean and `metrics` the metrics, the likeliest
    first, `goals` what experiments declared of a metric.
    """

    find: Callable[[str], Iterable[int]]
    keys: Callable[[str], Sequence[str]]
    goals: Callable[[str], Mapping[int, Direction]]
    metrics: Callable[[str], Sequence[str]]


class Sql(NamedTuple):
    """A piece of SQL with what its question marks stand for."""

    text: str
    values: tuple[object, ...] = ()


_LAST = "CASE WHEN k.last IS NULL AND k.count > 0 THEN 'nan' ELSE k.last END"


def stored(one: Headline) -> str:
    """The SQL expression of a headline figure; NaN as in the columns of runs.

    Looking through the series of 10,000 runs for one takes 70 ms, and 25 ms where it is among the
    first ones: so only those runs are looked through that have the figure it stands beside.
    """
    if one.has_column:
        return f"r.{one.name}"
    series = f"SELECT {_LAST} FROM keys k WHERE k.run_id = r.id AND k.name = '{one.key}' LIMIT 1"
    return f"CASE WHEN r.{one.beside} IS NOT NULL THEN ({series}) END"


NUMBERS: Mapping[str, str] = {
    "created": "r.created",
    "step": "r.last_step",
    "max_steps": "r.max_steps",
    **{one.name: stored(one) for one in STORED},
    "alerts": "r.alerts_open",
    "attempts": "r.attempts",
    "seed": "r.seed",
    "last": "r.last_wall",
    "elapsed_s": "(r.last_wall - r.first_wall)",
    # what was imported began with its first value, and a run that lives has its newest one now
    "duration": "CASE WHEN r.kind = 'imported' THEN r.last_wall - r.first_wall"
    " ELSE coalesce(r.ended_wall, r.last_wall) - r.created END",
}
_TEXTS = {
    "experiment": "lower((SELECT e.name FROM experiments e WHERE e.id = r.experiment_id))",
    "host": "lower(r.host)",
    "kind": "lower(r.kind)",
    "group": "lower(json_extract(r.facts, '$.group'))",
    "job_type": "lower(json_extract(r.facts, '$.job_type'))",
}
_STATS = {"last": _LAST, "min": "k.minimum", "max": "k.maximum", "count": "k.count"}
_FINITE = "BETWEEN -1.7976931348623157e308 AND 1.7976931348623157e308"
_BEST = {  # as goals.best_of
    "min": f"CASE WHEN k.minimum {_FINITE} THEN k.minimum {{0}} END",
    "max": f"CASE WHEN k.maximum {_FINITE} THEN k.maximum {{0}} END",
}
_METRIC = "(SELECT {0} FROM keys k WHERE k.run_id = r.id AND k.name = ?)"
_PARAM = "(SELECT {0} FROM params p WHERE p.run_id = r.id AND p.key = ?)"
_AS_TEXT = (
    "lower(CASE json_type(p.value) WHEN 'true' THEN 'true' WHEN 'false' THEN 'false'"
    " WHEN 'null' THEN 'null' ELSE json_extract(p.value, '$') END)"
)
_HAS = {
    "nan": "EXISTS (SELECT 1 FROM keys k WHERE k.run_id = r.id AND k.nonfinite > 0)",
    "alert": "r.alerts_open > 0",
    "note": "EXISTS (SELECT 1 FROM notes n WHERE n.run_id = r.id)",
    "tag": "EXISTS (SELECT 1 FROM tags t WHERE t.run_id = r.id)",
    "artifact": "EXISTS (SELECT 1 FROM artifacts a WHERE a.run_id = r.id)",
    "params": "EXISTS (SELECT 1 FROM params p WHERE p.run_id = r.id)",
    "parent": "(json_extract(r.facts, '$.parent') IS NOT NULL OR EXISTS (SELECT 1 FROM params p"
    " WHERE p.run_id = r.id AND p.key = 'model.path' AND instr(p.value, '/checkpoints/')))",
    "end": "r.ended_status IS NOT NULL",
}
_PARENT = (
    "(json_extract(r.facts, '$.parent') = ? OR EXISTS (SELECT 1 FROM params p"
    " WHERE p.run_id = r.id AND p.key = 'model.path' AND instr(p.value, ?)))"
)
_IN = "IN (SELECT value FROM json_each(?))"


def figure(name: str, stat: str, lookups: Lookups) -> Sql:
    """The value behind a name: a number of the run table, a metric or a param; NULL if unknown.

    A name with a slash is a metric before it is a param, any other the other way round.
    """
    if not stat and name in NUMBERS:
        own = Sql(NUMBERS[name])
        return _seed(own, lookups) if name == "seed" else own
    if stat == "best":
        return _first_of([_best(key, lookups.goals(key)) for key in lookups.metrics(name)])
    params = () if stat else lookups.keys(name)
    metrics = (name,) if params else lookups.metrics(name)
    value = _METRIC.format(_STATS[stat or "last"])
    metric = _first_of([Sql(value, (key,)) for key in metrics])
    if stat:
        return metric
    pair = (metric, _param(params, "json_extract(p.value, '$')"))
    first, second = pair if "/" in name else pair[::-1]
    return Sql(f"coalesce({first.text}, {second.text})", (*first.values, *second.values))


def _seed(own: Sql, lookups: Lookups) -> Sql:
    """A run's own seed, else the param that is called so."""
    keys = lookups.keys("seed")
    said = _param(keys, "json_extract(p.value, '$')")
    return Sql(f"coalesce({own.text}, {said.text})", said.values) if keys else own


def _first_of(parts: Sequence[Sql]) -> Sql:
    """The first known value of several expressions, in SQL."""
    text = ", ".join(part.text for part in parts)
    values = tuple(value for part in parts for value in part.values)
    return Sql(f"coalesce({text}, NULL)" if parts else "NULL", values)


def _best(name: str, goals: Mapping[int, Direction]) -> Sql:
    """The best value by what the run's experiment declared, or else by the metric's name."""
    ways = {way: json.dumps([n for n, g in goals.items() if g == way]) for way in ("min", "max")}
    by_name = direction(name)
    cases = [
        f"WHEN r.experiment_id {_IN} THEN "
        + _BEST[way].format("ELSE k.best" if way == by_name else "")
        for way in ways
    ]
    otherwise = "NULL" if by_name is None else _BEST[by_name].format("ELSE k.best")
    return Sql(
        _METRIC.format(f"CASE {' '.join(cases)} ELSE {otherwise} END"), (*ways.values(), name)
    )


def _param(keys: Sequence[str], what: str) -> Sql:
    """The first of the keys that the run has."""
    return _first_of([Sql(_PARAM.format(what), (key,)) for key in keys])


def condition(wanted: Filter, statuses: Mapping[str, str], lookups: Lookups) -> Sql:
    """What a run must fulfil. `statuses` has a word for each run whose status the store cannot
    know.
    """
    parts = [_of(term, statuses, lookups) for term in wanted.terms]
    text = " AND ".join(
        f"NOT coalesce({sql.text}, 0)" if term.negated else f"({sql.text})"
        for term, sql in zip(wanted.terms, parts, strict=True)
    )
    return Sql(text or "1", tuple(value for sql in parts for value in sql.values))


def _of(term: Term, statuses: Mapping[str, str], lookups: Lookups) -> Sql:
    match term.kind:
        case "words":
            return Sql(f"r.id {_IN}", (json.dumps([*lookups.find(str(term.values[0]))]),))
        case "flag":
            return Sql("r.pinned = 1")
        case "status":
            return _status(frozenset(map(str, term.values)), statuses)
        case "has":
            return Sql(" OR ".join(_HAS[str(value)] for value in term.values))
        case "time":
            return Sql(f"coalesce(r.created, r.first_wall) {term.op} ?", term.values)
        case "number":
            return _comparison(term, lookups)
        case "param" if term.field in NUMBERS:
            numbers = tuple(map(_as_number, term.values))
            return _comparison(term._replace(values=numbers), lookups)
    return _either([_text(term, str(value), lookups) for value in term.values])


def _either(parts: list[Sql]) -> Sql:
    text = " OR ".join(part.text for part in parts)
    return Sql(text, tuple(value for part in parts for value in part.values))


def _status(words: frozenset[str], statuses: Mapping[str, str]) -> Sql:
    chosen = [run for run, word in statuses.items() if word in words]
    return Sql(
        f"CASE WHEN r.run {_IN} THEN r.run {_IN} ELSE coalesce(r.ended_status, 'lost') {_IN} END",
        (json.dumps([*statuses]), json.dumps(chosen), json.dumps(sorted(words))),
    )


def _comparison(term: Term, lookups: Lookups) -> Sql:
    made = figure(term.field, term.stat, lookups)
    tests: list[Sql] = []
    for value in term.values:
        if isinstance(value, float) and math.isnan(value):
            tests.append(Sql("x = 'nan'") if term.op == "=" else Sql("0"))
        else:
            tests.append(Sql(f"(typeof(x) <> 'text' AND x {term.op} ?)", (value,)))
    test = _either(tests)
    text = f"(SELECT {test.text} FROM (SELECT {made.text} AS x))"
    return Sql(text, (*test.values, *made.values))


def _as_number(value: str | float) -> float:
    """What no number is equal to, where it is none."""
    try:
        return float(value)
    except ValueError:
        return math.nan


def _text(term: Term, value: str, lookups: Lookups) -> Sql:
    lowered = _lower(value)
    match term.field:
        case "name" if len(lowered) > 1 and lowered.endswith("*"):
            parts = [_equal(what, lowered) for what in ("lower(r.name)", "r.run")]
            return Sql(
                f"({parts[0].text} OR {parts[1].text})", (*parts[0].values, *parts[1].values)
            )
        case "name":
            return Sql("(instr(lower(r.name), ?) OR instr(r.run, ?))", (lowered, lowered))
        case "id":
            return Sql("substr(r.run, 1, ?) = ?", (len(lowered), lowered))
        case "commit":
            return Sql("substr(lower(r.git_commit), 1, ?) = ?", (len(lowered), lowered))
        case "parent":
            return Sql(_PARENT, (value, f"/{value}/checkpoints/"))
        case "tag":
            test = _equal("lower(t.tag)", lowered)
            text = f"{test.text} OR substr(lower(t.tag), 1, ?) = ?"  # of name:value, the name
            found = f"EXISTS (SELECT 1 FROM tags t WHERE t.run_id = r.id AND ({text}))"
            return Sql(found, (*test.values, len(lowered) + 1, f"{lowered}:"))
        case field if field in _TEXTS:
            return _equal(_TEXTS[field], lowered)
    made = _param(lookups.keys(term.field), _AS_TEXT)
    test = _equal("x", lowered)
    if (number := _as_number(value)) == number:
        same = _comparison(term._replace(values=(number,), kind="number"), lookups)
        inner = f"(SELECT {test.text} FROM (SELECT {made.text} AS x))"
        return Sql(f"({inner} OR {same.text})", (*test.values, *made.values, *same.values))
    return Sql(f"(SELECT {test.text} FROM (SELECT {made.text} AS x))",
               (*test.values, *made.values))  # fmt: skip


def _equal(what: str, value: str) -> Sql:
    """The same text, or with `*` at its end one that begins so."""
    if len(value) > 1 and value.endswith("*"):
        return Sql(f"substr({what}, 1, ?) = ?", (len(value) - 1, value[:-1]))
    return Sql(f"{what} = ?", (value,))


def _lower(text: str) -> str:
    """Text in lower case as by SQLite's lower(): ASCII letters only."""
    return "".join(char.lower() if char.isascii() else char for char in text)
