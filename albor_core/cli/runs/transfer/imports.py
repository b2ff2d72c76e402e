"""`albor runs import`: history that other trackers wrote becomes runs like any other, and runs of
Albor come from other folders.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from albor_core.cli.common.output import (
    clean,
    emit,
    field_values,
    json_option,
    print_line,
    print_note,
    table,
)
from albor_core.cli.plans.file_plan import Estimate, Parameters, plans
from albor_core.integrations.importers.find import ALBOR, SOURCES, FoundFiles, find, titles
from albor_core.run.errors import DataError, NotFoundError, Problem, TryAgainError, UsageError
from albor_core.run.home.folders import own_home

if TYPE_CHECKING:
    from albor_core.documents.transfer import TransferProblem
    from albor_core.integrations.importers.run_import import ImportResult


def _places(paths: Iterable[Path]) -> list[Path]:
    return [path.expanduser().absolute() for path in paths]


def _found(
    places: Sequence[Path], kind: str | None, experiment: str | None
) -> tuple[list[list[Path]], list[FoundFiles]]:
    """Run directories of Albor, by path, and what is others' history. Raises UsageError,
    NotFoundError, DataError.
    """
    folders = {place: _folders(place, kind) for place in places}
    if experiment is not None and any(folders.values()):
        raise UsageError(
            "cannot put runs of Albor into another experiment: they are copied as they are",
            hint="leave out --experiment",
        )
    sources = [find(place, kind) for place in places if not folders[place]]
    return [*filter(None, folders.values())], sources


def _planned(_: Callable[..., Any], told: Parameters) -> Estimate:
    """The runs that are made, and those that are brought up to date where there is news."""
    from albor_core.integrations.importers.copies.albor_folder import LocalFolder
    from albor_core.integrations.importers.copies.copied_runs import copy_runs
    from albor_core.integrations.importers.foreign import Refusal
    from albor_core.integrations.importers.run_import import run_id

    copied, sources = _found(_places(told["paths"]), told["kind"], told["experiment"])
    writes, messages = list[Path](), list[str]()
    for folders in copied:
        source = LocalFolder(folders)
        report = copy_runs(source, source.find(), dry_run=True)
        writes += [Path(one.path) for one in report.runs if one.change in ("new", "updated")]
        messages += [one["message"] for one in report.problems]
    for one in (foreign for files in sources for foreign in files.runs()):
        if isinstance(one, Refusal):
            messages.append(one.message)
        else:
            writes.append(own_home() / "runs" / run_id(one))
    return Estimate(writes=writes, problems=[Problem("", said) for said in messages])


@click.command(
    "import",
    help=f"""Import history of {titles()}.

    PATH is a file, or a folder that is searched. The same history is imported once: a second import
    brings what is new. What has no place here is counted.

    A folder of run directories of Albor, one of them, or an Albor home is copied, and the copies
    are read-only; `albor db rebuild FOLDER` has this home know runs where they lie.
    """,
)
@click.argument(
    "paths", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="PATH..."
)
@click.option(
    "--from",
    "kind",
    type=click.Choice(SOURCES),
    help="Import only histories of this tracker or format.",
)
@click.option("--experiment", help="Put all imported runs into this experiment.")
@json_option
@plans(lambda told: _places(told["paths"]), lambda _: [own_home() / "runs" / "*"], _planned)
def import_runs(
    paths: tuple[Path, ...], kind: str | None, experiment: str | None, as_json: bool
) -> int:
    """Import what other trackers recorded."""
    from albor_core.integrations.importers.run_import import one_at_a_time

    copied, sources = _found(_places(paths), kind, experiment)
    arrivals: list[ImportResult] = []
    problems: list[TransferProblem] = []
    with one_at_a_time():
        for folders in copied:
            _copy(folders, arrivals, problems)
        for source in sources:
            _import(source, experiment, arrivals, problems)
    if not arrivals and problems:
        raise DataError(problems[0]["message"], hint="albor runs import --help")
    if as_json:
        runs = [field_values(arrival) for arrival in arrivals]
        emit({"schema": "albor.runs.import/1", "runs": runs, "problems": problems})
    else:
        _show(arrivals)
        for problem in problems:
            print_note(f"albor: {clean(problem['message'])}")
    return DataError.exit_code if problems else 0


def _folders(place: Path, kind: str | None) -> list[Path]:
    """The run directories of Albor that a path means; [] where it means others' history. Raises
    NotFoundError, DataError where only those were asked for and there are none.
    """
    from albor_core.integrations.importers.copies.albor_folder import run_folders

    found = run_folders(place) if kind in (None, ALBOR) else []
    if not found and kind == ALBOR:
        if not place.exists():
            raise NotFoundError(f"{place}: no such file or folder", hint="albor runs import --help")
        raise DataError(f"{place}: no run directories of Albor", hint="albor runs import --help")
    return found


def _copy(
    folders: list[Path], arrivals: list[ImportResult], problems: list[TransferProblem]
) -> None:
    """Runs of Albor from another folder."""
    from albor_core.integrations.importers.copies.albor_folder import LocalFolder, arrival
    from albor_core.integrations.importers.copies.copied_runs import copy_runs, one_copy_at_a_time

    source = LocalFolder(folders)
    with one_copy_at_a_time():
        found = source.find()
        report = copy_runs(source, found)
    origins = {one.id: one.folder for one in found}
    arrivals += [arrival(one, origins.get(one.own_id, "")) for one in report.runs]
    problems += report.problems


def _import(
    source: FoundFiles,
    experiment: str | None,
    arrivals: list[ImportResult],
    problems: list[TransferProblem],
) -> None:
    """All runs of one source; one that cannot be read costs only itself."""
    from albor_core.integrations.importers.foreign import Refusal
    from albor_core.integrations.importers.run_import import import_run, run_id

    done = {arrival.run for arrival in arrivals}
    for foreign in source.runs():
        message = foreign.message if isinstance(foreign, Refusal) else ""
        if not isinstance(foreign, Refusal):
            name = run_id(foreign)
            if name in done:
                message = f"{foreign.where}: a copy of {name}, which was imported just now"
            else:
                done.add(name)
                try:
                    arrivals.append(import_run(foreign, experiment=experiment))
                except (DataError, TryAgainError) as error:
                    message = error.message
                except (ArithmeticError, LookupError, TypeError, ValueError) as error:
                    # whatever the source holds that a reader takes for a number or a name
                    message = f"{foreign.where}: {foreign.name}: cannot be read: {error}"
        if message:
            problems.append({"path": str(foreign.where), "message": message})


def _show(arrivals: list[ImportResult]) -> None:
    heads = (
        "run",
        "name",
        "experiment",
        "change",
        "status",
        "points",
        "last step",
        "media",
        "left out or changed",
    )
    cells = [
        (
            arrival.run,
            arrival.name,
            arrival.experiment,
            arrival.change,
            arrival.status,
            f"{arrival.points:,}",
            "-" if arrival.last_step is None else str(arrival.last_step),
            f"{arrival.media:,}",
            _left_out(arrival) or "-",
        )
        for arrival in arrivals
    ]
    print_line(table(heads, cells, right="points media"))
    for arrival in arrivals:
        if arrival.examples:
            first = (f"{kind} {clean(str(one))}" for kind, one in arrival.examples.items())
            said = f"left out of {clean(arrival.name)} or changed, the first of each"
            print_note(f"{said}: {'; '.join(first)}")


def _left_out(arrival: ImportResult) -> str:
    damaged = {"damaged record": arrival.damaged} if arrival.damaged else {}
    counts = {**damaged, **arrival.unmapped, **arrival.odd}
    return ", ".join(f"{count} {kind}" for kind, count in counts.items())
