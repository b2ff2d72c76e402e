"""trackio: one SQLite file for each project, each row of `metrics` the JSON of one `log`.

It records no end of a run. Nested values are joined with `/`; keys of the configuration that begin
with an underscore are the peer's own. Source: trackio/sqlite_storage.py of trackio 0.43.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from albor_core.integrations.importers.foreign import (
    ForeignRun,
    Importer,
    Item,
    Losses,
    Point,
    mapping,
    numbers_in,
)
from albor_core.integrations.importers.formats.sqlite_file import (
    columns,
    count,
    may_be_database,
    opened,
)
from albor_core.integrations.importers.media.kept import parted, typed
from albor_core.integrations.importers.steps.order import numbered, stepless

SOURCE = "trackio"
_MAX_ROW_BYTES = 16 << 20
_UNMAPPED = {"system_metrics": "system sample", "alerts": "alert", "traces": "trace"}


def is_store(db: sqlite3.Connection) -> bool:
    """Whether a database has trackio's tables."""
    return {"run_name", "step", "metrics"} <= columns(db, "metrics")


def read(files: list[Path], root: Path) -> Iterator[ForeignRun]:
    """The runs of projects; before trackio had ids a run was its name."""
    for path in sorted(files):
        with opened(path) as db:
            own = "run_id" if "run_id" in columns(db, "metrics") else "run_name"
            rows = db.execute(
                f"SELECT {own}, max(run_name), min(timestamp) FROM metrics"
                f" GROUP BY {own} ORDER BY min(id)"
            ).fetchall()
            for run, name, first in rows:
                config = _config(db, run)
                yield ForeignRun(
                    source=SOURCE,
                    key=f"{path.stem}/{run}",
                    name=str(name),
                    experiment=path.stem,
                    where=path,
                    items=partial(_items, path, own, run),
                    created=utc(config.get("_Created")) or utc(first),
                    ended=None,
                    params={k: v for k, v in config.items() if not k.startswith("_")},
                    facts={"id": str(run), "group": str(config.get("_Group") or "")},
                )


def _config(db: sqlite3.Connection, run: Any) -> dict[str, Any]:
    known = columns(db, "configs")
    own = "run_id" if "run_id" in known else "run_name"
    if own not in known:
        return {}
    sql = f"SELECT config FROM configs WHERE {own} = ?"
    row = db.execute(sql, (run,)).fetchone()
    return dict(mapping(_json(row[0]))) if row is not None else {}


def _json(said: Any) -> Any:
    try:
        return json.loads(said) if len(said) <= _MAX_ROW_BYTES else None
    except (ValueError, TypeError, RecursionError):
        return None


def _items(path: Path, own: str, run: Any, losses: Losses) -> Iterator[Item]:
    with opened(path) as db:
        read = partial(_logged, db, path, own, run)
        yield from numbered(read(losses), stepless(read(Losses())), losses)
        for table, word in _UNMAPPED.items():
            if found := count(db, table, run):
                losses.note(word, found)


def _logged(
    db: sqlite3.Connection, path: Path, own: str, run: Any, losses: Losses
) -> Iterator[Item]:
    rows = db.execute(
        f"SELECT step, timestamp, metrics FROM metrics WHERE {own} = ? ORDER BY id", (run,)
    )
    for step, stamp, said in rows:
        values = _json(said)
        if isinstance(values, dict):
            values, media = parted(values)
            at = step, utc(stamp)
            yield Point(*at, numbers_in(values, losses, step=step))
            yield from typed(at, media, path.parent / "media", losses)
        else:
            losses.spoil("metrics", said, step)


def utc(said: Any) -> float | None:
    """Seconds of a time in ISO 8601; without a zone it is UTC."""
    try:
        moment = datetime.fromisoformat(said)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (TypeError, ValueError, OverflowError):
        return None


IMPORTER = Importer(
    name=SOURCE, title="trackio", read=read, may_be=may_be_database, is_database=is_store
)
