"""What a command line means: which store, which run."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from albor_core.cli.common.output import clean, talk
from albor_core.run.errors import AlborError, NotFoundError, StoreError, remedy
from albor_core.run.rundir import (
    FRESH_S,
    RunDir,
    check_home,
    is_known_id,
    read_json,
    registered_runs,
    run_at,
)

if TYPE_CHECKING:
    from albor_core.store.query.reader import Reader
    from albor_core.store.query.table import RunList

_MAKING_S = 2.0  # from the start of a first run to the store it makes, on a busy machine
_CATCH_UP_S = 5.0  # for what a run wrote last: a second on an idle machine

db_option = click.option(
    "--db", type=click.Path(), help="Read this store file, not the global one."
)


class MissingStoreError(StoreError):
    """There are runs, and the store that should hold them is gone."""

    exit_code, code = NotFoundError.exit_code, NotFoundError.code


def open_store(db: str | None) -> Reader | None:
    """The store to read; None when there is no global one since there are no runs either.

    Raises MissingStoreError where runs are registered, UsageError where ALBOR_HOME is no folder.
    """
    from albor_core.store.query.reader import Reader

    path = _store_path(db)
    return None if path is None else Reader(path)


def open_store_of(references: Sequence[str], db: str | None) -> Reader:
    """The store in which runs are compared. Raises NotFoundError with what would put runs that are
    given as folders into it.
    """
    reader = open_store(db)
    if reader is None:
        places = {Path(one).parent for one in references if (Path(one) / "run.json").is_file()}
        rebuild = [f"albor db rebuild {shlex.quote(str(place))}" for place in sorted(places)]
        raise NotFoundError("no store yet", hint=" && ".join(rebuild) or "albor demo")
    return reader


def open_table(db: str | None) -> RunList | None:
    """Like `open_store`, for what asks about the run table only: it loads in half the time."""
    from albor_core.store.query.table import RunList

    path = _store_path(db)
    return None if path is None else RunList(path)


def _store_path(db: str | None) -> Path | None:
    return Path(db) if db is not None else present_store()


def present_store() -> Path | None:
    """The global store if there is one; None and errors as `open_store`."""
    from albor_core.store.file.paths import global_store

    home, path = check_home(), global_store()
    if path.is_file():
        return path
    runs = list(registered_runs())
    if not runs:
        return None
    if _comes_soon(path, runs):
        return path
    raise MissingStoreError(
        f"{path}: no store, though {len(runs):,} run(s) are registered in {home / 'runs'}",
        hint="albor db rebuild",
    )


def _comes_soon(path: Path, runs: list[RunDir]) -> bool:
    """Whether the store is being made at this moment, by a run that has just started."""
    deadline = time.monotonic() + (_MAKING_S if _is_fresh(runs[0]) else 0.0)
    while not path.is_file():
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.05)
    return True


def unlisted(table: RunList) -> int:
    """How many registered runs, whose folders are well, the global store does not have. One that
    has just begun is on its way there.
    """
    from albor_core.feed.runs.store_lag import is_coming

    folder, count = check_home() / "runs", 0
    if not folder.is_dir():
        return 0
    names = os.listdir(folder)  # noqa: PTH208  ten thousand paths would take a fifth of a second
    for unknown in set(names) - table.pointers():
        if not unknown.endswith(".json"):
            continue
        run = run_at(unknown.removesuffix(".json"), read_json(folder / unknown))
        if run is not None and read_json(run.run_json) is not None:
            count += not is_coming(run)
    return count


def talk_of_damaged_pointers() -> None:
    """A line for each file of this home that should lead to a run and does not."""
    from albor_core.run.registry import damaged_pointers

    for pointer, why in damaged_pointers():
        talk(f"  - {clean(pointer)}: {clean(why)}; passed over")


def _is_fresh(run: RunDir) -> bool:
    """Whether it was made a moment ago; False where its folder is gone."""
    try:
        return time.time() - run.run_json.stat().st_mtime < FRESH_S
    except OSError:
        return False


def locate(reference: str, db: str | None = None) -> tuple[str, Path | None]:
    """The id a reference means, and its local store if the folder is still there. `db`: the store
    whose runs are meant.
    """
    run_id, run = find(reference, db)
    return run_id, _own_store(run)


def find(reference: str, db: str | None = None) -> tuple[str, RunDir | None]:
    """The id a reference means, and its folder if that is still there."""
    from albor_core.store.query.resolve import find_id

    try:
        return find_id(reference, None if db is None else Path(db))
    except NotFoundError as error:
        if error.__cause__ is not None and is_known_id(reference):
            return reference, None  # whoever asks the store next says what is wrong with it
        raise


def locate_whole(reference: str) -> tuple[str, Path | None]:
    """As `locate`, of a run whose numbers are shown: of one that has just ended the stores have all
    first, and what they lack after a few seconds is told.
    """
    from albor_core.store.index.catch_up import catch_up

    run_id, run = find(reference)
    why, hint = "", ""
    try:
        if run is not None and not catch_up(run, timeout_s=_CATCH_UP_S):
            why = "not all records are in the store yet"
    except AlborError as error:
        why, hint = error.message, error.hint
    except OSError as error:
        why, hint = str(error), remedy(error)
    if run is not None and why:
        place = clean(shlex.quote(str(run.path)))
        talk(f"{run_id} has ended, and what is shown may be a part of what it wrote: {clean(why)}")
        talk(f"  next: {hint or f'the same again in a moment, or albor db rebuild {place}'}")
    return run_id, _own_store(run)


def _own_store(run: RunDir | None) -> Path | None:
    from albor_core.store.file.paths import local_store

    return None if run is None else local_store(run)
