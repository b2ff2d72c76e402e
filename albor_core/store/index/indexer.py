"""The index process: follows a run's files and keeps its own store, and its share of the global
one, current.

One per run, by the record lock on index.lock. Rows and the byte they come from are one transaction,
so a killed indexer loses and doubles nothing; training never waits for it. It ends by itself when
no process works on the run and every byte is indexed. A damaged local store is set aside, and
one that was removed let go: both are made again from the files.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

from albor_core.run.errors import InUseError, NotFoundError, StoreError, TryAgainError
from albor_core.run.exit import read_exit
from albor_core.run.files.pulled_file import pulled_from
from albor_core.run.liveness import Liveness, take_lock
from albor_core.run.rundir import RunDir, not_plain
from albor_core.run.values.quantity import byte_size
from albor_core.store.file.connect import (
    as_store_error,
    checkpoint_if_large,
    exclusive,
    is_damage,
    open_writer,
    transaction,
)
from albor_core.store.file.paths import global_store, local_store
from albor_core.store.index.annotation_lines import AnnotationLines
from albor_core.store.index.annotations import append_annotation
from albor_core.store.index.describe import conclude, describe, signature
from albor_core.store.index.global_share import TABLES, share
from albor_core.store.index.sources import (
    FILES,
    LineBatch,
    Parser,
    Position,
    files_of,
    is_cut,
    is_same_file,
    parse_journal,
    parse_plain,
    read_batch,
)
from albor_core.store.index.write import RunWriter
from albor_core.store.spans.ids import SpanIds

POLL_S, QUIET_S = 0.2, 1.0
SHARE_S, PREVIEW_S = 1.0, 30.0
WAL_ALARM_BYTES = 64 << 20
LAST_TRIES = 60  # a second each, for a global store that stays locked or damaged
_GLOBAL_BUSY_MS = 200  # the local store must not wait for the global one
OF_CONTENT = (ArithmeticError, ValueError, RecursionError)
"""What comes of data that is beyond Python or SQLite: a number, a text, a depth."""


class Watches(Protocol):
    """Who looks at the run while it is followed (store/watch/watcher.py). Nothing of it raises."""

    def look(self, living: Liveness) -> bool:
        """Whether more is to be looked at, soon."""

    def finish(self) -> None: ...
    def close(self) -> None: ...


class Indexer:
    """Indexes one run. Holds index.lock from construction to `close`; raises InUseError if another
    process does.

    Belongs to one thread. `global_path` None leaves the global store alone; `local_path` is for
    rebuilds.
    """

    def __init__(
        self, run: RunDir, global_path: Path | None, *, local_path: Path | None = None
    ) -> None:
        run.metadata()  # NotFoundError where there is no run
        run.index_lock.parent.mkdir(mode=0o700, exist_ok=True)
        self._lock = take_lock(run.index_lock)
        self._run, self._global = run, global_path
        self._path = local_path or local_store(run)
        self._sources: tuple[tuple[str, Path, Parser], ...] = tuple(
            (name, path, parse_journal if name in ("journal", "system") else parse_plain)
            for name, path in files_of(run).items()
        )
        self._db: sqlite3.Connection | None = None
        self._writer: RunWriter | None = None
        self._positions: dict[str, Position] = {}
        self._seen: tuple[tuple[int, int, int] | None, ...] | None = None
        self._first_share = True
        self._behind = False
        self._stop = self._has_warned_of_wal = False
        self._complaint = ""
        self._share_due = self._preview_due = 0.0
        self._unshared = self._unpreviewed = True

    def __enter__(self) -> Indexer:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def stop(self) -> None:
        """Let `run_until_ended` return soon. Safe in a signal handler."""
        self._stop = True

    def close(self) -> None:
        """Checkpoint and release the store and the lock."""
        self.disconnect()
        os.close(self._lock)

    def step(self) -> int:
        """Index what is new, up to a batch of each file; returns the number of lines.

        Raises NotFoundError when the run directory is gone, TryAgainError while another process
        holds the local store, StoreError when it cannot be used at all.
        """
        try:
            return self._index()
        except sqlite3.DatabaseError as error:
            self.disconnect()
            if not is_damage(error):
                raise as_store_error(self._path, error) from error
            self._quarantine(error)
            return self._index()

    def drain(self) -> int:
        """Index until nothing is left, then share; returns the number of lines."""
        total = 0
        while lines := self.step():
            total += lines
        self.publish(whole=True)
        return total

    def run_until_ended(self, watcher: Watches | None = None) -> None:
        """Follow the run until no process holds its locks and all is indexed, or until `stop`.
        `watcher` looks at it each time, and once more at its end.
        """
        try:
            self._follow(watcher)
        finally:
            if watcher is not None:
                watcher.close()

    def _follow(self, watcher: Watches | None) -> None:
        pause, refused = POLL_S, 0
        while not self._stop:
            living = self._run.liveness()
            try:
                lines = self.step()
                if watcher is not None:
                    lines += watcher.look(living)
                is_drained = not living.is_alive and not lines
                if watcher is not None and is_drained:
                    watcher.finish()
                    watcher = None
                    continue  # what it told is indexed too
                self.publish(whole=is_drained)
                refused = refused + 1 if is_drained and self._unshared else 0
                if is_drained and (not self._unshared or refused > LAST_TRIES):
                    return
                pause = POLL_S if lines else min(QUIET_S, pause * 1.5)
            except TryAgainError as error:
                log_line(error.message)
                pause = QUIET_S
            if not self._behind:
                time.sleep(pause)
        with contextlib.suppress(TryAgainError):
            self.publish(whole=True)

    def publish(self, *, whole: bool = False) -> None:
        """Send the run's share to the global store if one is due; `whole` sends it now, previews
        included.

        A busy or unusable global store is left for later: the local one has everything.
        """
        now = time.monotonic()
        if self._global is None or self._db is None or not self._unshared:
            self._unshared = self._unshared and self._global is not None
            return
        if not whole and now < self._share_due:
            return
        previews = whole or now >= self._preview_due
        self._share_due = now + SHARE_S
        try:
            self._share(self._global, previews)
        except (TryAgainError, StoreError, sqlite3.DatabaseError, OSError) as error:
            self._print_error(
                f"{self._global}: {error}; the run's own store is complete, and once this one can"
                " be written, albor db rebuild brings it up to date"
            )
            return
        self._unshared = self._unpreviewed and not previews
        if previews:
            self._preview_due = now + PREVIEW_S
            self._unpreviewed = False

    def _print_error(self, message: str) -> None:
        if message != self._complaint:  # once, not every second
            self._complaint = message
            log_line(message)

    def _share(self, path: Path, previews: bool) -> None:
        assert self._db is not None and self._writer is not None
        with exclusive(path, wait_s=_GLOBAL_BUSY_MS / 1000):
            target = open_writer(path, busy_ms=_GLOBAL_BUSY_MS)
            try:
                if self._first_share and self._knows_more(target):
                    log_line(f"{path}: has more of {self._run.id} than its files; left as it is")
                    return
                with transaction(target):
                    share(
                        self._db,
                        self._run,
                        target,
                        tables=TABLES if self._first_share else self._writer.touched,
                        previews=previews,
                    )
                checkpoint_if_large(target, path)
            finally:
                target.close()  # under the lock too: the last connection to close checkpoints
        self._writer.touched.clear()
        self._first_share = False

    def _knows_more(self, target: sqlite3.Connection) -> bool:
        """Whether the store of all runs has lines of a run at rest that were cut off its files."""
        row = target.execute("SELECT id FROM runs WHERE run = ?", (self._run.id,)).fetchone()
        known = {} if row is None else load_positions(target, row[0])
        is_more = any(is_cut(p, known[n]) for n, p, _ in self._sources if n in known)
        own = self._positions["journal"].offset
        return is_more and known["journal"].offset > own and not self._run.liveness().is_alive

    def _describe(
        self,
        db: sqlite3.Connection,
        writer: RunWriter,
        words: Mapping[str, Any] | None,
        *,
        is_changed: bool,
    ) -> None:
        """What the run is and how it ended, of all that has been taken in."""
        writer.finish()
        if is_changed or "attempts" in writer.touched:
            self._name_spans(db, writer)
        if is_changed or writer.is_described or "params" in writer.touched:
            writer.is_described = False
            describe(db, writer, self._run, self._run.metadata(), words)
        if not self._behind:  # an end is only said with all that came before it
            conclude(db, writer, words)

    def _name_spans(self, db: sqlite3.Connection, writer: RunWriter) -> None:
        """The ids by which the run and its attempts are found in traces, sent or not."""
        found = db.execute("SELECT attempt FROM attempts WHERE run_id = ?", (writer.run_id,))
        writer.span_ids(SpanIds.of(self._run.metadata()).rows(number for (number,) in found))

    def _index(self) -> int:
        for _, path, _ in self._sources:
            if what := not_plain(path):  # what is indexed of it stays
                raise StoreError(f"{path}: {what}, not a plain file", hint="put the file back")
        db, writer = self._connection()
        seen = signature(self._run)
        if seen[0] is None:
            raise NotFoundError(f"{self._run.path}: the run directory is gone")
        if self._is_removed():
            log_line(f"{self._path}: was removed, indexing again")
            self._let_go()
            db, writer = self._connection()
        # who says that the run ended is asked before the journal, which has all its lines by then
        words = read_exit(self._run)
        sources = [*zip(self._sources, self._takers(writer), strict=True)]
        batches = [
            (name, take, read_batch(path, self._positions[name], parse))
            for (name, path, parse), take in reversed(sources)
        ][::-1]
        was_behind = self._behind
        self._behind = any(batch is not None and batch.is_full for _, _, batch in batches)
        has_news = seen != self._seen or was_behind
        if not has_news and not any(batch for _, _, batch in batches):
            if self._replaced():
                self._forget(db, writer)
                return self._index()
            return 0
        positions = dict(self._positions)
        with transaction(db):
            for name, take, batch in batches:
                if batch is not None:
                    positions[name] = batch.counting(_take_all(take, batch))
                    _save_position(db, writer.run_id, name, positions[name])
            self._describe(db, writer, words, is_changed=seen != self._seen)
        self._seen, self._positions = seen, positions
        self._unshared = self._unpreviewed = True
        if writer.again:
            self._forget(db, writer, writer.again)
            return self._index()
        checkpoint_if_large(db, self._path)
        self._watch_wal()
        return sum(len(batch.lines) for _, _, batch in batches if batch is not None)

    def _watch_wal(self) -> None:
        """Report once that an open read transaction keeps the WAL from being emptied."""
        size = _size(self._path, "-wal")
        if size <= WAL_ALARM_BYTES or self._has_warned_of_wal:
            self._has_warned_of_wal = self._has_warned_of_wal and size > WAL_ALARM_BYTES // 2
            return
        self._has_warned_of_wal = True
        log_line(f"{self._path}: its WAL file has {byte_size(size)}, since a reader keeps it open")
        data = {"path": str(self._path), "bytes": size, "hint": "close what reads this store"}
        self._announce("store.wal_large", data)

    def _announce(self, name: str, data: dict[str, Any]) -> None:
        """An event of our own, said where a rebuild finds it too."""
        if pulled_from(self._run):
            return  # the file is a copy
        event = {"name": name, "severity": "warning", "data": data}
        with contextlib.suppress(OSError):
            append_annotation(self._run, "event", event, by="index")

    @staticmethod
    def _takers(writer: RunWriter) -> tuple[Callable[[dict[str, Any], int], bool], ...]:
        return (
            writer.take_journal,
            writer.take_attempts,
            AnnotationLines(writer).add,
            writer.take_system,
        )

    def _connection(self) -> tuple[sqlite3.Connection, RunWriter]:
        if self._db is None or self._writer is None:
            unclean = _size(self._path, "-wal") > 0  # the last writer was killed
            db = self._db = open_writer(self._path)
            if unclean and (bad := db.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
                raise sqlite3.DatabaseError(f"quick_check: {bad}")
            with transaction(db):
                self._writer = RunWriter(db, self._run.own_id)
            self._positions = load_positions(db, self._writer.run_id)
            self._seen, self._first_share = None, True
            self._unshared = self._unpreviewed = True
            if self._is_of_others():
                self._forget(db, self._writer)
        return self._db, self._writer

    def _is_of_others(self) -> bool:
        """Whether the store was made from other files. What was cut off those of a run at rest is
        in the store alone, and stays there; a run that goes on writes in its place.
        """
        sources = [(path, self._positions[name]) for name, path, _ in self._sources]
        other = [one for one in sources if not is_same_file(*one)]
        return bool(other) and (
            self._run.liveness().is_alive or not all(is_cut(*one) for one in other)
        )

    def _replaced(self) -> bool:
        """Whether a source became shorter than what is indexed of it, and is another now."""
        is_short = any(_size(p) < self._positions[n].offset for n, p, _ in self._sources)
        return is_short and self._is_of_others()

    def _forget(
        self, db: sqlite3.Connection, writer: RunWriter, why: str = "its files were replaced or cut"
    ) -> None:
        log_line(f"{self._run.path}: {why}; indexing from the start")
        with transaction(db):
            writer.clear()
        self._positions = load_positions(db, writer.run_id)
        self._seen, self._first_share = None, True

    def _is_removed(self) -> bool:
        """Whether the store alone was: if our lock is gone too, the whole run is being removed."""
        return not self._path.exists() and self._run.index_lock.exists()

    def _let_go(self) -> None:
        """Close and delete a store without a name, and its side files, which belong to no other."""
        self.disconnect()
        for suffix in ("-wal", "-shm"):
            self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)

    def _quarantine(self, error: sqlite3.Error) -> None:
        """Set the damaged store aside, all its files together, and say so where a rebuild finds it
        too.
        """
        aside = self._path.parent / f"corrupt-{time.strftime('%Y%m%dT%H%M%S')}-{os.getpid()}"
        aside.mkdir(mode=0o700, exist_ok=True)
        for suffix in ("", "-wal", "-shm"):
            source = self._path.with_name(self._path.name + suffix)
            with contextlib.suppress(FileNotFoundError):
                source.replace(aside / source.name)
        log_line(f"{self._path}: damaged ({error}); kept in {aside}, indexing again")
        self._announce("store.quarantined", {"path": str(aside), "error": str(error)})

    def disconnect(self) -> None:
        """Let go of the store, checkpointed; the lock stays. The next `step` connects again."""
        db, self._db, self._writer = self._db, None, None
        if db is not None:
            with contextlib.suppress(sqlite3.Error):  # closing a damaged store may fail too
                db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            with contextlib.suppress(sqlite3.Error):
                db.close()


def _take_all(take: Callable[[dict[str, Any], int], bool], batch: LineBatch) -> int:
    """Give every whole line to `take`; returns how many it had no use for."""
    ignored = 0
    for at, record in batch.lines:
        try:
            ignored += record is not None and not take(record, at)
        except OF_CONTENT:
            ignored += 1
    return ignored


def load_positions(db: sqlite3.Connection, run_id: int) -> dict[str, Position]:
    """How far each file of a run is indexed, by the names of `files_of`."""
    rows = db.execute(
        "SELECT file, offset, tail, tail_crc, head_crc, lines, damaged, ignored FROM journal"
        " WHERE run_id = ?",
        (run_id,),
    )
    fresh = {name: Position() for name in FILES}
    return {**fresh, **{row[0]: Position(*row[1:]) for row in rows}}


def _save_position(db: sqlite3.Connection, run_id: int, file: str, position: Position) -> None:
    db.execute(
        "INSERT OR REPLACE INTO journal (run_id, file, offset, tail, tail_crc, head_crc, lines,"
        " damaged, ignored) VALUES (?,?,?,?,?,?,?,?,?)",
        (run_id, file, *asdict(position).values()),
    )


def _size(path: Path, suffix: str = "") -> int:
    try:
        return path.with_name(path.name + suffix).stat().st_size
    except OSError:
        return 0


def index_now(run: RunDir, global_path: Path | None = None) -> int:
    """Index a run here and now; 0 lines where an indexer is at work already."""
    try:
        with Indexer(run, global_path or global_store()) as indexer:
            return indexer.drain()
    except InUseError:
        return 0


def log_line(message: str) -> None:
    """Write a line to the log of the index process."""
    sys.stderr.write(f"index: {message}\n")
    sys.stderr.flush()
