"""`albor db`: where the stores are; ask, check, rebuild them from the journals."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from albor_core.cli.common.lazy import LazyGroup
from albor_core.cli.common.lookup import talk_of_damaged_pointers
from albor_core.cli.common.output import clean, emit, json_option, print_line, print_note
from albor_core.run.errors import NotFoundError, StoreError
from albor_core.run.home.folders import absent_home, check_home, own_home, private_folder
from albor_core.run.home.registry import known_as, register
from albor_core.run.home.runs import registered_runs, runs_in, stray_runs
from albor_core.run.rundir import RunDir, is_run_id
from albor_core.run.values.quantity import counted
from albor_core.store.query.resolve import find_run

if TYPE_CHECKING:
    from albor_core.store.upkeep.check import CheckReport


@click.group(
    cls=LazyGroup,
    entries={
        "rebuild": (f"{__name__}:rebuild", "Rebuild the stores from the journals."),
        "check": (f"{__name__}:check", "Compare the stores with the runs' files."),
        "path": (f"{__name__}:path", "Print where the stores are."),
        "query": ("albor_core.cli.machine.query:query", "Query a store in SQL, read-only."),
    },
)
def db() -> None:
    """Locate, query, check and rebuild the stores."""


@db.command()
@click.argument("folder", required=False, type=click.Path(path_type=Path), metavar="[DIR]")
@json_option
def rebuild(folder: Path | None, as_json: bool) -> int:
    """Rebuild the stores of the runs in DIR, a run directory or an output_dir; without DIR, of all
    runs. Runs in DIR that come from elsewhere belong to this home from then on, as ID@HOST if
    another run has their id.

    In a home that was moved or copied each run is found in its runs/ and recorded there. Rows of a
    run whose folder is gone come from the old store or its newest backup, and so do points that a
    journal lost. Exits with 1 if something could not be brought over.
    """
    from albor_core.store.file.paths import global_store
    from albor_core.store.upkeep.rebuild import rebuild as make_again

    home = own_home()
    if folder is None:
        runs = [*registered_runs(), *stray_runs()]
        talk_of_damaged_pointers()
    else:
        runs = _runs_of(folder.absolute())
    private_folder(home)
    report = make_again(global_store(), runs)
    for known in _known_here(runs):
        if known.id in report.rebuilt:
            register(known)
    if as_json:
        document: Any = {"schema": "albor.db.rebuild/1", **report.to_json()}
        emit(document)
    else:
        print_line(f"rebuilt {counted(len(report.rebuilt), 'run')} into {global_store()}")
        for source in dict.fromkeys(report.carried_from.values()):
            count = list(report.carried_from.values()).count(source)
            print_line(f"kept {counted(count, 'run')} as recorded in {source}")
        for line in (*report.notes, *report.problems):
            print_note(f"  - {clean(line)}")
    return 1 if report.problems else 0


def _known_here(runs: Iterable[RunDir]) -> Iterator[RunDir]:
    """Undamaged runs that are not copies, by the ids that this home has for them."""
    for run in runs:
        if run.run_json.is_file() and (known := known_as(run)) is not None:
            yield known


@db.command()
@click.argument("folder", required=False, type=click.Path(path_type=Path), metavar="[DIR]")
@click.option(
    "--thorough", is_flag=True, help="Also compare every index of a store with its table."
)
@json_option
def check(folder: Path | None, thorough: bool, as_json: bool) -> int:
    """Look for damage, and for lines of the runs' files that their stores lack, in the runs in DIR,
    a run directory or an output_dir; without DIR, in all. Changes nothing.

    Exits with 1 if something is wrong; `albor db rebuild` repairs what can be repaired. If the
    journal of an ended run lost its end, that is reported each time, until the file is put back.
    """
    from albor_core.store.file.paths import global_store
    from albor_core.store.upkeep.check import check as look

    check_home()
    absent = absent_home() if folder is None else ""
    if absent and os.environ.get("ALBOR_HOME"):
        raise NotFoundError(
            f"cannot check the stores: {absent}",
            hint="export ALBOR_HOME=FOLDER, the home that you mean; unset it for ~/.albor",
        )
    runs = list(registered_runs()) if folder is None else _runs_of(folder.absolute())
    strays = stray_runs() if folder is None else None
    report = look(global_store(), runs, strays=strays, thorough=thorough)
    if as_json:
        document: Any = {"schema": "albor.db.check/1", "ok": not report.problems, **asdict(report)}
        emit(document | {"target": str(report.target)})
        return 1 if report.problems else 0
    for run, lines in report.damaged_lines.items():
        print_note(f"  {clean(run)}: {counted(lines, 'damaged line')} skipped in its files")
    for problem in report.problems:
        print_note(f"  - {clean(problem)}")
    if report.problems:
        raise StoreError(
            f"{counted(len(report.problems), 'problem')} in {counted(report.stores, 'store')}",
            hint=_next_command(report, folder),
        )
    if absent:
        print_line(absent)
        return 0
    print_line(f"{counted(report.stores, 'store')} of {counted(report.runs, 'run')}: ok")
    return 0


def _next_command(report: CheckReport, folder: Path | None) -> str:
    from albor_core.store.file.paths import rebuild_hint

    count = len(report.problems)
    if count == len(report.lost):
        return f"albor runs rm {' '.join(report.lost)}"
    if count == len(report.cut):
        return "put the files back from a backup, then albor db rebuild"
    if count == len(report.gone):
        forgets = f"albor runs rm {' '.join(report.gone)} forgets them"
        return f"albor db rebuild DIR, where they lie now; {forgets}"
    return rebuild_hint() if folder is None else f"albor db rebuild {folder}"


def _runs_of(folder: Path) -> list[RunDir]:
    """The run in `folder`, or those below it, damaged ones too. Raises NotFoundError."""
    from albor_core.store.upkeep.rebuild import unreadable

    if why := unreadable(RunDir(folder)):
        raise NotFoundError(
            f"{folder}: a damaged run directory: {why}",
            hint="put its run.json back from a backup; albor runs ls says what is known of it",
        )
    if (folder / "run.json").is_file():
        return [RunDir(folder)]
    inside = runs_in(folder) if folder.is_dir() else []
    others = [RunDir(path) for path in folder.glob("*/") if is_run_id(path.name)]
    found = [*inside, *(run for run in others if run not in inside and unreadable(run))]
    if not found:
        raise NotFoundError(
            f"{folder}: neither a run directory nor a folder of them", hint="albor runs ls"
        )
    return found


@db.command()
@click.argument("run", required=False)
@json_option
def path(run: str | None, as_json: bool) -> None:
    """Print the path of the global store, or of the local store of RUN."""
    from albor_core.store.file.paths import global_store, local_store

    where = global_store() if run is None else local_store(find_run(run))
    if as_json:
        emit({"schema": "albor.db.path/1", "path": str(where), "exists": where.is_file()})
    else:
        print_line(str(where))
