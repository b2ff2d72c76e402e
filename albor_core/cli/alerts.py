"""`albor alerts`: what Andon raised, in every run, and who has seen it."""

from __future__ import annotations

from dataclasses import asdict

import click

from albor_core.cli.lazy import LazyGroup
from albor_core.cli.output import emit, json_option, number, say, table
from albor_core.run.errors import NotFoundError
from albor_core.run.rundir import find_run


@click.group(
    cls=LazyGroup,
    entries={
        "ls": (f"{__name__}:ls", "Alerts of all runs, or of one, newest first."),
        "ack": (f"{__name__}:ack", "Say that an alert has been seen."),
    },
)
def alerts() -> None:
    """What Andon raised, and who has seen it."""


@alerts.command()
@click.argument("run", required=False)
@click.option("--open", "open_only", is_flag=True, help="Only those nobody has acknowledged.")
@json_option
def ls(run: str | None, open_only: bool, as_json: bool) -> None:
    """Alerts of all runs, or of RUN, newest first."""
    from albor_core.store.paths import global_store
    from albor_core.store.reader import Reader

    run_id = find_run(run).id if run is not None else None
    rows = []
    if global_store().is_file():
        with Reader(global_store()) as reader:
            rows = list(reversed(reader.alerts(run_id, open_only=open_only)))
    if as_json:
        emit({"schema": "albor.alerts.ls/1", "alerts": [asdict(row) for row in rows]})
        return
    if not rows:
        say("no alerts")
        return
    cells = [
        (
            row.run_id,
            row.id,
            row.severity,
            row.action,
            str(row.step),
            row.metric or "-",
            number(row.value),
            row.acked_by or "no",
            row.message,
        )
        for row in rows
    ]
    heads = ("run", "alert", "severity", "action", "step", "metric", "value", "seen", "message")
    say(table(heads, cells, right="step value"))


@alerts.command()
@click.argument("run")
@click.argument("alert")
@json_option
def ack(run: str, alert: str, as_json: bool) -> None:
    """Acknowledge ALERT of RUN (`all` for every open one)."""
    from albor_core.feed.alerts import open_alerts
    from albor_core.store.annotations import annotate
    from albor_core.store.settle import settle

    found = find_run(run)
    known = open_alerts(found)
    chosen = known if alert == "all" else tuple(a for a in known if a == alert)
    if not chosen and alert != "all":
        raise NotFoundError(
            f"{found.id}: no open alert {alert!r}", hint=f"albor alerts ls {found.id}"
        )
    for name in chosen:
        annotate(found, "ack", name)
    settle(found)
    if as_json:
        emit({"schema": "albor.alerts.ack/1", "run": found.id, "acknowledged": list(chosen)})
    else:
        say(f"{found.id}: acknowledged {len(chosen)}")
