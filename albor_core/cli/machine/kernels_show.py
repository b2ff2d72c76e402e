"""`albor kernels show`: what a run recorded of its kernels and of its model's parity."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from albor_core.cli.common.lookup import find
from albor_core.cli.common.output import clean, emit, json_option, print_line, table
from albor_core.run.errors import NotFoundError

if TYPE_CHECKING:
    from albor_core.run.rundir import RunDir

NAMES = {"kernels.chosen": "ops", "kernels.rejected": "rejected", "kernels.parity": "parity"}


@click.command()
@click.argument("run", metavar="RUN")
@json_option
def show(run: str, as_json: bool) -> None:
    """Show what runs each op of RUN's newest attempt and why, and how far its whole model is from
    the plain one on the CPU in fp32.
    """
    run_id, folder = find(run)
    if folder is None:
        raise NotFoundError(f"{run_id}: its folder is gone", hint="albor runs ls")
    document = {"schema": "albor.kernels.show/1", "run": run_id, **_recorded(folder)}
    if as_json:
        emit(document)
        return
    if not document["ops"] and not document["parity"]:
        print_line(
            f"{clean(run_id)} recorded no kernels: it is of another program, of an older version, "
            "or has not begun to train"
        )
        return
    for one in document["parity"]:
        print_line(clean(parity_line(one)))
    if document["ops"]:
        head = ("op", "dtype", "device", "backend", "candidate", "cosine", "rms error", "us")
        rows = [row for op in document["ops"] for row in _rows(op)]
        print_line(table((*head, "of its floor", "why"), rows))
    for one in document["rejected"]:
        line = f"rejected: {one.get('op', 'step')} {one.get('dtype', '')}: {one.get('reason', '')}"
        print_line(clean(line))


def _recorded(folder: RunDir) -> dict[str, Any]:
    """Events of the newest attempt that has any, by kind."""
    from albor_core.run.journal import read_journal

    attempt: int | None = None
    found: dict[str, list[dict[str, Any]]] = {kind: [] for kind in NAMES.values()}
    lines = read_journal(folder.journal) if folder.journal.exists() else ()
    for line in lines:
        record = line.record
        if record is None or record.get("t") != "e" or record.get("name") not in NAMES:
            continue
        if record.get("attempt") != attempt:
            attempt, found = record.get("attempt"), {kind: [] for kind in NAMES.values()}
        data = record.get("data")
        if isinstance(data, dict):
            if record["name"] == "kernels.parity":
                data = {**data, "is_bad": record.get("severity") == "warning"}
            found[NAMES[record["name"]]].append({"step": record.get("step"), **data})
    return {"attempt": attempt, **found}


def parity_line(one: Mapping[str, Any]) -> str:
    """A comparison in words."""
    when = f"whole model at {one.get('at', '?')} (step {one.get('step')})"
    if why := one.get("skipped"):
        return f"{when}: not compared: {why}"
    loss, exact = one.get("loss"), one.get("reference_loss")
    apart = None if loss is None or exact is None else loss - exact
    rounded = one.get("rounded_cosine")
    by_rounding = "" if rounded is None else f" (plain in this precision: {rounded:.6f})"
    return (
        f"{when}: cosine {_figure(one.get('cosine'), '.6f')}{by_rounding}, "
        f"largest error {_figure(one.get('max_error'), '.2e')}, "
        f"loss {_figure(loss, '.5f')} ({_figure(apart, '+.1e')} from the CPU in fp32)"
    )


def _rows(op: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """A line for each candidate, or one that says there was none."""
    of = [str(op.get(key, "")) for key in ("op", "dtype", "device", "backend")]
    why = str(op.get("evidence", ""))
    rows = [
        (
            str(one.get("backend")),
            _figure(one.get("cosine"), ".6f"),
            _figure(one.get("rms_error"), ".1e"),
            _figure(one.get("us"), ".4g"),
            _figure(one.get("floor_share"), ".0%"),
        )
        for one in op.get("candidates") or ()
    ] or [("-",) * 5]
    first, *rest = rows
    return [(*of, *first, why), *(("",) * 4 + row + ("",) for row in rest)]


def _figure(value: Any, form: str) -> str:
    return format(value, form) if isinstance(value, int | float) else "-"
