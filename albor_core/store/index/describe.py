"""What a run's small files (run.json, launch.json, exit.json) say, as columns of its row."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from albor_core.run.rundir import RunDir, read_json
from albor_core.run.values import defined_metrics
from albor_core.run.values.lenient import finite_of
from albor_core.store.index.annotation_lines import WORD_EVENTS
from albor_core.store.index.cells import dump, optional_text, text, whole_number
from albor_core.store.index.ending import Ending, LastWords, ending
from albor_core.store.index.write import RunWriter, experiment_id

_COLUMNS = {"schema", "id", "experiment", "name", "kind", "created", "argv", "seed", "host"}
_MAX_FACT_CHARS = 4096  # a dirty patch stays in the run directory


def signature(run: RunDir) -> tuple[tuple[int, int, int] | None, ...]:
    """Moves when a small file is replaced; the first entry is None when the run is gone."""
    return tuple(_stamp(path) for path in (run.run_json, run.launch, run.exit))


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def describe(
    db: sqlite3.Connection,
    writer: RunWriter,
    run: RunDir,
    meta: Mapping[str, Any],
    exit_json: Mapping[str, Any] | None,
) -> None:
    """Fill the columns that come from run.json and launch.json. A rename by the user wins over
    run.json; what a guarded program told its tracker fills in what its guard was not told. How many
    lines were lost, which exit.json says, is one of the facts.
    """
    meta = _filled_in(meta, _newest(db, writer.run_id, "run.described"))
    renamed = _newest(db, writer.run_id, "run.renamed")
    name = renamed.get("name") if renamed else meta.get("name")
    writer.goals(meta.get("goals"), if_new=True)  # the program's own, in the journal, win
    found = meta.get("git")
    git: Mapping[str, Any] = found if isinstance(found, dict) else {}
    dirty = git.get("dirty", meta.get("git_dirty"))
    argv = meta.get("argv")
    facts = {k: _bounded(v) for k, v in meta.items() if k not in _COLUMNS}
    if defined := _defined(db, writer.run_id):
        facts[defined_metrics.FACT] = defined
    for word, event in WORD_EVENTS.items():
        if said := _newest(db, writer.run_id, event).get("word"):
            facts[word] = said
    for key in ("lines_lost", "console_bytes_lost"):
        if lost := whole_number((exit_json or {}).get(key)):
            facts[key] = lost
    writer.update(
        {
            "experiment_id": experiment_id(db, text(meta.get("experiment") or "")),
            "name": text(name or run.id),
            "kind": text(meta.get("kind") or ""),
            "created": finite_of(meta.get("created")),
            "path": text(run.path),
            "host": optional_text(meta.get("host")),
            "seed": whole_number(meta.get("seed")),
            "git_commit": optional_text(git.get("commit", meta.get("git_commit"))),
            "git_dirty": None if dirty is None else int(bool(dirty)),
            "argv": dump([text(word) for word in argv] if isinstance(argv, list) else []),
            "facts": dump(facts),
            "max_steps": _max_steps(db, writer.run_id, run, meta),
        }
    )


def _defined(db: sqlite3.Connection, run_id: int) -> dict[str, dict[str, str]]:
    """What the program said of its metrics; what it said last of one counts."""
    rows = db.execute(
        "SELECT data FROM events WHERE run_id = ? AND source = 'journal' AND name = ? ORDER BY at",
        (run_id, defined_metrics.EVENT),
    )
    found: dict[str, dict[str, str]] = {}
    for said in (json.loads(row[0]) for row in rows):
        name, about = said.get("metric"), {w: said[w] for w in ("x", "summary") if w in said}
        if isinstance(name, str) and (name in found or len(found) < defined_metrics.MOST):
            found[name] = {**found.get(name, {}), **about}
    return found


def _filled_in(meta: Mapping[str, Any], described: Mapping[str, Any]) -> Mapping[str, Any]:
    given = meta.get("given")
    kept = set(given) if isinstance(given, list) else set()
    kept |= {name for name, value in meta.items() if value is not None} - {"experiment", "name"}
    said = {name: value for name, value in described.items() if not name.startswith("_")}
    return {**meta, **{name: value for name, value in said.items() if name not in kept}}


def _bounded(value: Any) -> Any:
    if isinstance(value, str):
        return value[:_MAX_FACT_CHARS]
    if isinstance(value, dict):
        return {key: _bounded(item) for key, item in value.items()}
    return value


def _max_steps(
    db: sqlite3.Connection, run_id: int, run: RunDir, meta: Mapping[str, Any]
) -> int | None:
    begun = _newest(db, run_id, "run.start")
    again = begun if meta.get("kind") == "track" and (begun.get("_attempt") or 0) > 1 else {}
    for document in (
        again,
        read_json(run.launch) or {},
        meta,
    ):  # a resumed run may go on for longer
        if (planned := whole_number(document.get("max_steps"))) is not None:
            return planned
    row = db.execute(
        "SELECT value FROM params WHERE run_id = ? AND key = 'training.max_steps'", (run_id,)
    ).fetchone()
    if row is not None:
        return whole_number(json.loads(row[0]))
    return whole_number(begun.get("max_steps"))


def conclude(
    db: sqlite3.Connection, writer: RunWriter, exit_json: Mapping[str, Any] | None
) -> Ending:
    """Decide whether and how the run ended, and write it down."""
    run_id = writer.run_id
    attempts = db.execute("SELECT attempts FROM runs WHERE id = ?", (run_id,)).fetchone()[0]
    state = _newest(db, run_id, "guard.state")
    end = _newest(db, run_id, "run.end")
    judged = db.execute(
        "SELECT reason, attempt FROM attempts WHERE run_id = ? AND reason IS NOT NULL"
        " ORDER BY attempt DESC LIMIT 1",
        (run_id,),
    ).fetchone()
    said = LastWords(
        attempts=attempts,
        guard_state=state.get("state"),
        guard_wall=state.get("_wall"),
        guard_reason=judged[0] if judged else None,
        guard_attempt=judged[1] if judged else None,
        end_attempt=end.get("_attempt"),
        end_status=optional_text(end.get("status")),
        end_reason=optional_text(end.get("reason")),
        end_wall=end.get("_wall"),
    )
    found = ending(said, exit_json)
    writer.update(
        {"ended_status": found.status, "ended_reason": found.reason, "ended_wall": found.wall}
    )
    return found


def _newest(db: sqlite3.Connection, run_id: int, name: str) -> dict[str, Any]:
    """Data of the newest event of that name, with `_wall` and `_attempt`; {} without one."""
    row = db.execute(
        "SELECT data, wall, attempt FROM events WHERE run_id = ? AND name = ?"
        " ORDER BY source, at DESC LIMIT 1",
        (run_id, name),
    ).fetchone()
    return {} if row is None else {**json.loads(row[0]), "_wall": row[1], "_attempt": row[2]}
