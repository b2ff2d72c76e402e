"""The entries of what a run was told to keep to: rules, bricks, budgets. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Iterator

from albor_core.andon.severity import severity_of
from albor_core.feed.attention.entry import item_of
from albor_core.feed.attention.item import GPU_RULE, KINDS, AttentionItem, word_of_gpu
from albor_core.feed.view.diagnostics import LOSSES
from albor_core.feed.view.run_view import BudgetView, RunView
from albor_core.run.values.quantity import byte_size, figure
from albor_core.store.rows.rows import AlertRow
from albor_core.store.watch.not_finite import RULE

BRICK_SLACK = 1.1  # a brick is over its budget from here on, so that a tight one does not flicker
BUDGET_SOFT, BUDGET_SLACK, BUDGET_FROM = 0.9, 1.05, 0.1
_KIND_BY_RULE = (
    *(("budget-", "budget"), ("brick-", "brick"), ("not-finite-", "non_finite")),
    *(("disk-full", "disk"), ("memory-full", "memory")),
)
_BUDGET_RULE = re.compile(r"(budget-[a-z_]+)(-[\d.e+]+)?")
"""Alerts of one budget: at its limit, and with the percentage at its soft share."""
_ENDS_WITH_RUN = ("silent", "disk", "memory")
SILENCE = "silence"
"""The rule of an alert that says no more than the entry of a silent run."""


def rule_items(view: RunView, *, told: Collection[str] = ()) -> Iterator[AttentionItem]:
    """Entries of an active run: alerts that fired, and limits that will be exceeded. `told` are ids
    of alerts that other entries have.
    """
    yield from _alerts(view, told)
    yield from _bricks(view)
    yield from _budgets(view)


def fired_items(view: RunView, *, told: Collection[str] = ()) -> Iterator[AttentionItem]:
    """Entries of an ended run: alerts that fired and still held at its end. Alerts of its machine
    or its silence ended with it.
    """
    rest = {
        alert.id
        for alert in view.diagnostics.alerts
        if alert.kind == "machine" or _kind_of(alert) in _ENDS_WITH_RUN
    }
    yield from _alerts(view, rest.union(told))


def _alerts(view: RunView, told: Collection[str]) -> Iterator[AttentionItem]:
    """One entry for each rule, however often it fired, and for each budget, of which the worse of
    its two alerts is told: it is nearly used up, it is used up.
    """
    for cause, fired in _by_cause(
        one for one in view.diagnostics.alerts if one.id not in told
    ).items():
        rule = cause if any(alert.rule == cause for alert in fired) else fired[-1].rule or cause
        same = [alert for alert in fired if (alert.rule or alert.id) == rule]
        newest, kind = same[-1], _kind_of(same[-1])
        gpu = GPU_RULE.fullmatch(rule) if kind.startswith("gpu_") else None
        times = f" ({len(same)} times)" if len(same) > 1 else ""
        yield item_of(
            view,
            kind,
            name=f"rule:{rule}",
            attempt=newest.attempt or view.attempt,
            severity=severity_of(newest.severity),
            since=fired[0].wall,
            step=newest.step,
            summary=f"{what_fired(newest)}{times}",
            **({"word": word_of_gpu(kind, int(gpu[1]))} if gpu else {}),
            cause=_what_acts(view, newest),
            alert_ids=tuple(alert.id for alert in fired),
            metric=newest.metric or "",
            key_of=kind if kind in ("disk", "memory") else "rule",
        )


def _by_cause(alerts: Iterable[AlertRow]) -> dict[str, list[AlertRow]]:
    found: dict[str, list[AlertRow]] = {}
    for alert in alerts:
        budget = _BUDGET_RULE.fullmatch(alert.rule)
        cause = budget[1] if budget else alert.rule or alert.id
        found.setdefault(cause, []).append(alert)
    return found


_BYTES = ("disk_free", "memory_free")
_OF_MACHINE = (*_BYTES, "seconds_since_step")


def only_tells_of_nan(alert: AlertRow) -> bool:
    """Whether an alert says no more than the entry of values that are not numbers."""
    if alert.rule.startswith(RULE):
        return True
    is_nan = alert.value is not None and not math.isfinite(alert.value)
    return is_nan and alert.metric in LOSSES and alert.action in ("", "warn", "notify")


def what_fired(alert: AlertRow) -> str:
    """The message of an alert, with the measured value if the message lacks it."""
    said = alert.message or alert.rule
    if alert.step is None or alert.value is None or "step" in said:
        return said
    at = f" at step {alert.step:,}"
    if alert.metric in _OF_MACHINE:  # without a figure where the message has it
        free = "" if "free:" in said or alert.metric not in _BYTES else byte_size(alert.value)
        return f"{said}: {free}{at}" if free else f"{said}{at}"
    return f"{said}: {figure(alert.value, alert.metric or '')}{at}"


def _what_acts(view: RunView, alert: AlertRow) -> str:
    asked = alert.action not in ("", "warn", "notify")
    if asked and not view.diagnostics.watched.acts:
        why = view.diagnostics.watched.why_tells_only or "no guard"
        return f"its rule asks for {alert.action!r}, which nothing carries out: {why}"
    return ""


def _kind_of(alert: AlertRow) -> str:
    """The kind of its entry: of a GPU as the machine's entries are called, else as the alert is."""
    if alert.kind == "machine" and (gpu := GPU_RULE.fullmatch(alert.rule)):
        return f"gpu_{gpu[2]}"
    if alert.rule == SILENCE:
        return "silent"
    if alert.kind in KINDS and alert.kind != "rule":
        return alert.kind
    return next((word for start, word in _KIND_BY_RULE if alert.rule.startswith(start)), "rule")


def _bricks(view: RunView) -> Iterator[AttentionItem]:
    told = {alert.metric for alert in view.diagnostics.alerts}
    over = [
        brick
        for brick in view.bricks
        if view.is_live and f"brick/{brick.name}_ms" not in told
        and brick.measured_ms is not None and brick.budget_ms is not None
        and brick.measured_ms > BRICK_SLACK * brick.budget_ms
    ]  # fmt: skip
    if over:
        names = ", ".join(
            f"{brick.name} {brick.measured_ms:.4g} of {brick.budget_ms:.4g} ms" for brick in over
        )
        yield item_of(view, "brick", since=None, step=view.step, summary=f"over budget: {names}")


def _budgets(view: RunView) -> Iterator[AttentionItem]:
    told = {alert.rule for alert in view.diagnostics.alerts}
    for use in view.budgets:
        rule = f"budget-{use.amount}"
        if any(one == rule or one.startswith(f"{rule}-") for one in told):
            continue
        if use.share is not None and _will_exceed(use, use.share, view.progress or 0.0):
            at_end = use.at_completion
            needs = "" if at_end is None else f", {at_end:,.4g} at its end"
            unit = use.unit or use.amount.replace("_", " ")
            yield item_of(
                view,
                "budget",
                name=f"budget:{use.amount}",
                severity="error" if use.share >= 1 else None,
                since=None,
                step=view.step,
                summary=f"{use.used:,.4g} of {use.limit:,.4g} {unit} used{needs}",
                cause="the run is longer than its budget",
            )


def _will_exceed(use: BudgetView, share: float, progress: float) -> bool:
    """Whether it is near its limit, `share` of which is used, or too short by what the run is
    expected to need, as soon as that says something.
    """
    assert use.limit is not None
    at_end, soft = use.at_completion, BUDGET_SOFT if use.soft is None else use.soft
    if share >= soft and (at_end is None or at_end > use.limit):
        return True
    return progress >= BUDGET_FROM and at_end is not None and at_end > BUDGET_SLACK * use.limit
