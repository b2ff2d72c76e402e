"""Goals of metrics: what runs declared, and what is best by it.

A goal is kept with the run that declared it and holds for every run of its experiment; where runs
of one experiment disagree the newest decides. A store of an older version has none.
"""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Collection
from typing import Any

from albor_core.run.values.directions import Direction, direction, recorded_goals
from albor_core.store.file.schema import SCHEMA_SQL

_START = "CREATE TABLE goals ("
_OF_EXPERIMENT = (
    "SELECT g.metric, g.goal FROM goals g JOIN runs r ON r.id = g.run_id WHERE r.experiment_id ="
    " (SELECT experiment_id FROM runs WHERE run = ?) ORDER BY r.created, r.id"
)
_OF_EXPERIMENTS = (
    "SELECT r.experiment_id, g.metric, g.goal FROM goals g JOIN runs r ON r.id = g.run_id"
    " WHERE r.experiment_id IN (SELECT value FROM json_each(?)) ORDER BY r.created, r.id"
)
_OF_METRIC = (
    "SELECT r.experiment_id, g.goal FROM goals g JOIN runs r ON r.id = g.run_id"
    " WHERE g.metric = ? ORDER BY r.created, r.id"
)
_BEST = (
    "SELECT value, step FROM metrics WHERE run_id = ? AND key_id = ? AND abs(value) < 9e999"
    " ORDER BY value {way}, step LIMIT 1"
)


def goals_of_run(db: sqlite3.Connection, run: str) -> dict[str, Direction]:
    """What the experiment of `run` declared, by metric."""
    return recorded_goals(dict(_ask(db, _OF_EXPERIMENT, run)))


def goals_of_runs(db: sqlite3.Connection, runs: Collection[str]) -> dict[str, dict[str, Direction]]:
    """The same of many, by run; of those whose experiments declared any."""
    chosen = "SELECT run, experiment_id FROM runs WHERE run IN (SELECT value FROM json_each(?))"
    experiments = dict(db.execute(chosen, (json.dumps([*runs]),)))
    declared: dict[int, dict[str, str]] = {}
    for number, metric, goal in _ask(db, _OF_EXPERIMENTS, json.dumps([*{*experiments.values()}])):
        declared.setdefault(number, {})[metric] = goal
    goals = {number: recorded_goals(found) for number, found in declared.items()}
    return {run: goals[number] for run, number in experiments.items() if goals.get(number)}


def goals_of_metric(db: sqlite3.Connection, metric: str) -> dict[int, Direction]:
    """What experiments, by their small ids, declared of a metric."""
    return {number: goal for number, goal in _ask(db, _OF_METRIC, metric) if goal in ("min", "max")}


def goal_of(db: sqlite3.Connection, metric: str, experiment: str | None) -> Direction | None:
    """What all experiments that declared a goal of a metric agree on; or one of them, by name."""
    found = goals_of_metric(db, metric)
    if experiment is not None:
        rows = _ask(db, "SELECT id FROM experiments WHERE name = ?", experiment)
        found = {number: found[number] for (number,) in rows if number in found}
    ways = set(found.values())
    return ways.pop() if len(ways) == 1 else None


def record(
    db: sqlite3.Connection, run_id: int, goals: object, *, if_new: bool = False
) -> dict[str, Direction]:
    """Keep the goals that a run declared; with `if_new` those of metrics that have none yet."""
    found = recorded_goals(goals)
    word = "IGNORE" if if_new else "REPLACE"
    rows = [(run_id, metric, goal) for metric, goal in found.items()]
    db.executemany(f"INSERT OR {word} INTO goals (run_id, metric, goal) VALUES (?,?,?)", rows)
    return found


def best_of(
    way: Direction | None, metric: str, best: float | None, low: float | None, high: float | None
) -> float | None:
    """The best finite value by `way`, of what a store keeps of a series."""
    if way is None:
        return None
    edge = low if way == "min" else high
    if edge is not None and math.isfinite(edge):
        return edge
    return best if way == direction(metric) else None


def add_goals(db: sqlite3.Connection) -> None:
    """The upgrade of a store from before goals: their table, and `best` by each metric's direction.

    Where a store has no points the step of a best value that changed is unknown.
    """
    statement = SCHEMA_SQL[SCHEMA_SQL.index(_START) :].partition("\nCREATE ")[0]
    db.execute(statement.replace("CREATE TABLE", "CREATE TABLE IF NOT EXISTS", 1))
    rows = db.execute("SELECT run_id, key_id, name, best, minimum, maximum FROM keys").fetchall()
    changed = []
    for run_id, key_id, name, best, low, high in rows:
        way, was_low = direction(name), _was_lower(name)
        if way == ("min" if was_low else "max"):
            continue
        point: tuple[float | None, int | None] = (None, None)
        if way is not None:
            order = _BEST.format(way="ASC" if way == "min" else "DESC")
            found = db.execute(order, (run_id, key_id)).fetchone()
            point = found or (best_of(way, "", best, low, high), None)
        changed.append((*point, run_id, key_id))
    db.executemany(
        "UPDATE keys SET best = ?, best_step = ? WHERE run_id = ? AND key_id = ?", changed
    )


def _was_lower(name: str) -> bool:
    """The rule that stores of the second version were written by."""
    words = ("loss", "ppl", "perplexity", "error", "_ms", "nll", "bits_per")
    return any(word in name.lower() for word in words)


def _ask(db: sqlite3.Connection, sql: str, value: str) -> list[Any]:
    """No rows where the store is of a version without goals."""
    try:
        return db.execute(sql, (value,)).fetchall()
    except sqlite3.OperationalError as error:
        if "no such table" in str(error):
            return []
        raise
