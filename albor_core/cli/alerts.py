"""`albor alerts`: what Andon raised, in every run, who has seen it, and what rules would say."""

from __future__ import annotations

from dataclasses import asdict

import click

from albor_core.andon.actions import ACTIONS
from albor_core.cli.common.lazy import LazyGroup
from albor_core.cli.common.output import emit, json_option, number, say, table, talk
from albor_core.run.errors import NotFoundError
from albor_core.store.query.resolve import find_run


@click.group(
    cls=LazyGroup,
    entries={
        "ls": (f"{__name__}:ls", "List alerts of all runs, or of one."),
        "ack": (f"{__name__}:ack", "Acknowledge an alert."),
        "rules": (f"{__name__}:rules", "List the rules that watch a run."),
        "test": (f"{__name__}:test", "Test rules against a run's history."),
    },
)
def alerts() -> None:
    """List, acknowledge and test Andon alerts."""


@alerts.command()
@click.argument("run", required=False)
@click.option(
    "--open", "open_only", is_flag=True, help="Show open alerts only, not acknowledged ones."
)
@json_option
def ls(run: str | None, open_only: bool, as_json: bool) -> None:
    """List the alerts of all runs, or of RUN, newest first."""
    from albor_core.cli.common.lookup import open_store

    run_id = find_run(run).id if run is not None else None
    rows = []
    reader = open_store(None)
    if reader is not None:
        with reader:
            rows = list(reversed(reader.alerts(run_id, open_only=open_only)))
    if as_json:
        emit({"schema": "albor.alerts.ls/1", "alerts": [asdict(row) for row in rows]})
        return
    if not rows:
        say("no alerts")
        return
    has_names = any(row.run_name not in ("", row.run_id) for row in rows)
    cells = [
        (
            row.run_id,
            *((row.run_name,) if has_names else ()),
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
    heads = ("alert", "severity", "action", "step", "metric", "value", "seen", "message")
    say(table(("run", *(("name",) if has_names else ()), *heads), cells, right="step value"))


@alerts.command()
@click.argument("run")
@click.argument("alert")
@json_option
def ack(run: str, alert: str, as_json: bool) -> None:
    """Acknowledge ALERT of RUN (`all` for every open one)."""
    from albor_core.feed.run.alerts import open_alerts
    from albor_core.store.index.annotations import annotate
    from albor_core.store.index.catch_up import drain_index

    found = find_run(run)
    known = open_alerts(found)
    chosen = known if alert == "all" else tuple(a for a in known if a == alert)
    if not chosen and alert != "all":
        raise NotFoundError(
            f"{found.id}: no open alert {alert!r}", hint=f"albor alerts ls {found.id}"
        )
    for name in chosen:
        annotate(found, "ack", name)
    drain_index(found)
    if as_json:
        emit({"schema": "albor.alerts.ack/1", "run": found.id, "acknowledged": list(chosen)})
    else:
        say(f"{found.id}: acknowledged {len(chosen)}")


@alerts.command()
@click.argument("run")
@json_option
def rules(run: str, as_json: bool) -> None:
    """List the rules that watch RUN, each in one sentence."""
    from albor_core.feed.archive.rule_replay import rule_json, rules_of

    found = find_run(run)
    listed = [rule_json(rule) for rule in rules_of(found)]
    if as_json:
        emit({"schema": "albor.alerts.rules/1", "run": found.id, "rules": listed})
    elif not listed:
        is_ours = found.metadata().get("kind") == "train"
        why = "its config has no monitoring.alerts" if is_ours else "rules watch `albor train` only"
        talk(f"{found.id}: no rules: {why}")
    else:
        say(table(("rule", "meaning"), [(rule["id"], rule["sentence"]) for rule in listed]))


@alerts.command()
@click.argument("run")
@click.argument("conditions", nargs=-1, metavar="[CONDITION]...")
@click.option(
    "--action",
    type=click.Choice(tuple(ACTIONS)),
    default="warn",
    show_default=True,
    help="Assume this action.",
)
@json_option
def test(run: str, conditions: tuple[str, ...], action: str, as_json: bool) -> None:
    """Test rules against the history of RUN; no alert is raised.

    Without a CONDITION (for example "loss > 3") the run's own rules are tested.
    """
    from albor_core.feed.archive.rule_replay import replay_rules, rules_for, rules_of

    found = find_run(run)
    wanted = rules_for(found, conditions, action=action) if conditions else rules_of(found)
    played = replay_rules(found, wanted)
    if as_json:
        listed = [one.to_json() for one in played]
        emit({"schema": "albor.alerts.test/1", "run": found.id, "rules": listed})
        return
    if not played:
        talk(f"{found.id}: no rules; try: albor alerts test {found.id} 'loss > 3'")
        return
    cells = [
        (
            str(one.rule.condition),
            one.rule.action,
            f"{one.points:,}{'' if one.is_exact else ' (preview)'}",
            str(len(one.alerts)),
            ", ".join(str(alert.step) for alert in one.alerts[:5])
            + (", ..." if len(one.alerts) > 5 else ""),
        )
        for one in played
    ]
    heads = ("condition", "action", "points", "alerts", "at steps")
    say(table(heads, cells, right="points alerts"))
