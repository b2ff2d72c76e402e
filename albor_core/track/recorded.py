"""What a run has recorded so far: its last step, and up to which step each metric goes.

From its store, and from the lines of the journal that the store does not have yet: after a kill -9
those are what matters. Where there is no usable store, the journal's end is read alone, which is
right as long as steps do not go back over more than `MOST_UNREAD` of it.
"""

from __future__ import annotations

import json
import math
import os
import sqlite3
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from albor_core.run.errors import AlborError
from albor_core.run.rundir import RunDir, open_plain
from albor_core.run.values.directions import is_background, is_validation
from albor_core.run.values.lenient import real

MOST_UNREAD = 32 << 20  # bytes of a journal, read in half a second


@dataclass
class Recorded:
    """The newest step of each metric, by its recorded name, of points that count."""

    newest: dict[str, int] = field(default_factory=dict)
    unread: Mapping[tuple[str, int], float] = field(default_factory=dict)
    """By metric and step what the store did not have yet."""
    run: RunDir | None = None
    """Whose store has the others; None where it has none."""
    stored_to: int = sys.maxsize
    """The last step of the store that counts."""

    @property
    def last_step(self) -> int | None:
        return max(self.newest.values(), default=None)

    def has_any_from(self, step: int, keys: Mapping[str, Any]) -> bool:
        """Whether one of `keys` was recorded at `step` or later."""
        return any(self.newest.get(key, -1) >= step for key in keys)

    def is_evaluation(self, keys: Mapping[str, Any]) -> bool:
        """Whether these are what the evaluation of a checkpoint says: figures of validation alone,
        where the run has others, which training would begin with.
        """
        theirs = (key for key in self.newest if not is_background(key))
        return all(map(is_validation, keys)) and not all(map(is_validation, theirs))

    def values_at(self, step: int, keys: Iterable[str]) -> dict[str, float]:
        """What was recorded of `keys` at a step. Reads the store only where one of them goes that
        far.
        """
        asked = [key for key in keys if self.newest.get(key, -1) >= step]
        found = {key: self.unread[key, step] for key in asked if (key, step) in self.unread}
        rest = [key for key in asked if key not in found]
        if rest and self.run is not None and step <= self.stored_to:
            found |= _stored(self.run, step, rest)
        return found

    def after(self, step: int) -> int:
        """How many metrics have values after `step`."""
        return sum(last > step for last in self.newest.values())


def recorded(run: RunDir) -> Recorded:
    """The counts of a run that no process writes. Raises OSError where its journal cannot be
    read."""
    with suppress(sqlite3.DatabaseError), _store_of(run) as db:
        if db is not None:
            db.execute("BEGIN")
            if (found := _of_store(db, run)) is not None:
                return found
    return _with_tail(Recorded(), run, 0, None)


@contextmanager
def _store_of(run: RunDir) -> Iterator[sqlite3.Connection | None]:
    """The store of a run; None if it cannot be opened."""
    from albor_core.store.file.connect import open_reader, remove_copy  # noqa: PLC0415  resume only
    from albor_core.store.file.paths import local_store  # noqa: PLC0415

    try:
        db, copy = open_reader(local_store(run))
    except (AlborError, OSError):
        yield None
        return
    try:
        yield db
    finally:
        with suppress(sqlite3.Error):
            db.close()
        remove_copy(copy)


def _stored(run: RunDir, step: int, keys: Sequence[str]) -> dict[str, float]:
    """Values of a store at a step; of one that cannot be read, none."""
    from albor_core.store.file.axis import STEP  # noqa: PLC0415  resume only

    with suppress(sqlite3.DatabaseError), _store_of(run) as db:
        if db is not None:
            rows = db.execute(
                "SELECT k.name, m.value FROM runs r JOIN keys k ON k.run_id = r.id"
                " JOIN metrics m ON m.run_id = r.id AND m.key_id = k.key_id AND m.step = ?"
                " WHERE r.run = ? AND k.axis = ? AND k.name IN (SELECT value FROM json_each(?))",
                (step, run.own_id, STEP, json.dumps([*keys])),
            )
            return {name: math.nan if value is None else value for name, value in rows}
    return {}


def _of_store(db: sqlite3.Connection, run: RunDir) -> Recorded | None:
    """What the store has recorded; None if it does not belong to this journal."""
    from albor_core.store.file.axis import STEP, WALL_KEY  # noqa: PLC0415  resume only
    from albor_core.store.index.indexer import load_positions  # noqa: PLC0415
    from albor_core.store.index.sources import is_same_file  # noqa: PLC0415

    row = db.execute("SELECT id FROM runs WHERE run = ?", (run.own_id,)).fetchone()
    if row is None:
        return None
    position = load_positions(db, row[0])["journal"]
    if not is_same_file(run.journal, position):
        return None
    keys = db.execute(
        "SELECT name, last_step, key_id FROM keys"
        " WHERE run_id = ? AND axis = ? AND last_step IS NOT NULL AND name <> ?",
        (row[0], STEP, WALL_KEY),
    ).fetchall()
    known = Recorded({name: step for name, step, _ in keys})
    return _with_tail(known, run, position.offset, _Points(db, row[0], {k[0]: k[2] for k in keys}))


@dataclass
class _Points:
    """The points of a store: asked where a rewind took some back."""

    db: sqlite3.Connection
    run_id: int
    ids: Mapping[str, int]

    def newest_until(self, key: str, step: int) -> int | None:
        row = self.db.execute(
            "SELECT max(step) FROM metrics WHERE run_id = ? AND key_id = ? AND step <= ?",
            (self.run_id, self.ids.get(key, -1), step),
        ).fetchone()
        return None if row is None or row[0] is None else int(row[0])


def _with_tail(known: Recorded, run: RunDir, offset: int, points: _Points | None) -> Recorded:
    """What the journal says from byte `offset` on, after what is known before it. From its end:
    what a rewind took back has been said before it.
    """
    counts_to = sys.maxsize
    unread: dict[str, int] = {}
    values: dict[tuple[str, int], float] = {}
    for record in _newest_first(run, offset):
        step = record.get("to" if record.get("t") == "r" else "step")
        if not isinstance(step, int):
            continue
        if record.get("t") == "r":
            counts_to = min(counts_to, step)
        elif record.get("t") == "m" and step <= counts_to:
            unread.update((key, step) for key in record["v"] if unread.get(key, -1) < step)
            for key, value in record["v"].items():
                values.setdefault((key, step), math.nan if value is None else real(value))
    for key, last in known.newest.items():
        left: int | None = last
        if last > counts_to:
            left = None if points is None else points.newest_until(key, counts_to)
        if left is not None:
            unread[key] = max(unread.get(key, -1), left)
    return Recorded(unread, values, None if points is None else run, counts_to)


def _newest_first(run: RunDir, offset: int) -> Iterator[dict[str, Any]]:
    """Whole, undamaged lines from byte `offset` on, of at most MOST_UNREAD bytes."""
    from albor_core.store.index.sources import parse_journal  # noqa: PLC0415  resume only

    try:
        file = open_plain(run.journal)
    except FileNotFoundError:
        return
    with file:
        start = max(offset, os.fstat(file.fileno()).st_size - MOST_UNREAD)
        file.seek(start)
        if start > offset:
            file.readline()  # the rest of a line
        lines = file.readlines()
    for raw in reversed(lines):
        record = parse_journal(raw) if raw.endswith(b"\n") else None
        if record is not None:
            yield record
