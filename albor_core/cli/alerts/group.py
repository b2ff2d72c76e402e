"""`albor alerts`: what Andon raised, in every run, who has seen it, and what rules would say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import click

from albor_core.andon.actions import ACTIONS
from albor_core.cli.common.lazy import LazyGroup
from albor_core.cli.common.output import (
    clean,
    emit,
    field_values,
    json_option,
    number,
    print_line,
    print_note,
    table,
)
from albor_core.run.errors import ConfigError, NotFoundError
from albor_core.store.query.resolve import find_run

if TYPE_CHECKING:
    from albor_core.andon.alert import Alert
    from albor_core.andon.rules.sources import Rule
    from albor_core.run.rundir import RunDir

_BAD_RULES = ConfigError.exit_code


@click.group(
    cls=LazyGroup,
    entries={
        "ls": (f"{__name__}:ls", "List alerts of all runs, or of one."),
        "ack": (f"{__name__}:ack", "Acknowledge an alert."),
        "rules": (f"{__name__}:rules", "List the rules that watch a run."),
        "test": (f"{__name__}:test", "Test rules against a run's history."),
        "notify-test": (f"{__package__}.notify:notify_test", "Send a test message to sinks."),
    },
)
def alerts() -> None:
    """List and acknowledge alerts, list and test alert rules (Andon, the board of all alerts)."""


@alerts.command()
@click.argument("run", required=False)
@click.option(
    "--open",
    "open_only",
    is_flag=True,
    help="Show open alerts only: neither ended nor acknowledged.",
)
@json_option
def ls(run: str | None, open_only: bool, as_json: bool) -> None:
    """List the alerts of all runs, or of RUN, newest first."""
    from albor_core.cli.common.lookup import CATCH_UP_S, open_store

    run_id = find_run(run).id if run is not None else None
    rows = []
    reader = open_store(None)
    if reader is not None:
        from albor_core.feed.run.alerts import index_answers

        with reader:
            index_answers(reader.alerts(run_id, open_only=True), timeout_s=CATCH_UP_S)
            rows = list(reversed(reader.alerts(run_id, open_only=open_only)))
    if as_json:
        emit({"schema": "albor.alerts.ls/1", "alerts": [field_values(row) for row in rows]})
        return
    if not rows:
        print_line("no alerts")
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
            "no" if row.cleared_wall is None else "yes",
            row.message,
        )
        for row in rows
    ]
    heads = ("alert", "severity", "action", "step", "metric", "value", "seen", "over", "message")
    print_line(table(("run", *(("name",) if has_names else ()), *heads), cells, right="step value"))


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
        print_line(f"{found.id}: acknowledged {len(chosen)}")


@alerts.command()
@click.argument("run")
@json_option
def rules(run: str, as_json: bool) -> int:
    """List the rules that watch RUN, each in one sentence.

    Exits with 2 and names the rules that cannot be used, if there are any.
    """
    from albor_core.feed.archive.rule_replay import rule_json, rules_of

    found = find_run(run)
    kind = str(found.metadata().get("kind") or "")
    watching, problems = rules_of(found)
    listed: Any = [rule_json(rule, kind) for rule in watching]
    if as_json:
        emit({"schema": "albor.alerts.rules/1", "run": found.id, "rules": listed,
              "problems": [*problems]})  # fmt: skip
        return _BAD_RULES if problems else 0
    if listed:
        print_line(table(("rule", "meaning"), [(rule["id"], rule["sentence"]) for rule in listed]))
    elif not problems:
        why = "neither its config nor rules.yaml has any"
        why = "it was imported" if kind == "imported" else why
        print_note(f"{found.id}: no rules: {why}")
    return _say_bad_rules(problems)


@alerts.command()
@click.argument("run")
@click.argument("conditions", nargs=-1, metavar="[CONDITION]...")
@click.option(
    "--action",
    type=click.Choice(tuple(ACTIONS)),
    default="notify",
    show_default=True,
    help="Test the rule with this action.",
)
@click.option(
    "--rules-of",
    metavar="CONFIG",
    type=click.Path(dir_okay=False),
    help="Test the rules of a config file.",
)
@click.option(
    "--expect",
    type=click.Choice(("none", "fires")),
    help="Exit with 1 if the rules do otherwise: none fires, or each one fires.",
)
@json_option
def test(
    run: str,
    conditions: tuple[str, ...],
    action: str,
    rules_of: str | None,
    expect: Literal["none", "fires"] | None,
    as_json: bool,
) -> int:
    """Test rules against the history of RUN; no alert is raised.

    Without a CONDITION (for example "loss > 3") the run's own rules are tested. Exits with 2 if a
    rule cannot be used, and with 3 if a CONDITION found no value to compare. With --expect a rule
    that found no value counts as not as expected, whichever is expected: nothing was tested.
    """
    from albor_core.feed.archive import rule_replay

    if conditions and rules_of is not None:
        raise click.UsageError("give conditions or --rules-of, not both")
    found = find_run(run)
    wanted, problems = _wanted(found, conditions, action, rules_of)
    played = rule_replay.replay_rules(found, wanted)
    fires = expect == "fires"
    missed = [] if expect is None else rule_replay.unexpected(found, played, fires=fires)
    idle = rule_replay.untested(found, played)
    code = _BAD_RULES if problems else int(bool(missed))
    if conditions and idle and expect is None:
        code = NotFoundError.exit_code
    if as_json:
        replays = [one.to_json() for one in played]
        listed: Any = [{**one, "untested": idle.get(one["condition"])} for one in replays]
        emit({"schema": "albor.alerts.test/1", "run": found.id, "rules": listed,
              "problems": [*problems], "expect": expect,
              "as_expected": None if expect is None else not code,
              "unexpected": missed})  # fmt: skip
        return code
    if not played:
        if not problems:
            print_note(f"{found.id}: no rules; try: albor alerts test {found.id} 'loss > 3'")
        _say_bad_rules(problems)
        return code
    cells = [
        (
            str(one.rule.condition),
            one.rule.action,
            f"{one.points:,}{'' if one.is_exact else ' (preview)'}",
            str(len(one.alerts)),
            _steps(one.alerts),
            _steps(one.clears),
        )
        for one in played
    ]
    heads = ("condition", "action", "points", "alerts", "at steps", "over at")
    print_line(table(heads, cells, right="points alerts"))
    for condition, why in idle.items():
        print_note(f"nothing was tested: {clean(condition)}: {clean(why)}")
    for line in missed:
        print_note(f"not as expected: {clean(line)}")
    _say_bad_rules(problems)
    return code


def _wanted(
    run: RunDir, conditions: Sequence[str], action: str, rules_of: str | None
) -> tuple[Sequence[Rule], tuple[str, ...]]:
    """The rules to test, and what is wrong with those that cannot be."""
    from albor_core.feed.archive import rule_replay

    if rules_of is not None:
        return rule_replay.rules_like(run, _monitoring_of(rules_of)), ()
    if conditions:
        return rule_replay.rules_for(run, conditions, action=action), ()
    return rule_replay.rules_of(run)


def _steps(alerts: Sequence[Alert]) -> str:
    return ", ".join(str(one.step) for one in alerts[:5]) + (", ..." if len(alerts) > 5 else "")


def _say_bad_rules(problems: Sequence[str]) -> int:
    """The exit code."""
    for problem in problems:
        print_note(f"not used: {clean(problem)}")
    return _BAD_RULES if problems else 0


def _monitoring_of(path: str) -> dict[str, object]:
    from pathlib import Path

    from albor_core.config.load import load_config

    return dict(load_config(Path(path)).config.resolved()["monitoring"])
