"""`albor runs import`: history that other trackers wrote becomes runs like any other."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from albor_core.cli.common.output import clean, emit, json_option, say, table, talk
from albor_core.run.errors import DataError, TryAgainError

if TYPE_CHECKING:
    from albor_core.integrations.importers.find import FoundFiles
    from albor_core.integrations.importers.run_import import ImportResult

KINDS = ("tensorboard", "wandb", "mlflow", "trackio", "csv", "jsonl")


@click.command("import")
@click.argument(
    "paths", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="PATH..."
)
@click.option("--from", "kind", type=click.Choice(KINDS), help="Import only history of this kind.")
@click.option("--experiment", help="Put all imported runs into this experiment.")
@json_option
def import_runs(
    paths: tuple[Path, ...], kind: str | None, experiment: str | None, as_json: bool
) -> int:
    """Import history of TensorBoard, W&B (offline), MLflow, trackio, CSV and JSON lines.

    PATH is a file, or a folder that is searched. The same history is imported once: a second import
    brings what is new. What has no place here is counted.
    """
    from albor_core.integrations.importers.find import find
    from albor_core.integrations.importers.run_import import one_at_a_time

    sources = [find(path.expanduser().absolute(), kind) for path in paths]
    arrivals: list[ImportResult] = []
    problems: list[dict[str, str]] = []
    with one_at_a_time():
        for source in sources:
            _import(source, experiment, arrivals, problems)
    if not arrivals and problems:
        raise DataError(problems[0]["message"], hint="albor runs import --help")
    if as_json:
        from dataclasses import asdict

        runs = [asdict(arrival) for arrival in arrivals]
        emit({"schema": "albor.runs.import/1", "runs": runs, "problems": problems})
    else:
        _show(arrivals)
        for problem in problems:
            talk(f"albor: {clean(problem['message'])}")
    return DataError.exit_code if problems else 0


def _import(
    source: FoundFiles,
    experiment: str | None,
    arrivals: list[ImportResult],
    problems: list[dict[str, str]],
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
    heads = ("run", "name", "experiment", "change", "status", "points", "last step", "left out")
    cells = [
        (
            arrival.run,
            arrival.name,
            arrival.experiment,
            arrival.change,
            arrival.status,
            f"{arrival.points:,}",
            "-" if arrival.last_step is None else str(arrival.last_step),
            _left_out(arrival) or "-",
        )
        for arrival in arrivals
    ]
    say(table(heads, cells, right="points"))


def _left_out(arrival: ImportResult) -> str:
    damaged = {"damaged record": arrival.damaged} if arrival.damaged else {}
    counts = {**damaged, **arrival.unmapped, **arrival.odd}
    return ", ".join(f"{count} {kind}" for kind, count in counts.items())
