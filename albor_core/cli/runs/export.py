"""`albor runs export`: every point of runs as rows, to a file or to stdout."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from albor_core.cli.common.output import StdoutError, emit, json_option, talk
from albor_core.run.errors import AlborError, NotFoundError, UsageError, remedy
from albor_core.run.rundir import RunDir, is_run_id
from albor_core.store.query.resolve import find_run

if TYPE_CHECKING:
    from albor_core.store.query.export import Page

_FORMATS = ("jsonl", "csv", "parquet")


@click.command()
@click.argument("references", nargs=-1, required=True, metavar="RUN...")
@click.option(
    "--out",
    "-o",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write to this file instead of stdout.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(_FORMATS),
    help="Write this format.  [default: by the file's suffix, else jsonl]",
)
@click.option("--key", "keys", multiple=True, help="Export only this metric; repeatable.")
@click.option("--force", is_flag=True, help="Replace the file if it exists.")
@json_option
def export(
    references: tuple[str, ...],
    out: Path | None,
    form: str | None,
    keys: tuple[str, ...],
    force: bool,
    as_json: bool,
) -> None:
    """Export every point of one or more runs as rows: run, experiment, key, step, wall, value.

    A file appears only when complete. `albor schema albor.runs.export.row` describes a row.
    """
    form = form or (out.suffix.lstrip(".") if out is not None else "jsonl")
    if form not in _FORMATS:
        raise UsageError(f"{out}: which format?", hint="--format jsonl, csv or parquet")
    if out is None and (as_json or form == "parquet"):
        what = "--json" if as_json else "parquet"
        raise UsageError(f"{what} needs a file to write to", hint="--out FILE")
    runs = [_find(reference) for reference in dict.fromkeys(references)]
    if out is None:
        _to_stdout(runs, keys, form)
        return
    rows = _to_file(runs, keys, form, out, replace=force)
    if as_json:
        from albor_core.store.query.export import COLUMNS

        emit(
            {
                "schema": "albor.runs.export/1",
                "path": str(out),
                "format": form,
                "runs": [run.id for run in runs],
                "columns": list(COLUMNS),
                "rows": rows,
            }
        )
    else:
        talk(f"{rows:,} rows in {out}")


def _find(reference: str) -> RunDir:
    try:
        return find_run(reference)
    except NotFoundError as error:
        if is_run_id(reference) and _is_remembered(reference):
            raise NotFoundError(
                f"cannot export {reference}: the run directory is gone, and the points with it",
                hint=f"albor runs show {reference} --json, which has what is left",
            ) from error
        raise


def _is_remembered(run_id: str) -> bool:
    """Whether the global store knows a run whose folder nobody finds."""
    from albor_core.cli.common.lookup import open_table

    table = open_table(None)
    if table is None:
        return False
    with table:
        try:
            table.run(run_id)
        except NotFoundError:
            return False
    return True


def _pages(runs: list[RunDir], keys: tuple[str, ...]) -> Iterator[Page]:
    from albor_core.store.index.catch_up import drain_index
    from albor_core.store.query.export import pages

    for run in runs:
        drain_index(run)
        yield from pages(run, keys=keys or None)


def _to_stdout(runs: list[RunDir], keys: tuple[str, ...], form: str) -> None:
    from albor_core.store.query.export import FORMATS

    try:
        FORMATS[form](_pages(runs, keys), sys.stdout)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise StdoutError(f"cannot write to stdout: {error.strerror}", hint="--out FILE") from error


def _to_file(
    runs: list[RunDir], keys: tuple[str, ...], form: str, out: Path, *, replace: bool
) -> int:
    from albor_core.run.files.whole_file import whole_file
    from albor_core.store.query.export import FORMATS

    if form == "parquet":
        _need_parquet()
    try:
        with whole_file(out, replace=replace) as descriptor:
            if form == "parquet":
                from albor_core.report.parquet import write_parquet

                with os.fdopen(os.dup(descriptor), "wb") as file:
                    return write_parquet(_pages(runs, keys), file)
            with os.fdopen(os.dup(descriptor), "w", encoding="utf-8", newline="") as text:
                return FORMATS[form](_pages(runs, keys), text)
    except OSError as error:
        raise AlborError(
            f"{out}: {error.strerror}", hint=remedy(error) or "another --out"
        ) from error


def _need_parquet() -> None:
    """Before anything is written. Raises AlborError with the command that helps."""
    try:
        import pyarrow  # noqa: F401
    except ModuleNotFoundError as error:
        raise AlborError(
            "Parquet needs pyarrow, which is not installed",
            hint="pip install 'pyarrow>=21', or --format csv or jsonl",
        ) from error
