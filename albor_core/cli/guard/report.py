"""`albor guard report`: how an attempt of a run died, from its crash report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import click

from albor_core.cli.common.count import Count
from albor_core.cli.common.output import clean, emit, json_option, print_line
from albor_core.run.errors import NotFoundError
from albor_core.run.rundir import RunDir, read_json
from albor_core.run.values.quantity import duration
from albor_core.store.query.resolve import find_run

_LINES = 40


@click.command()
@click.argument("run_ref", metavar="RUN")
@click.option(
    "--attempt", type=Count(1), metavar="N", help="Show this attempt.  [default: the newest]"
)
@json_option
def report(run_ref: str, attempt: int | None, as_json: bool) -> None:
    """Show the newest crash report of RUN: what happened, when, why, the evidence, the end of its
    log."""
    run = find_run(run_ref)
    wanted = "*" if attempt is None else f"*-a{attempt:04d}"
    path = max(run.crash_reports.glob(f"{wanted}.json"), default=None)
    found: Any = None if path is None else read_json(path)
    if path is None or found is None:
        of = "" if attempt is None else f" of attempt {attempt}"
        raise NotFoundError(f"{run.id} has no crash report{of}", hint=f"albor runs show {run.id}")
    if as_json:
        emit(found)
    else:
        for line in _text(run, found):
            print_line(clean(line))
        print_line(clean(f"  file     {path}"))


def _text(run: RunDir, found: Mapping[str, Any]) -> Iterator[str]:
    when, ended, known = (
        found.get("time") or {},
        found.get("exit") or {},
        found.get("evidence") or {},
    )
    code = ended.get("signal") or f"exit code {ended.get('code')}"
    delay = found.get("delay_s")
    after = "" if delay is None else f" after {duration(delay)}"
    yield f"{run.id}  attempt {found.get('attempt')}: {found.get('reason')}"
    yield f"  when     {when.get('wall')}, it had lived {duration(when.get('lived_s'))}"
    yield f"  what     {found.get('class')}: {code}; then {found.get('action')}{after}"
    yield f"  command  {' '.join(map(str, found.get('argv') or []))}"
    progress = found.get("progress") or {}
    if progress.get("step") is not None:
        yield f"  step     {progress['step']}, last checkpoint {progress.get('last_ckpt_step')}"
    yield from _evidence(run, known)


def _evidence(run: RunDir, known: Mapping[str, Any]) -> Iterator[str]:
    """The evidence of why it died."""
    where = (known.get("python") or {}).get("where")
    for label, fact in (
        ("where", where),
        ("hang", known.get("hang")),
        ("stacks", _place(run, known)),
    ):
        if fact:
            yield f"  {label:<9}{fact}"
    for line in (known.get("oom") or {}).get("dmesg") or ():
        yield f"  kernel   {line}"
    for xid in known.get("xid") or ():
        yield f"  Xid      {xid.get('line')}"
    tail = known.get("log_tail") or []
    if tail:
        yield f"  the end of {known.get('log')}:"
        yield from (f"    {line}" for line in tail[-_LINES:])


def _place(run: RunDir, known: Mapping[str, Any]) -> str | None:
    return f"{run.path}/{known['stacks']}" if known.get("stacks") else None
