"""What a column of a list may be called: the metrics and params that runs have, and those of the
params that tell some runs apart. SQL over one store.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from albor_core.run.values.clean import natural_place
from albor_core.store.query.group import IGNORED

NEWEST = 2_000  # runs whose names are looked through: within the time of one question
MOST_METRICS, MOST_PARAMS = 5_000, 5_000
_METRICS = (
    "SELECT CAST(name AS TEXT), count(*) FROM keys WHERE run_id IN"
    " (SELECT id FROM runs ORDER BY created DESC LIMIT ?) AND substr(name, 1, 1) != '_'"
    " GROUP BY name ORDER BY count(*) DESC, name LIMIT ?"
)
_PARAMS = (
    "SELECT CAST(key AS TEXT), count(*) FROM params WHERE run_id IN"
    " (SELECT id FROM runs ORDER BY created DESC LIMIT ?)"
    " GROUP BY key ORDER BY count(*) DESC, key LIMIT ?"
)
_DIFFERENT = (
    "SELECT CAST(p.key AS TEXT), count(DISTINCT p.value), count(*) FROM params p WHERE p.run_id IN"
    " (SELECT id FROM runs WHERE run IN (SELECT value FROM json_each(?)))"
    f" AND p.key NOT IN ({', '.join('?' * len(IGNORED))}) GROUP BY p.key"
)


class ColumnNames(NamedTuple):
    """Names of metrics and params, each with the number of the newest runs that have it, most
    first.
    """

    metrics: tuple[tuple[str, int], ...] = ()
    params: tuple[tuple[str, int], ...] = ()

    def joined(self, other: ColumnNames) -> ColumnNames:
        """The names of two stores."""
        return ColumnNames(*(_joined(a, b) for a, b in zip(self, other, strict=True)))


def column_names(db: sqlite3.Connection) -> ColumnNames:
    """The names that the newest runs have."""
    metrics = db.execute(_METRICS, (NEWEST, MOST_METRICS)).fetchall()
    params = db.execute(_PARAMS, (NEWEST, MOST_PARAMS)).fetchall()
    return ColumnNames(_in_order(metrics), _in_order(params))


def differing_params(db: sqlite3.Connection, runs: Sequence[str]) -> tuple[str, ...]:
    """The params by which these runs (the first NEWEST of them) fall into fewer groups than there
    are runs: those that most runs have first, of these the ones with the fewest values. Seeds and
    names tell each run from all others, and are left out.
    """
    some = runs[:NEWEST]
    rows = db.execute(_DIFFERENT, (json.dumps([*some]), *IGNORED)).fetchall()
    found = []
    for key, values, have in rows:
        groups = values + (have < len(some))
        if 1 < groups < len(some):
            found.append((-have, groups, natural_place(key), key))
    return tuple(key for *_, key in sorted(found))


def _joined(
    some: Sequence[tuple[str, int]], others: Sequence[tuple[str, int]]
) -> tuple[tuple[str, int], ...]:
    count = Counter(dict(some))
    for name, runs in others:
        count[name] += runs
    return _in_order(count.items())


def _in_order(names: Iterable[tuple[str, int]]) -> tuple[tuple[str, int], ...]:
    """Those that most runs have first, of these m2 before m10."""
    return tuple(sorted(names, key=lambda one: (-one[1], natural_place(one[0]))))
