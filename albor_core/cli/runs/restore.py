"""`albor runs restore`: what a rewind took back counts again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from albor_core.cli.common.output import emit, json_option, print_line
from albor_core.run.errors import NotFoundError
from albor_core.run.rundir import RunDir
from albor_core.run.values.quantity import counted
from albor_core.store.query.resolve import find_run

if TYPE_CHECKING:
    from albor_core.store.query.attempts import TakenBack


@click.command()
@click.argument("run_ref", metavar="RUN")
@click.option(
    "--all", "everything", is_flag=True, help="Undo every rewind of RUN, not only the last."
)
@click.option("--list", "only_list", is_flag=True, help="Show what was rewound; change nothing.")
@json_option
def restore(run_ref: str, everything: bool, only_list: bool, as_json: bool) -> None:
    """Undo the last rewind of RUN: the points that it hid count again.

    If a step was logged again since, the newer value stays. The undo is recorded with the run: the
    journal is only appended to, and a rebuild of the stores gives the same.
    """
    from albor_core.store.index.annotations import annotate
    from albor_core.store.index.catch_up import drain_index

    found = find_run(run_ref)
    drain_index(found)
    known = _known(found)
    chosen = known if everything or only_list else known[-1:]
    if not chosen and not only_list:
        raise NotFoundError(
            f"cannot restore {found.id!r}: no rewind took a point of it back",
            hint=f"albor runs show {found.id}",
        )
    if not only_list:
        for one in chosen:
            annotate(found, "restore", one.at)
        drain_index(found)
    if as_json:
        rewinds: Any = [one._asdict() for one in chosen]
        emit({"schema": "albor.runs.restore/1", "run": found.id, "is_restored": not only_list,
              "rewinds": rewinds, "left": len(_known(found))})  # fmt: skip
        return
    for line in _lines(found, chosen, is_restored=not only_list):
        print_line(line)


def _known(run: RunDir) -> tuple[TakenBack, ...]:
    from albor_core.store.file.paths import local_store
    from albor_core.store.query.attempts import taken_back
    from albor_core.store.query.reader import Reader

    with Reader(local_store(run)) as reader:
        return reader.query(lambda db: taken_back(db, run.own_id))


def _lines(run: RunDir, chosen: Sequence[TakenBack], *, is_restored: bool) -> Iterator[str]:
    if not chosen:
        yield f"{run.id}: nothing was taken back"
    for one in chosen:
        points = f"{counted(one.points, 'point')} of {counted(one.metrics, 'metric')}"
        steps = f"steps {one.first_step:,} to {one.last_step:,}"
        yield f"{run.id}: {points}, {steps}, {'count again' if is_restored else 'taken back'}"
