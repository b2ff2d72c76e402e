"""What a command line means: which store, which run."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from albor_core.cli.common.output import clean, print_note
from albor_core.run.errors import AlborError, NotFoundError, remedy
from albor_core.run.home.folders import check_home
from albor_core.run.home.runs import is_known_id, run_at
from albor_core.run.rundir import RunDir, read_json

if TYPE_CHECKING:
    from albor_core.store.query.reader import Reader
    from albor_core.store.query.table import RunList

CATCH_UP_S = 5.0  # for what a run wrote last: a second on an idle machine

db_option = click.option(
    "--db", type=click.Path(), help="Read this store file, not the global one."
)


def open_store(db: str | None) -> Reader | None:
    """The store to read; None when there is no global one since there are no runs either.

    Raises MissingStoreError where runs are registered, UsageError where ALBOR_HOME is not a folder.
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
    from albor_core.store.file.home_store import present_store

    return Path(db) if db is not None else present_store()


class Absent(NamedTuple):
    """Registered runs, whose folders are well, that the global store does not have."""

    coming: list[RunDir]
    """On their way there: they have just begun."""
    missing: int
    """How many others."""


def absent_runs(table: RunList) -> Absent:
    from albor_core.feed.runs.store_lag import is_coming

    folder, found = check_home() / "runs", Absent([], 0)
    if not folder.is_dir():
        return found
    names = os.listdir(folder)  # noqa: PTH208  ten thousand paths would take a fifth of a second
    for unknown in set(names) - table.pointers():
        if not unknown.endswith(".json"):
            continue
        run = run_at(unknown.removesuffix(".json"), read_json(folder / unknown))
        if run is None or read_json(run.run_json) is None:
            continue
        if is_coming(run):
            found.coming.append(run)
        else:
            found = found._replace(missing=found.missing + 1)
    return found


def talk_of_damaged_pointers() -> None:
    """A line for each file of this home that should lead to a run and does not."""
    from albor_core.run.home.registry import damaged_pointers

    for pointer, why in damaged_pointers():
        print_note(f"  - {clean(pointer)}: {clean(why)}; passed over")


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
    """As `locate`, of a run whose numbers are shown: one that has just begun is in its store first,
    of one that has just ended the stores have all, and what they lack after a few seconds is told.
    """
    from albor_core.store.index.catch_up import await_first_rows, catch_up

    run_id, run = find(reference)
    why, hint = "", ""
    try:
        if run is not None:
            await_first_rows(run)
        if run is not None and not catch_up(run, timeout_s=CATCH_UP_S):
            why = "not all records are in the store yet"
    except AlborError as error:
        why, hint = error.message, error.hint
    except OSError as error:
        why, hint = str(error), remedy(error)
    if run is not None and why:
        place = clean(shlex.quote(str(run.path)))
        print_note(
            f"{run_id} has ended, and what is shown may be a part of what it wrote: {clean(why)}"
        )
        print_note(f"  next: {hint or f'the same again in a moment, or albor db rebuild {place}'}")
    return run_id, _own_store(run)


def _own_store(run: RunDir | None) -> Path | None:
    from albor_core.store.file.paths import local_store

    return None if run is None else local_store(run)
