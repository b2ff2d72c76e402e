"""`albor db`: where the stores are; rebuild them from the journals."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from albor_core.cli.lazy import LazyGroup
from albor_core.cli.output import emit, json_option, say
from albor_core.run.errors import NotFoundError
from albor_core.run.rundir import RunDir, find_run, registered_runs, runs_in


@click.group(
    cls=LazyGroup,
    entries={
        "rebuild": (f"{__name__}:rebuild", "Make the stores again from the journals."),
        "path": (f"{__name__}:path", "Where the stores are."),
    },
)
def db() -> None:
    """Where the stores are; rebuild them from the journals."""


@db.command()
@click.argument("folder", required=False, type=click.Path(path_type=Path), metavar="[DIR]")
@json_option
def rebuild(folder: Path | None, as_json: bool) -> None:
    """Rebuild the stores of the runs in DIR, a run directory or an output_dir; without DIR, all."""
    from albor_core.store.paths import global_store
    from albor_core.store.rebuild import rebuild as make_again

    runs = list(registered_runs()) if folder is None else _runs_of(folder)
    report = make_again(global_store(), runs)
    if as_json:
        plain = {k: str(v) if isinstance(v, Path) else v for k, v in asdict(report).items()}
        emit({"schema": "albor.db.rebuild/1", **plain})
    else:
        say(f"rebuilt {len(runs)} run(s) into {global_store()}")


def _runs_of(folder: Path) -> list[RunDir]:
    if (folder / "run.json").is_file():
        return [RunDir(folder.absolute())]
    if not folder.is_dir() or not (found := runs_in(folder.absolute())):
        raise NotFoundError(
            f"{folder}: neither a run directory nor a folder of them", hint="albor runs ls"
        )
    return found


@db.command()
@click.argument("run", required=False)
@json_option
def path(run: str | None, as_json: bool) -> None:
    """The global store, or the local store of RUN."""
    from albor_core.store.paths import global_store

    where = global_store() if run is None else find_run(run).store
    if as_json:
        emit({"schema": "albor.db.path/1", "path": str(where), "exists": where.is_file()})
    else:
        say(str(where))
