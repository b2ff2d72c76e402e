"""Daily copies of the global store: for a run whose folder is gone it is the only record."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from pathlib import Path

from albor_core.run.errors import StoreError
from albor_core.store.file.connect import open_reader

KEPT = 3


def backups(path: Path) -> list[Path]:
    """The copies of a store, oldest first."""
    return sorted((path.parent / "backups").glob(f"{path.stem}-*.db"))


def back_up_daily(path: Path, day: str) -> Path | None:
    """A copy of the global store for `day` (YYYYMMDD) unless there is one; the newest three are
    kept.

    Returns the copy if one was made. Raises StoreError.
    """
    folder = path.parent / "backups"
    copy = folder / f"{path.stem}-{day}.db"
    if copy.exists() or not path.is_file():
        return None
    half = copy.with_suffix(".half")
    db, temporary = open_reader(path)
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        half.unlink(missing_ok=True)
        db.execute("PRAGMA query_only = 0")  # VACUUM INTO writes its target only
        db.execute("VACUUM INTO ?", (str(half),))
        half.chmod(0o600)
        half.replace(copy)
    except (sqlite3.Error, OSError) as error:
        raise StoreError(f"{copy}: {error}") from error
    finally:
        db.close()
        half.unlink(missing_ok=True)
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)
    for old in backups(path)[:-KEPT]:
        with contextlib.suppress(FileNotFoundError):
            old.unlink()
    return copy
