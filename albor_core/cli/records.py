"""`albor runs tail` and `export`: what a run recorded, as it was said and as data."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from albor_core.cli.output import clean, emit, json_option, say, talk
from albor_core.run.errors import AlborError, UsageError
from albor_core.run.rundir import RunDir, find_run

if TYPE_CHECKING:
    from albor_core.store.export import Page

_POLL_S = 0.3


@click.command()
@click.argument("run_ref", metavar="RUN")
@click.option("-n", "count", default=10, show_default=True, help="At most so many records.")
@click.option("--follow", "-f", is_flag=True, help="Go on until the run ends.")
@json_option
def tail(run_ref: str, count: int, follow: bool, as_json: bool) -> None:
    """The newest records of RUN's journal: values, events, samples. With --follow --json one
    document per line.
    """
    from albor_core.feed.records import RecordTail
    from albor_core.run.journal import parse_line

    found = find_run(run_ref)
    records = RecordTail(found.journal, parse_line)
    newest = [record for record in records.records() if record.get("t") != "p"]
    shown = newest[max(0, len(newest) - max(count, 0)) :]
    _print(found, shown, as_json)
    seen = _seq(newest[-1]) if newest else 0
    while follow:
        alive = found.liveness().is_alive  # before the read: what was said until then is read
        fresh = [r for r in records.records() if _seq(r) > seen and r.get("t") != "p"]
        if fresh:
            seen = _seq(fresh[-1])
            _print(found, fresh, as_json)
        elif not alive:
            return
        time.sleep(_POLL_S)


def _seq(record: Mapping[str, Any]) -> int:
    number = record.get("seq")
    return number if isinstance(number, int) else 0


def _print(run: RunDir, records: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        from albor_core.run.values import as_json as strict

        told = [strict({k: v for k, v in record.items() if k != "crc"}) for record in records]
        where = {"id": run.id, "path": str(run.path)}
        emit({"schema": "albor.runs.tail/1", "run": where, "records": told})
    else:
        for record in records:
            say(clean(_line(record)))


def _line(record: Mapping[str, Any]) -> str:
    """A record as a person reads it."""
    wall, step = record.get("wall"), record.get("step")
    stamp = time.strftime("%H:%M:%S", time.gmtime(wall)) if isinstance(wall, int | float) else "-"
    head = f"{stamp}  step {step}" if step is not None else stamp
    match record.get("t"):
        case "m":
            body = "  ".join(f"{key} {_short(value)}" for key, value in record["v"].items())
        case "e":
            data = record.get("data")
            pairs = data.items() if isinstance(data, dict) else ()
            said = "  ".join(f"{key}={value}" for key, value in pairs if value is not None)
            body = f"[{record.get('severity')}] {record.get('name')}  {said}"
        case "r":
            body = f"goes back to step {record.get('to')}"
        case "s":
            body = f"sample  {record.get('prompt')!r} -> {record.get('text')!r}"
        case "a":
            body = f"artefact  {record.get('path')}  {record.get('bytes')} bytes"
        case other:
            body = str(other)
    return f"{head}  {body}"[:1000]


def _short(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


@click.command()
@click.argument("references", nargs=-1, required=True, metavar="RUN...")
@click.option(
    "--out", "-o", type=click.Path(path_type=Path, dir_okay=False), help="A file; else stdout."
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["jsonl", "csv", "parquet"]),
    help="By default what the file's name says, else jsonl.",
)
@click.option("--key", "keys", multiple=True, help="Only this metric; may be given again.")
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
    """Every point of one or more runs as rows: run, experiment, key, step, wall, value."""
    from albor_core.store.export import COLUMNS

    form = form or (out.suffix.lstrip(".") if out is not None else "jsonl")
    if form not in ("jsonl", "csv", "parquet"):
        raise UsageError(f"{out}: which format?", hint="--format jsonl, csv or parquet")
    if out is None and (as_json or form == "parquet"):
        what = "--json" if as_json else "parquet"
        raise UsageError(f"{what} needs a file to write to", hint="--out FILE")
    if out is not None and out.exists() and not force:
        raise UsageError(f"{out}: exists", hint="another --out, or --force")
    runs = [find_run(reference) for reference in references]
    rows = _to_stdout(runs, keys, form) if out is None else _to_file(runs, keys, form, out)
    if as_json:
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
    elif out is not None:
        talk(f"{rows:,} rows in {out}")


def _pages(runs: list[RunDir], keys: tuple[str, ...]) -> Iterator[Page]:
    from albor_core.store.export import pages
    from albor_core.store.settle import settle

    for run in runs:
        settle(run)
        yield from pages(run, keys=keys or None)


def _to_stdout(runs: list[RunDir], keys: tuple[str, ...], form: str) -> int:
    from albor_core.store.export import FORMATS

    return FORMATS[form](_pages(runs, keys), sys.stdout)


def _to_file(runs: list[RunDir], keys: tuple[str, ...], form: str, out: Path) -> int:
    """Whole or not at all: under a temporary name first."""
    from albor_core.store.export import FORMATS

    temporary = out.with_name(f".{out.name}.tmp")
    try:
        if form == "parquet":
            from albor_core.data.points import write_parquet

            rows = write_parquet(_pages(runs, keys), temporary)
        else:
            with temporary.open("w", encoding="utf-8", newline="") as file:
                rows = FORMATS[form](_pages(runs, keys), file)
        temporary.replace(out)
    except OSError as error:
        raise AlborError(f"{out}: {error.strerror}", hint="another --out") from error
    finally:
        temporary.unlink(missing_ok=True)
    return rows
