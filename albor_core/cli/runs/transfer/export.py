"""`albor runs export`: runs, points, params, events or media as rows, to a file or to stdout."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TextIO, cast

import click

from albor_core.cli.common.output import (
    StdoutError,
    clean,
    emit,
    json_option,
    out_file,
    print_note,
)
from albor_core.cli.plans.file_plan import Estimate, no_files, plans, rehearsal, run_source
from albor_core.run.errors import AlborError, UsageError

if TYPE_CHECKING:
    from albor_core.history.one_run import RecordedRun
    from albor_core.history.tables import Table

FORMATS = ("jsonl", "csv", "parquet", "otlp")
WHAT = ("points", "runs", "params", "events", "media")
filter_option = click.option(
    "--filter", "terms", metavar="FILTER",
    help="Choose the runs that match FILTER, in the syntax of `albor runs ls`; '' is every run.",
)  # fmt: skip


@click.command()
@click.argument("references", nargs=-1, metavar="[RUN]...")
@filter_option
@click.option(
    "--what",
    type=click.Choice(WHAT),
    help=(
        "Export these: runs are one row each, with their params and last values."
        "  [default: points; of otlp always spans]"
    ),
)
@click.option(
    "--out",
    "-o",
    type=click.Path(path_type=Path, dir_okay=False, allow_dash=True),
    help="Write to this file; - is stdout.  [default: stdout]",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    help=(
        "Write this format; otlp is one JSON document of OpenTelemetry spans."
        "  [default: by the file's suffix, else jsonl]"
    ),
)
@click.option("--key", "keys", multiple=True, help="Export only points of this metric; repeatable.")
@click.option("--force", is_flag=True, help="Replace the file if it exists.")
@json_option
@plans(lambda told: sources(told), lambda told: _files(told["out"]), lambda *of: _estimate(*of))
def export(
    references: tuple[str, ...],
    terms: str | None,
    what: str | None,
    out: Path | None,
    form: str | None,
    keys: tuple[str, ...],
    force: bool,
    as_json: bool,
) -> None:
    """Export runs as rows: every point, or the runs themselves, their params, events or media.

    The file appears only when it is complete. `albor schema albor.runs.export.row` describes a row
    of points; `albor.runs.export.runs`, `.params`, `.events` and `.media` describe the others.
    """
    out = None if out == Path("-") else out
    form = form or (out.suffix.lstrip(".").lower() if out is not None else "jsonl")
    if form == "otlp" and what is not None:
        raise UsageError(f"otlp has spans: it does not go with --what {what}",
                         hint="--format jsonl, csv or parquet")  # fmt: skip
    what = what or ("spans" if form == "otlp" else "points")
    _check(out, form, what, keys, as_json=as_json)
    runs = chosen(references, terms)
    if form == "otlp":
        columns, write = [], _spans_of(runs)
    else:
        table = _table(runs, what, keys, is_lenient=terms is not None)
        columns, write = [*table.kinds], partial(_write_table, table, form)
    if out is None:
        _to_stdout(write)
        return
    with out_file(out, replace=force) as file:
        rows = write(file)
    if as_json:
        document: Any = {
            "schema": "albor.runs.export/1",
            "path": str(out),
            "format": form,
            "what": what,
            "runs": [run.id for run in runs],
            "columns": columns,
            "rows": rows,
        }
        emit(document)
    else:
        print_note(f"{rows:,} {'spans' if form == 'otlp' else 'rows'} in {clean(out)}")


def sources(told: Mapping[str, Any]) -> Iterable[str | Path]:
    """The paths that the runs of a command line with RUN... and --filter are read from."""
    if told["terms"] is None:
        return map(run_source, told["references"])
    try:
        return [run.folder.path for run in chosen(told["references"], told["terms"])]
    except AlborError:
        return []  # which the verb says in its own words


def _files(out: Path | None) -> list[Path]:
    return [] if out is None or out == Path("-") else [out]


def _estimate(verb: Callable[..., Any], told: Mapping[str, Any]) -> Estimate:
    return (rehearsal if _files(told["out"]) else no_files)(verb, told)


def chosen(references: Sequence[str], terms: str | None) -> Sequence[RecordedRun]:
    """The runs that a command line names or whose filter it gives. Raises UsageError for both and
    for neither, NotFoundError where there are none.
    """
    from albor_core import history

    if terms is None and not references:
        raise UsageError(
            "which runs?", hint="RUN..., or --filter 'experiment:NAME'; '' is every run"
        )
    if terms is None:
        return [*{run.id: run for run in map(history.run, references)}.values()]
    if references:
        raise UsageError(f"cannot take RUN and --filter together: {references[0]!r} is a RUN",
                         hint=f"--filter 'id:{references[0]} ...'")  # fmt: skip
    return history.runs(terms)


def _check(out: Path | None, form: str, what: str, keys: Sequence[str], *, as_json: bool) -> None:
    if form not in FORMATS:
        raise UsageError(f"{out}: which format?", hint="--format jsonl, csv, parquet or otlp")
    if out is None and (as_json or form == "parquet"):
        said = "--json" if as_json else "parquet"
        raise UsageError(f"{said} needs a file to write to", hint="--out FILE")
    if keys and what != "points":
        raise UsageError(f"--key chooses points: it does not go with --what {what}",
                         hint="--what points")  # fmt: skip


def _table(
    runs: Sequence[RecordedRun], what: str, keys: Sequence[str], *, is_lenient: bool
) -> Table:
    from albor_core.history import tables

    def tell(text: str) -> None:
        print_note(clean(text))

    if what == "points":
        made = tables.points_of_any if is_lenient else tables.points
        return made(runs, keys, tell=tell)
    if what == "media":
        return tables.media(runs, is_lenient=is_lenient, tell=tell)
    plain = {"runs": tables.run_table, "params": tables.params, "events": tables.events}
    return plain[what](runs)


def _spans_of(runs: Sequence[RecordedRun]) -> Callable[[BinaryIO | TextIO], int]:
    """The writer of spans. Raises NotFoundError if a folder is gone: spans are made from its
    files."""
    from albor_core.run.home.runs import placed
    from albor_core.store.spans.export import write_spans

    folders = [placed(run.id, run.path) for run in runs]
    for folder in folders:
        folder.metadata()
    return partial(_write_text, partial(write_spans, folders))


def _write_table(table: Table, form: str, file: BinaryIO | TextIO) -> int:
    from albor_core.history.files import TEXT_FORMATS, need_parquet, write_parquet

    if form == "parquet":
        need_parquet()
        return write_parquet(table, cast(BinaryIO, file))
    return _write_text(partial(TEXT_FORMATS[form], table), file)


def _write_text(write: Callable[[TextIO], int], file: BinaryIO | TextIO) -> int:
    if isinstance(file, io.TextIOBase):
        return write(cast(TextIO, file))
    with io.TextIOWrapper(cast(BinaryIO, file), encoding="utf-8", newline="") as text:
        return write(text)


def _to_stdout(write: Callable[[BinaryIO | TextIO], int]) -> None:
    try:
        write(sys.stdout)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise StdoutError(f"cannot write to stdout: {error.strerror}", hint="--out FILE") from error
