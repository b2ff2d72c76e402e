"""What a run kept of pictures, tables and files, as rows that say where each lies."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from albor_core.run.files.media_file import media_path
from albor_core.run.rundir import RunDir
from albor_core.store.file.paths import local_store
from albor_core.store.query.table import RunList

_COLUMNS = (
    "m.at, m.key, m.step, m.kind, m.hash, m.bytes, m.name, m.version, m.caption, m.meta, m.wall"
)


@dataclass(frozen=True)
class MediaRow:
    """One medium. Texts are as they were recorded: data, never a path or a format to trust.

    `meta` has `format`, and by kind: width and height (image, figure), rows and columns (table),
    seconds and rate (audio), bins and count (histogram), role, path and files (artifact). `name`
    and `version` are an artefact's (`name:v3`).
    """

    run: str
    folder: Path
    at: int
    key: str
    step: int | None
    kind: str
    hash: str
    bytes: int | None
    name: str
    version: int | None
    caption: str
    meta: Mapping[str, Any] = field(default_factory=dict)
    wall: float | None = None

    @property
    def format(self) -> str:
        """What it is written in: png, jpeg, json, wav, ..."""
        return str(self.meta.get("format") or "")

    @property
    def data(self) -> Any:
        """The content of a small one, which has no file; None of others."""
        return self.meta.get("data")

    @property
    def path(self) -> Path | None:
        """The path of its file, which is named by its hash; None if it has none, or if that was
        removed since (`albor runs gc --media`).
        """
        place = None if self.data is not None else media_path(self.folder, self.hash, self.format)
        is_there = place is not None and place.is_file() and not place.is_symlink()
        return place if is_there else None

    def to_json(self) -> dict[str, Any]:
        """The row for documents: the content of a small medium is in `meta`."""
        path = self.path
        told = {name: getattr(self, name) for name in _TOLD}
        return {**told, "meta": dict(self.meta), "path": None if path is None else str(path)}


_TOLD = ("key", "step", "kind", "hash", "bytes", "name", "version", "caption", "wall")


@dataclass(frozen=True)
class MediaKey:
    """All media of one key and kind; `last` is the newest."""

    key: str
    kind: str
    count: int
    first_step: int | None
    last_step: int | None
    last: MediaRow


@dataclass(frozen=True)
class ArtifactVersion:
    """A version of an artefact that a run made or used (`role`), and all runs that did either."""

    name: str
    version: int
    role: str
    made_by: tuple[str, ...] = ()
    used_by: tuple[str, ...] = ()

    @property
    def reference(self) -> str:
        return f"{self.name}:v{self.version}"


def media(run: RunDir) -> list[MediaRow]:
    """All media of a run in the order they were recorded, but for those that a rewind took back.

    What the run's own store knows: `drain_index` brings it up to date. Raises NotFoundError,
    StoreError.
    """
    with RunList(local_store(run)) as table:
        return media_in(table, run)


def media_in(table: RunList, run: RunDir) -> list[MediaRow]:
    """`media`, of a store that is open; the global one knows artefacts alone."""
    return [_media_row(run, row) for row in table.query(lambda db: rows_of(db, _name_in(db, run)))]


def media_keys(table: RunList, run: RunDir) -> tuple[MediaKey, ...]:
    """The media of a run by key, but for artefacts: for the cost of the keys, not of the media."""
    found = []
    for count, first, last, *row in table.query(lambda db: _rows_of_keys(db, _name_in(db, run))):
        newest = _media_row(run, row)
        found.append(MediaKey(newest.key, newest.kind, count, first, last, newest))
    return tuple(found)


def media_steps(table: RunList, run: RunDir, key: str, kind: str) -> tuple[int | None, ...]:
    """The steps of all media of one key and kind, in the order they were recorded."""
    return tuple(step for (step,) in table.query(
        lambda db: _rows_of_key(db, _name_in(db, run), key, kind, "m.step")
    ))  # fmt: skip


def nth_medium(table: RunList, run: RunDir, key: str, kind: str, nth: int) -> MediaRow | None:
    """The medium at a place of `media_steps`; None beyond it."""
    rows = table.query(
        lambda db: _rows_of_key(db, _name_in(db, run), key, kind, _COLUMNS, limit=1, offset=nth)
    )
    return _media_row(run, rows[0]) if rows else None


def _rows_of_key(
    db: sqlite3.Connection,
    run: str,
    key: str,
    kind: str,
    columns: str,
    *,
    limit: int = -1,
    offset: int = 0,
) -> list[Any]:
    if not _knows_media(db):
        return []
    return db.execute(
        f"SELECT {columns} FROM media m JOIN runs r ON r.id = m.run_id WHERE r.run = ?"
        " AND m.key = ? AND m.kind = ? ORDER BY m.at LIMIT ? OFFSET ?",
        (run, key, kind, limit, max(0, offset)),
    ).fetchall()


def rows_of(db: sqlite3.Connection, run: str) -> list[Any]:
    """The rows of a run of a store as columns, in order."""
    if not _knows_media(db):
        return []
    return db.execute(
        f"SELECT {_COLUMNS} FROM media m JOIN runs r ON r.id = m.run_id WHERE r.run = ?"
        " ORDER BY m.at",
        (run,),
    ).fetchall()


def _rows_of_keys(db: sqlite3.Connection, run: str) -> list[Any]:
    if not _knows_media(db):
        return []
    return db.execute(
        f"SELECT k.count, k.first, k.last, {_COLUMNS} FROM (SELECT m.run_id, max(m.at) AS at,"
        " count(*) AS count, min(m.step) AS first, max(m.step) AS last FROM media m"
        " JOIN runs r ON r.id = m.run_id WHERE r.run = ? AND m.kind <> 'artifact'"
        " GROUP BY m.key, m.kind) k JOIN media m ON m.run_id = k.run_id AND m.at = k.at"
        " ORDER BY m.kind, m.key",
        (run,),
    ).fetchall()


def _media_row(run: RunDir, row: Any) -> MediaRow:
    at, key, step, kind, digest, size, name, version, caption, meta, wall = row
    found = json.loads(meta)
    return MediaRow(
        run.id, run.path, at, key, step, kind, digest, size, name, version, caption, found, wall
    )


def versions_of(table: RunList, run: str) -> tuple[ArtifactVersion, ...]:
    """The versions that `run` made or used, and what other runs of the store did with them. Homes
    count for themselves: only where the contents are the same too, a version is the same.
    """
    rows = table.query(lambda db: _version_rows(db, run))
    found: dict[tuple[str, int, str], dict[str, list[str]]] = {}
    for name, version, digest, role, who in rows:
        known = found.setdefault((name, version, digest), {"made": [], "used": []})
        if role in known and who not in known[role]:
            known[role].append(who)
    return tuple(
        ArtifactVersion(name, version, role, tuple(known["made"]), tuple(known["used"]))
        for (name, version, _), known in found.items()
        for role in ("made", "used")
        if run in known[role]
    )


def _version_rows(db: sqlite3.Connection, run: str) -> list[Any]:
    if not _knows_media(db):
        return []
    return db.execute(
        "SELECT m.name, m.version, m.hash, json_extract(m.meta, '$.role'), r.run FROM media m"
        " JOIN runs r ON r.id = m.run_id WHERE m.kind = 'artifact'"
        " AND (m.name, m.version, m.hash) IN (SELECT o.name, o.version, o.hash FROM media o"
        " JOIN runs mine ON mine.id = o.run_id WHERE mine.run = ? AND o.kind = 'artifact')"
        " ORDER BY m.name, m.version, m.wall",
        (run,),
    ).fetchall()


def _name_in(db: sqlite3.Connection, run: RunDir) -> str:
    """What this store calls the run: its own one may not know what it is named by here."""
    known = db.execute("SELECT 1 FROM runs WHERE run = ?", (run.id,)).fetchone()
    return run.id if known else run.own_id


def _knows_media(db: sqlite3.Connection) -> bool:
    """A store of an older version does not."""
    return bool(db.execute("SELECT 1 FROM sqlite_master WHERE name = 'media'").fetchone())
