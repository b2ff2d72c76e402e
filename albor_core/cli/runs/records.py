"""`albor runs tail`: what a run recorded, as it was said."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import click

from albor_core.cli.common.count import Count
from albor_core.cli.common.output import clean, emit, json_option, print_line, when
from albor_core.run.rundir import RunDir
from albor_core.run.values.flatten import bare
from albor_core.run.values.lenient import finite_of
from albor_core.store.query.resolve import find_run

_POLL_S = 0.3


@click.command()
@click.argument("run_ref", metavar="RUN")
@click.option(
    "-n",
    "count",
    metavar="N",
    default=10,
    type=Count(0),
    show_default=True,
    help="Show at most N records.",
)
@click.option("--follow", "-f", is_flag=True, help="Follow until the run ends.")
@json_option
def tail(run_ref: str, count: int, follow: bool, as_json: bool) -> None:
    """Show the newest records of RUN's journal: values, events, samples, media. With --follow
    --json one document per line.
    """
    from albor_core.feed.run.records import RecordTail
    from albor_core.run.journal import parse_line

    found = find_run(run_ref)
    records = RecordTail(found.journal, parse_line)
    newest = [record for record in records.records() if record.get("t") != "p"]
    shown = newest[max(0, len(newest) - count) :]
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
    from albor_core.feed.run.records import today_words

    records = [today_words(record) for record in records]
    if as_json:
        from albor_core.run.values.metrics import as_json as strict

        told = [strict({k: v for k, v in record.items() if k != "crc"}) for record in records]
        emit({"schema": "albor.runs.tail/1", "run": {"id": run.id, "path": str(run.path)},
              "records": told})  # fmt: skip
    else:
        for record in records:
            print_line(clean(_line(record, run)))


def _line(record: Mapping[str, Any], run: RunDir) -> str:
    """A record as a person reads it; paths inside the run without its folder."""
    wall, step = record.get("wall"), record.get("step")
    stamp = when(finite_of(wall), "%H:%M:%S")
    head = f"{stamp}  step {step}" if step is not None else stamp
    match record.get("t"):
        case "m":
            body = "  ".join(f"{key} {_short(value)}" for key, value in record["v"].items())
        case "e":
            data = record.get("data")
            pairs = data.items() if isinstance(data, dict) else ()
            said = "  ".join(
                f"{key}={bare(value)}" for key, value in pairs if value not in (None, "")
            )
            body = f"[{record.get('severity')}] {record.get('name')}  {said}"
        case "r":
            body = f"goes back to step {record.get('to')}"
        case "s":
            body = f"sample  {record.get('prompt')!r} -> {record.get('text')!r}"
        case "a":
            body = f"artefact  {record.get('path')}  {record.get('bytes')} bytes"
        case "b":
            words = (record.get(name) or "" for name in ("kind", "key", "caption", "hash"))
            body = f"{'  '.join(filter(None, map(str, words)))}  {record.get('bytes')} bytes"
        case other:
            body = str(other)
    return f"{head}  {body}".replace(f"{run.path}/", "")[:1000]


def _short(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
