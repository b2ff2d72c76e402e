"""The write path of a local store: lines in, rows out, within the caller's transaction.

A line of a known type becomes rows; a damaged one, or one of an unknown shape, is counted and
skipped, since the file belongs to another process and may hold anything. Nothing here reads a
clock.
"""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Iterable, Mapping
from typing import Any

from albor_core.andon.severity import alert_data, severity_of
from albor_core.run.checkpoints import step_of
from albor_core.run.files.media_file import KINDS, is_hash
from albor_core.run.headlines import COLUMNS, Headline
from albor_core.run.values import defined_metrics
from albor_core.run.values.lenient import finite_of, is_number, real, strict_json, text_of, whole_of
from albor_core.run.values.metrics import NameRoom
from albor_core.store.file import goals
from albor_core.store.file.axis import SECONDS, STEP
from albor_core.store.index.series import SeriesWriter, load_series

WALL_KEY = "_wall"  # the wall time of each step, kept as a series like any other
MAX_STEP = 1 << 48
WATCHER_EVENTS = ("andon.", "health.", "machine.", "watch.")
SCORES_EVENT = "eval.scores"
WORD_EVENTS = {"group": "run.group", "job_type": "run.job_type"}  # facts that annotations say
_SAYINGS = {  # of an annotation: the event that it becomes, and the name that its value has there
    "ack": ("andon.ack", "id"),
    "attention.ack": ("attention.ack", "id"),
    "metric.pin": ("metric.pin", "metric"),
    "metric.unpin": ("metric.unpin", "metric"),
    **{kind: (event, "word") for kind, event in WORD_EVENTS.items()},
}
_MAX_KEY_CHARS = 256
_MAX_TEXT_CHARS = 64 << 10
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


_TAG_SQL = {
    "tag": "INSERT OR IGNORE INTO tags VALUES (?,?)",
    "untag": "DELETE FROM tags WHERE run_id = ? AND tag = ?",
}


class _Rooms:
    """Which metrics of a run its store has room for: its program's own, and its machine's. What a
    pin or a goal chose has room from then on, also where the files are read again.
    """

    def __init__(self, chosen: Iterable[str], recorded: Iterable[str]) -> None:
        self._chosen = dict.fromkeys(chosen)
        self.begin(recorded)

    def begin(self, recorded: Iterable[str] = ()) -> None:
        """Of a store that has these."""
        self.own, self.machine = NameRoom(), NameRoom()
        self.own.always(self._chosen)
        for name in recorded:
            self.own.takes(name)

    def give(self, names: Iterable[str]) -> bool:
        """Room for what a pin or a goal chose; whether values of it had none until now."""
        new = [name for name in names if name not in self._chosen]
        had_none = any(self.own.lacks(name) for name in new)
        self._chosen.update(dict.fromkeys(new))
        self.own.always(new)
        return had_none


class RunWriter:
    """Rows of one run in its local store. `run_id` is its small integer there."""

    def __init__(self, db: sqlite3.Connection, run: str) -> None:
        self._db, self._run = db, run
        self.run_id = _ensure_run(db, run)
        self._series = load_series(db, self.run_id)
        recorded = (
            name
            for name, series in self._series.items()
            if name != WALL_KEY and series.axis == STEP
        )
        self._rooms = _Rooms(_chosen(db, self.run_id), recorded)
        self._pending: dict[str, dict[int, float]] = {}
        self._figures: dict[str, dict[int, float]] = {}  # over seconds: of system.jsonl
        self._first_wall: float | None = None
        self._last_wall: float | None = None
        self._restored: set[int] = set()  # rewinds that are undone, by their bytes
        self.again = ""  # why the journal has to be read again from its start
        self.is_described = False  # the run's row has to be made again from its small files
        self.touched: set[str] = set()  # tables that the global store has not seen the newest of

    def take_journal(self, record: Mapping[str, Any], at: int) -> bool:
        """One line of journal.jsonl that starts at byte `at`; False if it is of no known shape."""
        kind = record.get("t")
        if kind == "m":
            return self._take_metrics(record)
        self._see_wall(finite_of(record.get("wall")))
        match kind:
            case "r":
                return self._take_rewind(record, at)
            case "p":
                return self._take_param(record)
            case "e":
                return self._take_event(record, "journal", at)
            case "s":
                return self._take_sample(record, at)
            case "a":
                return self._take_artifact(record)
            case "b":
                return self._take_medium(record, at)
        return False

    def _see_wall(self, wall: float | None) -> None:
        if wall is not None:
            self._first_wall = wall if self._first_wall is None else self._first_wall
            self._last_wall = wall

    def _take_metrics(self, record: Mapping[str, Any]) -> bool:
        step, values, wall = record.get("step"), record.get("v"), finite_of(record.get("wall"))
        if wall is not None:
            self._see_wall(wall)
        if not isinstance(step, int) or not 0 <= step < MAX_STEP or not isinstance(values, dict):
            return False
        whole = True
        for key, value in values.items():
            if type(value) is float:
                points = self._pending.get(key)
                if points is None:
                    if not self._may_record(key):
                        whole = False
                        continue
                    points = self._pending[key] = {}
                points[step] = value
            elif value is not None:
                whole = self._take_odd(step, key, value) and whole
        if wall is not None:
            self._pending.setdefault(WALL_KEY, {})[step] = wall
        return whole

    def _take_odd(self, step: int, key: str, value: Any) -> bool:
        """A value that is not a float: integers and truths are numbers, the rest is not."""
        if not isinstance(value, int) or not self._may_record(key):
            return False
        self._pending.setdefault(key, {})[step] = real(value)
        return True

    def _may_record(self, key: str, room: NameRoom | None = None) -> bool:
        if key in self._series:
            return key != WALL_KEY
        is_name = key != WALL_KEY and 0 < len(key) <= _MAX_KEY_CHARS and key.isprintable()
        return is_name and (room or self._rooms.own).takes(key)

    def _make_room(self, chosen: Iterable[str]) -> None:
        """Values that had none are read again, once."""
        if self._rooms.give(chosen):
            self.again = "a metric without room was chosen by a pin or a goal"

    def _take_rewind(self, record: Mapping[str, Any], at: int) -> bool:
        to = record.get("to")
        if not isinstance(to, int) or abs(to) >= MAX_STEP:
            return False
        if at in self._restored:
            return True
        self.flush()
        kept = self._scored()
        for name, series in self._series.items():
            if series.axis == STEP and name not in kept:
                series.rewind(to, at)
        # an artefact has a version, and others may use it by now; what the attempt itself kept
        # before its first numbers, which rewind, is not what it takes back
        self._db.execute(
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
        self._db.execute(
            "INSERT OR REPLACE INTO params (run_id, key, value) VALUES (?,?,?)",
            (self.run_id, text(key), dump(value)),
        )
        return True

    def _take_event(self, record: Mapping[str, Any], source: str, at: int) -> bool:
        name, data = record.get("name"), record.get("data")
        if not isinstance(name, str) or not name:
            return False
        data = data if isinstance(data, dict) else {}
        attempt = whole_number(record.get("attempt"))
        wall = finite_of(record.get("wall"))
        self.event(
            source,
            at,
            wall=wall,
            attempt=attempt,
            step=whole_number(record.get("step")),
            name=name,
            severity=severity_of(record.get("severity")),
            data=data,
        )
        self.is_described |= name in ("run.described", defined_metrics.EVENT)
        if name == "run.goals":
            self.goals(data)
        elif name == "run.start" and attempt is not None:
            self.attempt(attempt, {"started": wall}, keep=True)
            self.is_described |= attempt > 1
        if name == "run.start" and (planned := whole_number(data.get("max_steps"))) is not None:
            self._db.execute(
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
        return self._take_event({**record, "name": "sample", "data": data}, "journal", at)

    def _take_artifact(self, record: Mapping[str, Any]) -> bool:
        path = record.get("path")
        if not isinstance(path, str) or not path:
            return False
        self.touched.add("artifacts")
        self._db.execute(
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
        self._db.execute(
            "INSERT OR REPLACE INTO media (run_id, at, key, step, kind, hash, bytes, name, version,"
            " caption, meta, wall) VALUES (?,?,?,?,?,?,?,?,?,?,?,?)",
            (self.run_id, at, *row),
        )
        return True

    def take_attempts(self, record: Mapping[str, Any], at: int) -> bool:
        """One line of the guard's attempts.jsonl."""
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
            return self._take_event(state, "attempts", at)
        elif kind == "event":
            return self._take_event(record, "attempts", at)
        else:
            return False
        return True

    def take_annotations(self, record: Mapping[str, Any], at: int) -> bool:
        """One line of annotations.jsonl."""
        kind, value = record.get("t"), record.get("value")
        by, wall = text(record.get("by") or ""), finite_of(record.get("wall"))
        said = text_of(value)
        self.touched |= {"tags", "notes"}
        match kind:
            case "tag" | "untag" if said:
                self._db.execute(_TAG_SQL[kind], (self.run_id, text(said)))
            case "note" if said:
                self._db.execute(
                    "INSERT OR REPLACE INTO notes (run_id, at, wall, by, text) VALUES (?,?,?,?,?)",
                    (self.run_id, at, wall, by, text(said)),
                )
            case "note.edit" if isinstance(value, dict):
                return self._edit_note(value, by, wall)
            case "pin" | "unpin":
                self.update({"pinned": int(kind == "pin")})
            case "name" if said:
                self.update({"name": text(said)})
                self._note_event("run.renamed", {"name": said, "by": by}, wall, at)
            case str() if said and kind in _SAYINGS:
                if kind == "metric.pin":
                    self._make_room([said])
                name, key = _SAYINGS[kind]
                self._note_event(name, {key: said, "by": by}, wall, at)
                self.is_described |= kind in WORD_EVENTS
            case "attention.mute" if isinstance(value, dict):
                until = finite_of(value.get("until"))
                data = {"id": text(value.get("id") or ""), "until": until, "by": by}
                self._note_event("attention.mute", data, wall, at)
            case "scores" if isinstance(value, dict):
                return self._take_scores(value, wall, at)
            case "event" if isinstance(value, dict):
                return self._take_event({**value, "wall": wall}, "annotations", at)
            case _:
                return self._restore(kind, value, by, wall, at)
        return True

    def _restore(self, kind: Any, value: Any, by: str, wall: float | None, at: int) -> bool:
        """The rewind at a byte of the journal counts no more, as if it were not there."""
        rewind = whole_of(value)
        if kind != "restore" or rewind is None:
            return False
        if rewind not in self._restored:
            self._restored.add(rewind)
            self.again = "what a rewind took back is restored"
        self._note_event("run.restored", {"rewind": rewind, "by": by}, wall, at)
        return True

    def _take_scores(self, value: Mapping[str, Any], wall: float | None, at: int) -> bool:
        """What an evaluation found of a checkpoint: metrics of its step."""
        step, found = whole_of(value.get("step")), value.get("v")
        if step is None or not 0 <= step < MAX_STEP or not isinstance(found, dict):
            return False
        known = {
            key: real(number)
            for key, number in found.items()
            if is_number(number) and self._may_record(key)
        }
        for key, number in known.items():
            self._pending.setdefault(key, {})[step] = number
        self.goals(value.get("better"), if_new=True)
        data = {"id": text(value.get("id") or ""), "v": known, "stderr": value.get("stderr") or {}}
        data["interval"] = value.get("interval") or {}
        event = {"name": SCORES_EVENT, "data": data, "wall": wall, "step": step}
        return self._take_event(event, "annotations", at) and len(known) == len(found)

    def _scored(self) -> set[str]:
        """The metrics that come of evaluations: no rewind of the program takes them back, in
        whichever order the files are read; a checkpoint that is made again is scored again.
        """
        names = self._db.execute(
            "SELECT DISTINCT v.key FROM events e, json_each(e.data, '$.v') v"
            " WHERE e.run_id = ? AND e.source = 'annotations' AND e.name = ?",
            (self.run_id, SCORES_EVENT),
        )
        return {name for (name,) in names}

    def _edit_note(self, value: Mapping[str, Any], by: str, wall: float | None) -> bool:
        """Another text of a note; none takes it back. A note that is not there stays so."""
        at, said = whole_of(value.get("at")), value.get("text")
        if at is None or not isinstance(said, str):
            return False
        if said:
            self._db.execute(
                'UPDATE notes SET wall = ?, "by" = ?, text = ? WHERE run_id = ? AND at = ?',
                (wall, by, text(said), self.run_id, at),
            )
        else:
            self._db.execute("DELETE FROM notes WHERE run_id = ? AND at = ?", (self.run_id, at))
        return True

    def take_system(self, record: Mapping[str, Any], at: int) -> bool:
        """One line of system.jsonl: figures of the machine by seconds since the run was made, and
        what its watcher told. Neither is a sign of life of the program.
        """
        if record.get("t") == "e":
            is_ours = str(record.get("name")).startswith(WATCHER_EVENTS)
            return is_ours and self._take_event(record, "system", at)
        second, values = record.get("step"), record.get("v")
        if record.get("t") != "m" or not isinstance(values, dict):
            return False
        if not isinstance(second, int) or not 0 <= second < MAX_STEP:
            return False
        whole = True
        for key, value in values.items():
            if not isinstance(value, int | float) or not (
                key in self._figures or self._may_record(key, self._rooms.machine)
            ):
                whole = whole and value is None
                continue
            self._figures.setdefault(key, {})[second] = real(value)
        return whole

    def _note_event(self, name: str, data: dict[str, Any], wall: float | None, at: int) -> None:
        self._take_event({"name": name, "data": data, "wall": wall}, "annotations", at)

    def event(
        self,
        source: str,
        at: int,
        *,
        wall: float | None,
        attempt: int | None,
        step: int | None,
        name: str,
        severity: str,
        data: Mapping[str, Any],
    ) -> None:
        subject = optional_text(data.get("id")) if name in _WITH_SUBJECT else None
        body = dump(alert_data(name, data))
        self.touched.add("events")
        words = text(name), text(severity), subject, body
        self._db.execute(_EVENT, (self.run_id, source, at, wall, attempt, step, *words))

    def attempt(self, attempt: int, given: Mapping[str, Any], *, keep: bool = False) -> None:
        """Set columns of an attempt; with `keep` only those that nobody has set."""
        self.touched.add("attempts")
        self._db.execute(
            "INSERT OR IGNORE INTO attempts (run_id, attempt) VALUES (?,?)", (self.run_id, attempt)
        )
        value = "coalesce({0}, ?)" if keep else "coalesce(?, {0})"
        columns = ", ".join(f"{name} = {value.format(name)}" for name in given)
        self._db.execute(
            f"UPDATE attempts SET {columns} WHERE run_id = ? AND attempt = ?",
            (*given.values(), self.run_id, attempt),
        )

    def update(self, columns: Mapping[str, Any]) -> None:
        """Set columns of the run's own row."""
        assignments = ", ".join(f"{name} = ?" for name in columns)
        self._db.execute(
            f"UPDATE runs SET {assignments} WHERE id = ?", (*columns.values(), self.run_id)
        )

    def goals(self, declared: object, *, if_new: bool = False) -> None:
        """Which way metrics are better, as the run declared it."""
        if goals.record(self._db, self.run_id, declared, if_new=if_new):
            self.touched.add("goals")
        if isinstance(declared, dict):
            self._make_room(key for key in declared if isinstance(key, str))

    def span_ids(self, rows: Iterable[tuple[str, str, str]]) -> None:
        """(name, trace id, span id) of the run's spans that others may look for."""
        given = [(self.run_id, *row) for row in rows]
        put = "INSERT OR IGNORE INTO span_ids (run_id, name, trace_id, span_id) VALUES (?,?,?,?)"
        if self._db.executemany(put, given).rowcount > 0:
            self.touched.add("span_ids")

    def flush(self) -> None:
        """Let the points taken so far become rows."""
        for key, points in self._pending.items():
            self._add(key, points, STEP)
        for key, points in self._figures.items():
            self._add(key, points, SECONDS)
        self._pending, self._figures = {}, {}

    def _add(self, key: str, points: dict[int, float], axis: str) -> None:
        series = self._series.get(key)
        if series is None:
            series = SeriesWriter(self._db, self.run_id, len(self._series), key, axis=axis)
            self._series[key] = series
        elif series.axis != axis:
            if axis == SECONDS:
                return  # the program logs this name itself
            series.clear()
            series.axis = axis
        series.add(points)

    def finish(self) -> None:
        """The last act of a transaction that took lines: points down, the run's row brought up to
        date.
        """
        self.flush()
        columns: dict[str, Any] = {one.name: self._headline(one) for one in COLUMNS}
        steps = [
            series.last_step
            for series in self._series.values()
            if series.last_step is not None and series.axis == STEP
        ]
        columns["last_step"] = max(steps, default=None)
        self.update(columns)
        self._db.execute(
            _BRING_UP,
            (self._first_wall, self._last_wall, self.run_id),
        )

    def _headline(self, one: Headline) -> float | str | None:
        series = self._series.get(one.key)
        if series is None or one.stat == "best":
            return None if series is None else series.best
        if series.last is None:
            return None
        return "nan" if math.isnan(series.last) else series.last

    def forget(self) -> None:
        """Remove all but the run's own row: the files are read again from the start."""
        for table in _TABLES:
            self._db.execute(f"DELETE FROM {table} WHERE run_id = ?", (self.run_id,))
        ended = ("ended_status", "ended_reason", "ended_wall")
        unknown = ("last_step", "first_wall", "last_wall", *ended)
        figures = (one.name for one in COLUMNS)
        self.update({**dict.fromkeys((*figures, *unknown)), "pinned": 0})
        self._series, self._pending, self._figures = {}, {}, {}
        self._rooms.begin()
        self.again = ""
        self._first_wall = self._last_wall = None


def _chosen(db: sqlite3.Connection, run_id: int) -> list[str]:
    """The metrics of a run with a goal or a pin."""
    rows = db.execute(
        "SELECT metric FROM goals WHERE run_id = ?1 UNION SELECT data ->> 'metric'"
        " FROM events WHERE run_id = ?1 AND name = 'metric.pin'",
        (run_id,),
    )
    return [name for (name,) in rows if isinstance(name, str)]


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


def whole_number(value: Any) -> int | None:
    """An integer that SQLite can hold, or None."""
    whole = whole_of(value)
    return whole if whole is not None and -(2**63) <= whole < 2**63 else None


def text(value: Any) -> str:
    """Any text as SQLite can hold it: lone surrogates escaped, bounded."""
    return str(value)[:_MAX_TEXT_CHARS].encode("utf-8", "backslashreplace").decode()


def optional_text(value: Any) -> str | None:
    return None if value is None else text(value)


def dump(value: Any) -> str:
    """Strict JSON; NaN and Inf become null."""
    return json.dumps(strict_json(value), separators=(",", ":"), allow_nan=False)
