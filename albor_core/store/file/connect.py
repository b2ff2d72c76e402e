"""Connections to a store, and the rules that keep SQLite's files whole.

SQLite before 3.51.3 can corrupt a WAL database when one connection checkpoints while another
commits (sqlite.org/wal.html, the WAL-reset bug), so nothing checkpoints by itself here: the local
store has one writing connection (the holder of index.lock), and the global one is written,
checkpointed and closed only under `exclusive(path)`. Readers open mode=ro, which never checkpoints.
Never open a store's file as a plain file while connected: closing that descriptor would drop
SQLite's locks. A store that lies on a network file system (ALBOR_HOME may) has a rollback journal
instead of a WAL.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import resource
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from albor_core.run.errors import NotFoundError, StoreError, TryAgainError, remedy
from albor_core.store.file.migrations import upgrade
from albor_core.store.file.paths import file_system, is_remote, rebuild_hint
from albor_core.store.file.schema import missing, strangers

CHECKPOINT_BYTES = 4 << 20
_NO_SHM = (sqlite3.SQLITE_IOERR_SHMOPEN, sqlite3.SQLITE_IOERR_SHMSIZE, sqlite3.SQLITE_IOERR_SHMMAP)
MAKING_S = 2.0  # how long a reader waits for the tables of a store that was just made


def open_writer(path: Path, *, busy_ms: int = 5000) -> sqlite3.Connection:
    """The writing connection, made and upgraded if need be; transactions are explicit.

    Raises StoreError (foreign owner, newer version) and sqlite3.DatabaseError (damage, a trigger
    that was planted, busy).
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    _make_private(path)
    db = sqlite3.connect(path, isolation_level=None, cached_statements=256)
    try:
        _configure(db, busy_ms)
        if is_remote(file_system(path.parent)):  # shared memory between hosts there is none
            db.execute("PRAGMA journal_mode = DELETE")
            db.execute("PRAGMA synchronous = FULL")
        else:
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = NORMAL")
        db.execute("PRAGMA wal_autocheckpoint = 0")
        db.execute("PRAGMA foreign_keys = 1")
        upgrade(db, path)
        if lacks := missing(db):
            raise sqlite3.DatabaseError(f"not an Albor store: no {lacks[0]}")
        if planted := strangers(db):
            raise sqlite3.DatabaseError(_planted(planted[0]))
    except BaseException:
        db.close()
        raise
    return db


def _planted(name: str) -> str:
    return f"it has {name!r}, which Albor did not make"


def _make_private(path: Path) -> None:
    """Owner only, since names and notes are private whatever the umask says."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        status = path.stat()
        if status.st_uid != os.geteuid():
            raise StoreError(
                f"{path}: belongs to user id {status.st_uid}, refusing to write to it"
            ) from None
        if status.st_mode & 0o077:
            path.chmod(0o600)
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror}") from error


def _configure(db: sqlite3.Connection, busy_ms: int) -> None:
    db.execute(f"PRAGMA busy_timeout = {busy_ms}")
    db.execute("PRAGMA mmap_size = 0")
    db.execute("PRAGMA trusted_schema = 0")
    db.execute("PRAGMA cell_size_check = 1")
    db.execute("PRAGMA temp_store = MEMORY")


@contextlib.contextmanager
def transaction(db: sqlite3.Connection) -> Iterator[None]:
    """All of it or nothing. Short: a second writer waits meanwhile."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        with contextlib.suppress(sqlite3.Error):  # some errors have rolled back already
            db.execute("ROLLBACK")
        raise
    db.execute("COMMIT")


def checkpoint_if_large(db: sqlite3.Connection, path: Path) -> None:
    """Move the WAL into the database once it is a few MiB. Only where no other connection may
    commit.
    """
    try:
        large = path.with_name(path.name + "-wal").stat().st_size > CHECKPOINT_BYTES
    except OSError:
        return
    if large:
        (patience,) = db.execute("PRAGMA busy_timeout").fetchone()
        db.execute("PRAGMA busy_timeout = 0")  # never wait for a viewer: what is left, is left
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        db.execute(f"PRAGMA busy_timeout = {patience}")


@contextlib.contextmanager
def exclusive(path: Path, *, wait_s: float = 5.0) -> Iterator[None]:
    """Hold the `flock` that every writer of the global store takes. Raises TryAgainError when time
    is up.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = path.with_name(path.name + ".lock")
    fd = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    deadline = time.monotonic() + wait_s
    try:
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() >= deadline:
                    raise TryAgainError(f"{lock}: another process is writing") from error
                time.sleep(0.01)
        yield
    finally:
        os.close(fd)


def open_reader(path: Path) -> tuple[sqlite3.Connection, Path | None]:
    """A connection that cannot write, and the temporary folder to delete after it, if one was
    needed.

    Where SQLite cannot make its -shm file (read-only media, a full disk) the database is read as
    immutable, or, if it has a WAL, from a private copy: `immutable=1` would silently leave the
    WAL's rows out. Raises NotFoundError, StoreError.
    """
    if not path.is_file():
        raise NotFoundError(f"{path}: no store here", hint=rebuild_hint(path))
    try:
        return connect_read_only(path, "mode=ro"), None
    except sqlite3.OperationalError as error:
        kind = error.sqlite_errorcode & 0xFF
        has_no_shm = error.sqlite_errorcode in _NO_SHM  # no room for it
        if kind not in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY) and not has_no_shm:
            raise as_store_error(path, error) from error
    except sqlite3.DatabaseError as error:
        raise as_store_error(path, error) from error
    return _open_unwritable(path)


def remove_copy(folder: Path | None) -> None:
    """Remove the temporary folder that `open_reader` may have made."""
    if folder is not None:
        import shutil  # noqa: PLC0415  see _open_unwritable

        shutil.rmtree(folder, ignore_errors=True)


def _open_unwritable(path: Path) -> tuple[sqlite3.Connection, Path | None]:
    import shutil  # noqa: PLC0415  10 ms with tempfile, for a case most commands never meet
    import tempfile  # noqa: PLC0415

    wal = path.with_name(path.name + "-wal")
    folder: Path | None = None
    try:
        if not wal.exists() or wal.stat().st_size == 0:
            return connect_read_only(path, "mode=ro&immutable=1"), None
        folder = Path(tempfile.mkdtemp(prefix="albor-store-"))
        for source in (path, wal):
            shutil.copyfile(source, folder / source.name)
        return connect_read_only(folder / path.name, "mode=ro"), folder
    except (sqlite3.DatabaseError, OSError) as error:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
        raise as_store_error(path, error) from error


def connect_read_only(path: Path, mode: str) -> sqlite3.Connection:
    """A connection of URI parameters `mode` to a whole store; `open_reader` chooses them. Raises
    sqlite3.DatabaseError.
    """
    uri = f"file:{quote(os.fsencode(path.absolute()))}?{mode}"
    db = sqlite3.connect(uri, uri=True, isolation_level=None, cached_statements=128)
    try:
        _configure(db, 1000)
        db.execute("PRAGMA query_only = 1")
        deadline = time.monotonic() + MAKING_S
        while lacks := missing(db):  # touches the file: a bad header, no reachable WAL show here
            # A store is a file with nothing in it for as long as its tables are being made.
            # Asked again once it is no longer empty: they may have come since the first look.
            is_made = not _is_blank(db)
            if is_made and (lacks := missing(db)):
                raise StoreError(
                    f"{path}: not an Albor store of a version this Albor reads: no {lacks[0]}",
                    hint=rebuild_hint(path),
                )
            if not is_made and time.monotonic() >= deadline:  # whoever made it got no further
                raise StoreError(
                    f"{path}: only partly written, e.g. by a full disk: it has no tables",
                    hint=rebuild_hint(path),
                )
            time.sleep(0.02)
    except BaseException:
        db.close()
        raise
    return db


def _is_blank(db: sqlite3.Connection) -> bool:
    return db.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone() is None


def is_damage(error: sqlite3.Error) -> bool:
    """Whether the file itself is bad, as opposed to busy, full or out of reach."""
    code = getattr(error, "sqlite_errorcode", None)
    if code is None:  # raised by us or by the Python layer: "not an Albor store"
        return not isinstance(error, sqlite3.OperationalError | sqlite3.ProgrammingError)
    return code & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def is_busy(error: sqlite3.Error) -> bool:
    """Whether another process holds the store at the moment."""
    return (getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF in (
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
    )


def _why_not_opened(path: Path) -> OSError | None:
    """The system's error for opening the file, which SQLite does not report."""
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK))
    except OSError as error:
        return error
    return None


def as_store_error(path: Path, error: Exception) -> StoreError | TryAgainError:
    """The same failure in words a user can act on."""
    if isinstance(error, sqlite3.Error) and is_busy(error):
        return TryAgainError(f"{path}: another process holds the store")
    if isinstance(error, sqlite3.Error) and is_damage(error):
        return StoreError(f"{path}: damaged ({error})", hint=rebuild_hint(path))
    if (getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF == sqlite3.SQLITE_CANTOPEN:
        error = _why_not_opened(path) or error
    if isinstance(error, OSError):
        hint = remedy(error) or rebuild_hint(path)
        return StoreError(f"{path}: {error.strerror or error}", hint=hint)
    hint = _disk_remedy(error) if isinstance(error, sqlite3.Error) else ""
    return StoreError(f"{path}: {error}", hint=hint or rebuild_hint(path))


def _disk_remedy(error: sqlite3.Error) -> str:
    """A hint if the disk refuses; "" for any other error."""
    kind = (getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF
    if kind == sqlite3.SQLITE_READONLY:
        return remedy(OSError(errno.EROFS, ""))
    if kind not in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
        return ""
    is_limited = resource.getrlimit(resource.RLIMIT_FSIZE)[0] != resource.RLIM_INFINITY
    return remedy(OSError(errno.EFBIG if is_limited else errno.ENOSPC, ""))


def problems(path: Path, *, thorough: bool = False) -> tuple[str, ...]:
    """What is wrong with a store; empty if nothing. `thorough` also compares every index with its
    table.

    Raises NotFoundError if there is none.
    """
    check = "integrity_check" if thorough else "quick_check"
    try:
        db, folder = open_reader(path)
    except StoreError as error:
        return (error.message,)
    try:
        rows = [str(row[0]) for row in db.execute(f"PRAGMA {check}(20)")]
        rows += map(_planted, strangers(db))
    except sqlite3.DatabaseError as error:
        rows = [str(error)]
    finally:
        db.close()
        remove_copy(folder)
    return tuple(row for row in rows if row != "ok")
