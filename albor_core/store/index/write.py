"""The write path of a local store: lines in, rows out, within the caller's transaction.

A line of a known type becomes rows; a damaged one, or one of an unknown shape, is counted and
skipped, since the file belongs to another process and may hold anything. Nothing here reads a
clock.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from typing import Any

from albor_core.andon.severity import alert_data, severity_of
from albor_core.run.checkpoints import step_of
from albor_core.run.files.media_file import KINDS, is_hash
from albor_core.run.headlines import COLUMNS
from albor_core.run.values import defined_metrics
from albor_core.run.values.lenient import finite_of
from albor_core.store.file import goals
from albor_core.store.index.cells import dump, optional_text, text, whole_number
from albor_core.store.index.series.run_series import MAX_STEP, RunSeries

WATCHER_EVENTS = ("andon.", "health.", "machine.", "watch.")
SCORES_EVENT = "eval.scores"
_WITH_SUBJECT = ("andon.alert", "andon.ack", "andon.clear")

_EVENT = (
    "INSERT OR REPLACE INTO events (run_id, source, at, wall, attempt, step, name, severity,"
    " subject, data) VALUES (?,?,?,?,?,?,?,?,?,?)"
)
_BRING_UP = (
    "UPDATE runs SET first_wall = coalesce(first_wall, ?1),"
    # a clock that was set back makes no run shorter than nothing
    " last_wall = max(coalesce(?2, last_wall), coalesce(first_wall, ?1)),"
    " attempts = (SELECT coalesce(max(attempt), 0) FROM attempts WHERE run_id = runs.id),"
    " alerts_open = (SELECT count(DISTINCT subject) FROM events e WHERE e.run_id = runs.id"
    "  AND subject IS NOT NULL AND name = 'andon.alert' AND NOT EXISTS"
    "  (SELECT 1 FROM events a WHERE a.run_id = e.run_id AND a.name = 'andon.ack'"
    "   AND a.subject = e.subject) AND NOT EXISTS"
    "  (SELECT 1 FROM events c WHERE c.run_id = e.run_id AND c.name = 'andon.clear'"
    "   AND c.subject = e.subject AND c.wall >= (SELECT max(wall) FROM events f"
    "    WHERE f.run_id = e.run_id AND f.name = 'andon.alert' AND f.subject = e.subject)))"
    " WHERE id = ?3"
)
_TABLES = (
    "attempts",
    "params",
    "keys",
    "metrics",
    "metrics_discarded",
    "metric_levels",
    "events",
    "artifacts",
    "media",
    "tags",
    "notes",
    "goals",
    "span_ids",
    "journal",
)


class RunWriter:
    """Rows of one run in its local store. `run_id` is its small integer there."""

    def __init__(self, db: sqlite3.Connection, run: str) -> None:
        self.db = db
        self.run_id = _ensure_run(db, run)
        self.series = RunSeries(db, self.run_id)
        self._first_wall: float | None = None
        self._last_wall: float | None = None
        self.restored: set[int] = set()  # rewinds that are undone, by their bytes
        self.again = ""  # why the journal has to be read again from its start
        self.is_described = False  # the run's row has to be made again from its small files
        self.touched: set[str] = set()  # tables that the global store has not seen the newest of

    def take_journal(self, record: Mapping[str, Any], at: int) -> bool:
        """One line of journal.jsonl that starts at byte `at`; False if it is of no known shape."""
        kind, wall = record.get("t"), finite_of(record.get("wall"))
        if wall is not None:
            self._first_wall = wall if self._first_wall is None else self._first_wall
            self._last_wall = wall
        match kind:
            case "m":
                return self.series.add(record, wall)
            case "r":
                return self._take_rewind(record, at)
            case "p":
                return self._take_param(record)
            case "e":
                return self.write_event(record, "journal", at)
            case "s":
                return self._take_sample(record, at)
            case "a":
                return self._take_artifact(record)
            case "b":
                return self._take_medium(record, at)
        return False

    def make_room(self, chosen: Iterable[str]) -> None:
        """Values that had none are read again, once."""
        if self.series.make_room(chosen):
            self.again = "a metric without room was chosen by a pin or a goal"

    def _take_rewind(self, record: Mapping[str, Any], at: int) -> bool:
        to = record.get("to")
        if not isinstance(to, int) or abs(to) >= MAX_STEP:
            return False
        if at in self.restored:
            return True
        self.series.rewind(to, at, but=self._scored())
        # an artefact has a version, and others may use it by now; what the attempt itself kept
        # before its first numbers, which rewind, is not what it takes back
        self.db.execute(
            "DELETE FROM media WHERE run_id = ?1 AND step > ?2 AND kind <> 'artifact' AND at <"
            " ifnull((SELECT max(at) FROM events WHERE run_id = ?1 AND source = 'journal'"
            " AND name = 'run.start' AND attempt = ?3), ?4)",
            (self.run_id, to, whole_number(record.get("attempt")), at),
        )
        return True

    def _take_param(self, record: Mapping[str, Any]) -> bool:
        key = record.get("key")
        if not isinstance(key, str) or not key:
            return False
        value = record.get("value")
        self.touched.add("params")
        self.db.execute(
            "INSERT OR REPLACE INTO params (run_id, key, value) VALUES (?,?,?)",
            (self.run_id, text(key), dump(value)),
        )
        return True

    def write_event(self, record: Mapping[str, Any], source: str, at: int) -> bool:
        """An event of the file `source`, and what it says of the run and its attempts."""
        name, data = record.get("name"), record.get("data")
        if not isinstance(name, str) or not name:
            return False
        data = data if isinstance(data, dict) else {}
        attempt = whole_number(record.get("attempt"))
        wall = finite_of(record.get("wall"))
        step, severity = whole_number(record.get("step")), severity_of(record.get("severity"))
        subject = optional_text(data.get("id")) if name in _WITH_SUBJECT else None
        words = text(name), text(severity), subject, dump(alert_data(name, data))
        self.touched.add("events")
        self.db.execute(_EVENT, (self.run_id, source, at, wall, attempt, step, *words))
        self.is_described |= name in ("run.described", defined_metrics.EVENT)
        if name == "run.goals":
            self.goals(data)
        elif name == "run.start" and attempt is not None:
            self.attempt(attempt, {"started": wall}, keep=True)
            self.is_described |= attempt > 1
        if name == "run.start" and (planned := whole_number(data.get("max_steps"))) is not None:
            self.db.execute(
                "UPDATE runs SET max_steps = coalesce(max_steps, ?) WHERE id = ?",
                (planned, self.run_id),
            )
        elif name == "run.end" and attempt is not None:
            self.attempt(
                attempt, {"ended": wall, "code": whole_number(data.get("code"))}, keep=True
            )
        return True

    def _take_sample(self, record: Mapping[str, Any], at: int) -> bool:
        prompt, body = record.get("prompt"), record.get("text")
        if not isinstance(body, str):
            return False
        data = {"prompt": prompt if isinstance(prompt, str) else "", "text": body}
        return self.write_event({**record, "name": "sample", "data": data}, "journal", at)

    def _take_artifact(self, record: Mapping[str, Any]) -> bool:
        path = record.get("path")
        if not isinstance(path, str) or not path:
            return False
        self.touched.add("artifacts")
        self.db.execute(
            "INSERT OR REPLACE INTO artifacts (run_id, path, name, kind, bytes, hash, step, wall)"
            " VALUES (?,?,?,?,?,?,?,?)",
            (
                self.run_id,
                text(path),
                text(record.get("name") or path),
                text(record.get("kind") or "file"),
                whole_number(record.get("bytes")),
                optional_text(record.get("hash")),
                _step_of(record),
                finite_of(record.get("wall")),
            ),
        )
        return True

    def _take_medium(self, record: Mapping[str, Any], at: int) -> bool:
        row = medium_row(record)
        if row is None:
            return False
        self.touched.add("media")
        self.db.execute(
            "INSERT OR REPLACE INTO media (run_id, at, key, step, kind, hash, bytes, name, version,"
            " caption, meta, wall) VALUES (?,?,?,?,?,?,?,?,?,?,?,?)",
            (self.run_id, at, *row),
        )
        return True

    def take_attempts(self, record: Mapping[str, Any], at: int) -> bool:
        """Index one line of the guard's attempts.jsonl."""
        kind, attempt = record.get("t"), whole_number(record.get("attempt"))
        wall = finite_of(record.get("wall"))
        if kind == "attempt.start" and attempt is not None:
            given = {"started": wall, "pid": whole_number(record.get("pid"))}
            flags = {key: int(bool(record.get(key))) for key in ("diagnostic", "adopted")}
            self.attempt(attempt, {**given, **flags})
        elif kind == "attempt.end" and attempt is not None:
            self.attempt(attempt, _ending(record, wall))
        elif kind == "state" and isinstance(record.get("state"), str):
            data = {"state": record["state"]}
            state = {"name": "guard.state", "data": data, "wall": wall}
            return self.write_event(state, "attempts", at)
        elif kind == "event":
            return self.write_event(record, "attempts", at)
        else:
            return False
        return True

    def _scored(self) -> set[str]:
        """The metrics that come of evaluations: no rewind of the program takes them back, in
        whichever order the files are read; a checkpoint that is made again is scored again.
        """
        names = self.db.execute(
            "SELECT DISTINCT v.key FROM events e, json_each(e.data, '$.v') v"
            " WHERE e.run_id = ? AND e.source = 'annotations' AND e.name = ?",
            (self.run_id, SCORES_EVENT),
        )
        return {name for (name,) in names}

    def take_system(self, record: Mapping[str, Any], at: int) -> bool:
        """One line of system.jsonl: figures of the machine by seconds since the run was made, and
        what its watcher told. Neither is a sign of life of the program.
        """
        if record.get("t") == "e":
            is_ours = str(record.get("name")).startswith(WATCHER_EVENTS)
            return is_ours and self.write_event(record, "system", at)
        second, values = record.get("step"), record.get("v")
        if record.get("t") != "m" or not isinstance(values, dict):
            return False
        if not isinstance(second, int) or not 0 <= second < MAX_STEP:
            return False
        return self.series.add_figures(second, values)

    def attempt(self, attempt: int, given: Mapping[str, Any], *, keep: bool = False) -> None:
        """Set columns of an attempt; with `keep` only those that are not set."""
        self.touched.add("attempts")
        self.db.execute(
            "INSERT OR IGNORE INTO attempts (run_id, attempt) VALUES (?,?)", (self.run_id, attempt)
        )
        value = "coalesce({0}, ?)" if keep else "coalesce(?, {0})"
        columns = ", ".join(f"{name} = {value.format(name)}" for name in given)
        self.db.execute(
            f"UPDATE attempts SET {columns} WHERE run_id = ? AND attempt = ?",
            (*given.values(), self.run_id, attempt),
        )

    def update(self, columns: Mapping[str, Any]) -> None:
        """Set columns of the run's own row."""
        assignments = ", ".join(f"{name} = ?" for name in columns)
        self.db.execute(
            f"UPDATE runs SET {assignments} WHERE id = ?", (*columns.values(), self.run_id)
        )

    def goals(self, declared: object, *, if_new: bool = False) -> None:
        """Record the directions in which metrics are better, as the run declared them."""
        if goals.record(self.db, self.run_id, declared, if_new=if_new):
            self.touched.add("goals")
        if isinstance(declared, dict):
            self.make_room(key for key in declared if isinstance(key, str))

    def span_ids(self, rows: Iterable[tuple[str, str, str]]) -> None:
        """(name, trace id, span id) of the run's spans that others may look for."""
        given = [(self.run_id, *row) for row in rows]
        put = "INSERT OR IGNORE INTO span_ids (run_id, name, trace_id, span_id) VALUES (?,?,?,?)"
        if self.db.executemany(put, given).rowcount > 0:
            self.touched.add("span_ids")

    def finish(self) -> None:
        """The last act of a transaction that took lines: points down, the run's row brought up to
        date.
        """
        self.series.flush()
        self.update(self.series.headlines())
        self.db.execute(_BRING_UP, (self._first_wall, self._last_wall, self.run_id))

    def clear(self) -> None:
        """Remove all but the run's own row: the files are read again from the start."""
        for table in _TABLES:
            self.db.execute(f"DELETE FROM {table} WHERE run_id = ?", (self.run_id,))
        ended = ("ended_status", "ended_reason", "ended_wall")
        unknown = ("last_step", "first_wall", "last_wall", *ended)
        figures = (one.name for one in COLUMNS)
        self.update({**dict.fromkeys((*figures, *unknown)), "pinned": 0})
        self.series.clear()
        self.again = ""
        self._first_wall = self._last_wall = None


def medium_row(record: Mapping[str, Any]) -> tuple[Any, ...] | None:
    """The columns of a medium from its key on; None for a record that tells of none."""
    key, kind, digest = record.get("key"), record.get("kind"), record.get("hash")
    if not isinstance(key, str) or not key or kind not in KINDS or not is_hash(digest):
        return None
    meta = record.get("meta")
    return (
        text(key),
        whole_number(record.get("step")),
        kind,
        digest,
        whole_number(record.get("bytes")),
        text(record.get("name") or ""),
        whole_number(record.get("version")),
        text(record.get("caption") or ""),
        dump(meta if isinstance(meta, dict) else {}),
        finite_of(record.get("wall")),
    )


def _step_of(artifact: Mapping[str, Any]) -> int | None:
    """The step that a file belongs to; older journals say it in the names of checkpoints only."""
    step = whole_number(artifact.get("step"))
    if step is None and artifact.get("kind") == "checkpoint":
        return step_of(str(artifact.get("name") or ""))
    return step


def _ensure_run(db: sqlite3.Connection, run: str) -> int:
    found = db.execute("SELECT id FROM runs WHERE run = ?", (run,)).fetchone()
    if found is not None:
        return int(found[0])
    experiment = experiment_id(db, "")
    db.execute(
        "INSERT INTO runs (run, experiment_id, name, kind, path) VALUES (?, ?, ?, '', '')",
        (run, experiment, run),
    )
    return int(db.execute("SELECT last_insert_rowid()").fetchone()[0])


def experiment_id(db: sqlite3.Connection, name: str) -> int:
    """The small integer of an experiment, made if need be."""
    db.execute("INSERT OR IGNORE INTO experiments (name) VALUES (?)", (name,))
    return int(db.execute("SELECT id FROM experiments WHERE name = ?", (name,)).fetchone()[0])


def _ending(record: Mapping[str, Any], wall: float | None) -> dict[str, Any]:
    return {
        "ended": wall,
        "code": whole_number(record.get("code")),
        "signal": optional_text(record.get("signal")),
        "exit_class": optional_text(record.get("class")),
        "action": optional_text(record.get("action")),
        "reason": optional_text(record.get("reason")),
        "delay_s": finite_of(record.get("delay_s")),
        "report": optional_text(record.get("report")),
        "step": whole_number(record.get("step")),
    }
