"""The entries of one run, by what its view and its diagnostics say. Pure.

A trouble of a moment (hung, silent) has the step that it stands at in its id, one of an attempt
its number: what was said about it holds until the run moves, or is started again.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

from albor_core.feed.attention.causes import REFUSED, cause_of_end
from albor_core.feed.attention.entry import HOUR_S, at_risk, cost_fields, first_line, item_of
from albor_core.feed.attention.item import AttentionItem
from albor_core.feed.attention.of_rules import (
    SILENCE,
    fired_items,
    only_tells_of_nan,
    rule_items,
    what_fired,
)
from albor_core.feed.run.offers import has_guard_gone
from albor_core.feed.view.diagnostics import NonFinite
from albor_core.feed.view.run_status import FOLDER_GONE
from albor_core.feed.view.run_view import RunView
from albor_core.run.exit import STOPPED_BY_ANDON
from albor_core.run.values.quantity import age, counted, duration
from albor_core.store.rows.rows import AlertRow, AttemptRow

NON_FINITE_KEPT_S = HOUR_S  # after the newest one: a loop may come through NaN now and then
RESTARTS_SHOWN_S = HOUR_S
MANY_RESTARTS = 3
MOST_NAMED = 8  # metrics of one entry
CHECKPOINT_SAVES, CHECKPOINT_S = 3, 900.0  # late by so many intervals, and at least so old


def live_items(view: RunView, gpus: int | None, now: float) -> Iterator[AttentionItem]:
    """Entries of an active run on `gpus` GPUs (None: unknown)."""
    if view.detail.startswith(FOLDER_GONE):
        yield item_of(
            view,
            "folder_gone",
            since=None,
            summary=view.detail,
            cause="its folder was deleted or moved while it ran; only"
            f" kill {view.trainer_pid} ends it",
        )
        return  # there is nothing of it to look at
    stands = tuple(_progress(view, gpus, now))
    yield from stands
    if has_guard_gone(view):
        yield item_of(
            view,
            "unguarded",
            summary="its guard ended: nothing would restart it",
            since=(view.guard or {}).get("wall"),
            **at_risk(view, gpus, now),
        )
    yield from _restarts(view, now)
    non_finite = tuple(_non_finite(view, gpus, now))
    yield from non_finite
    yield from rule_items(view, told={i for item in (*stands, *non_finite) for i in item.alert_ids})
    yield from _checkpoints(view, gpus, now)
    yield from _lost(view)
    yield from _watching(view)


def ended_items(view: RunView, gpus: int | None, now: float) -> Iterator[AttentionItem]:
    """Entries of an ended run: the reason of its end, if that is a trouble, and missing records."""
    if view.kind != "imported":
        yield from _bad_end(view, gpus, now)
    non_finite = tuple(_ended_non_finite(view))
    yield from non_finite
    told = {i for item in non_finite for i in item.alert_ids}
    if view.status == "stopped" and was_stopped_by_rule(view):
        told.update(one.id for one in _asked_to_stop(view))
    yield from fired_items(view, told=told)
    yield from _lost(view)


def _bad_end(view: RunView, gpus: int | None, now: float) -> Iterator[AttentionItem]:
    """Entries of a run that failed, is lost or was stopped by a rule."""
    if view.status == "completed":
        return
    since = view.ended_wall if view.ended_wall is not None else view.last_wall
    if view.status == "stopped":
        if was_stopped_by_rule(view):
            yield item_of(
                view, "rule", tag="stopped", severity="error", since=since, step=view.step,
                summary=_why_stopped(view),
                alert_ids=tuple(one.id for one in _asked_to_stop(view)),
                cause="one of its own rules stopped it",
                key_of="died",
            )  # fmt: skip
        return
    if view.status == "lost":
        summary = view.detail or "no process works on it and no end was recorded"
        cause = "killed from outside, or the machine went down: nothing recorded an end"
        if view.detail.startswith(FOLDER_GONE):
            cause = "its folder was deleted or moved: how it ended was recorded nowhere else"
        kind = "lost"
    else:
        summary = first_line(view.diagnostics.error) or view.detail or "it failed"
        kind = "failed" if _was_refused(view) else "died"
        cause = cause_of_end(view.diagnostics.exit_class, f"{view.diagnostics.error} {view.detail}")
    at = since if since is not None else now
    yield item_of(
        view, kind, since=since, step=view.step, summary=summary, cause=cause,
        **at_risk(view, gpus, at, verb="lost"),
    )  # fmt: skip


def _progress(view: RunView, gpus: int | None, now: float) -> Iterator[AttentionItem]:
    """Hung or silent; the word of its guard counts where that is faster."""
    is_hung = view.status == "stalled" or (view.guard or {}).get("state") == "hung"
    if not is_hung and not view.is_silent:
        return
    silent_s = view.age_s or 0.0
    hours = silent_s / HOUR_S
    alive = f"process {view.trainer_pid} is alive" if view.trainer_pid else ""
    usual = f"its steps took {_step_time(view)}" if _step_time(view) else ""
    while_ = f" while {view.phase}" if view.phase and view.phase != "training" else ""
    summary = ", ".join(p for p in (f"no news for {age(silent_s)}{while_}", usual, alive) if p)
    yield item_of(
        view,
        "hung" if is_hung else "silent",
        tag=f".{view.step or 0}",
        since=now - silent_s,
        step=view.step,
        summary=summary,
        cause=_why_hung(view),
        alert_ids=_silence_alerts(view),
        **cost_fields(hours, gpus, "{} without a step"),
    )


def _silence_alerts(view: RunView) -> tuple[str, ...]:
    """Of the alerts that say the same, or else the one that is to come: the index process tells of
    a silence later than the list shows it, and what was seen is not to be said again.
    """
    told = tuple(alert.id for alert in view.diagnostics.alerts if alert.rule == SILENCE)
    return told or (f"{SILENCE}@{view.attempt or 1}.{view.step or 0}",)


def _why_hung(view: RunView) -> str:
    idle = [gpu.index for gpu in view.gpu if (gpu.util_percent or 100.0) < 10.0]
    if idle and len(idle) < len(view.gpu):
        waits = f"GPU {idle[0]} does nothing while others are busy: one rank waits or has ended"
    elif idle:
        waits = "its GPUs do nothing: it waits for data, a disk or the network"
    elif view.gpu:
        waits = "its GPUs are busy: a collective that a rank does not join, or a very long step"
    else:
        waits = "it waits for data, a disk, the network or a lock, or takes a very long step"
    if view.guard_pid is None:
        return f"{waits}; nothing ends it: it has no guard"
    return waits


def _restarts(view: RunView, now: float) -> Iterator[AttentionItem]:
    ends = [
        one
        for one in view.diagnostics.attempts
        if one.action == "restart" and one.ended is not None
        and now - one.ended < RESTARTS_SHOWN_S
    ]  # fmt: skip
    if not ends:
        return
    newest = ends[-1]
    error = newest.reason or newest.exit_class or ""
    times = "once" if len(ends) == 1 else f"{len(ends)} times"
    yield item_of(
        view,
        "restarted",
        attempt=newest.attempt,
        severity="error" if len(ends) >= MANY_RESTARTS else None,
        since=newest.ended,
        step=newest.step,
        summary=f"{times} within the hour: {first_line(error)}",
        cause=cause_of_end(newest.exit_class or "", error),
        **_between(newest, view),
    )


def _between(ended: AttemptRow, view: RunView) -> dict[str, Any]:
    lost = None if ended.step is None or view.step is None else ended.step - view.step
    return {"cost": f"{lost:,} steps to do again"} if lost is not None and lost > 0 else {}


def _non_finite(view: RunView, gpus: int | None, now: float) -> Iterator[AttentionItem]:
    found = {
        one.key: one
        for one in view.diagnostics.non_finite
        if one.last_wall is None or now - one.last_wall < NON_FINITE_KEPT_S
    }
    for key, value in (("train/loss", view.loss), ("val/loss", view.val_loss)):
        if value is not None and not math.isfinite(value) and key not in found:
            at, wall = view.step, view.last_wall
            found[key] = NonFinite(key, _word(value), 1, at, at, wall, wall)
    told_of = tuple(alert for alert in view.diagnostics.alerts if only_tells_of_nan(alert))
    found = {**{one.key: one for one in map(_of_alert, told_of)}, **found}
    if not found:
        return
    first = min(found.values(), key=lambda one: one.first_wall or math.inf)
    since = first.first_wall
    yield item_of(
        view,
        "non_finite",
        word="NaN" if first.word == "nan" else "Inf",
        since=since,
        step=first.first_step,
        metric=first.key,
        alert_ids=tuple(alert.id for alert in told_of),
        summary=_named(_said(one) for one in found.values()),
        cause="a learning rate too high, a bad batch, or fp16 without loss scaling",
        **({} if since is None else cost_fields(max(0.0, now - since) / HOUR_S, gpus, "{} since")),
    )


def _ended_non_finite(view: RunView) -> Iterator[AttentionItem]:
    """The metrics of an ended run that were not numbers, each with its first such step."""
    told_of = tuple(alert for alert in view.diagnostics.alerts if only_tells_of_nan(alert))
    if not told_of:
        return
    found = tuple({one.key: one for one in map(_of_alert, reversed(told_of))}.values())[::-1]
    end = "completed, but" if view.status == "completed" else f"{view.status}, and"
    yield item_of(
        view,
        "non_finite",
        word="NaN" if found[0].word == "nan" else "Inf",
        since=view.ended_wall if view.ended_wall is not None else view.last_wall,
        step=found[0].first_step,
        metric=found[0].key,
        alert_ids=tuple(alert.id for alert in told_of),
        summary=f"{end} {_named(_said(one, was=True) for one in found)}",
        cause="a learning rate too high, a bad batch, or fp16 without loss scaling",
    )


def _of_alert(alert: AlertRow) -> NonFinite:
    value = math.nan if alert.value is None else alert.value
    word, step, wall = _word(value), alert.step, alert.wall
    return NonFinite(alert.metric or "a metric", word, 0, step, None, wall, None)


def _named(said: Iterable[str]) -> str:
    """The first few, and how many more."""
    texts = tuple(said)
    more = f" and {len(texts) - MOST_NAMED} more" if len(texts) > MOST_NAMED else ""
    return ", ".join(texts[:MOST_NAMED]) + more


def _said(one: NonFinite, *, was: bool = False) -> str:
    word = {"nan": "NaN", "inf": "Inf", "-inf": "-Inf"}.get(one.word, one.word)
    times = f" {one.count} times" if one.count > 1 else ""
    when = "at" if one.count == 1 else "from" if was else "since"
    since = "" if one.first_step is None else f" {when} step {one.first_step:,}"
    return f"{one.key} {'was' if was else 'is'} {word}{times}{since}"


def _checkpoints(view: RunView, gpus: int | None, now: float) -> Iterator[AttentionItem]:
    point = view.checkpoint
    if point.failures:
        yield item_of(
            view,
            "checkpoint_failing",
            since=point.last_wall,
            step=view.step,
            summary=f"{point.failures} saves failed in a row",
            cause="the disk is full, or its folder cannot be written",
            **at_risk(view, gpus, now),
        )
    saves, step_ms = view.diagnostics.save_every, view.step_ms
    is_due = view.kind == "train" and view.status in ("running", "unguarded") and not view.is_silent
    began = point.last_wall if point.last_wall is not None else view.created
    if not (is_due and saves and step_ms and began) or point.in_flight or point.failures:
        return
    limit = max(CHECKPOINT_S, CHECKPOINT_SAVES * saves * step_ms / 1000)
    if now - began > limit and (view.step or 0) > CHECKPOINT_SAVES * saves / 2:
        yield item_of(
            view,
            "checkpoint",
            tag=f".{point.last_step or 0}",
            since=began,
            step=point.last_step,
            summary=f"the newest checkpoint is {duration(now - began)} old",
            cause=f"one is due every {saves:,} steps: saving does not keep up, or fails",
            **at_risk(view, gpus, now),
        )


def _lost(view: RunView) -> Iterator[AttentionItem]:
    """Entries of log lines or output that no disk accepted."""
    lines = max(view.lines_lost, view.diagnostics.lines_lost)
    unlogged = max(view.console_bytes_lost, view.diagnostics.console_bytes_lost)
    missing = "" if view.is_active else ": its figures are not complete"
    unwritten = f"{counted(lines, 'line')} that it logged could not be written{missing}"
    for kind, lost, summary in (
        ("lines_lost", lines, unwritten),
        ("console_lost", unlogged, f"{counted(unlogged, 'byte')} that it printed are in no log"),
    ):
        if lost:
            yield item_of(
                view,
                kind,
                since=view.last_wall if view.ended_wall is None else view.ended_wall,
                step=view.step,
                summary=summary,
                cause="the disk was full, or did not answer",
            )


def _watching(view: RunView) -> Iterator[AttentionItem]:
    if problems := view.diagnostics.watched.problems:
        more = f" and {len(problems) - 1} more" if len(problems) > 1 else ""
        yield item_of(
            view,
            "watching",
            since=None,
            summary=f"{first_line(problems[0])}{more}",
            cause="what is named does not watch; everything else does",
        )


def _was_refused(view: RunView) -> bool:
    if view.diagnostics.exit_class in REFUSED:
        return True
    return (
        not view.diagnostics.exit_class and view.diagnostics.exit_code is None and not view.attempt
    )


def was_stopped_by_rule(view: RunView) -> bool:
    """Whether Andon ended a run, whose diagnostics are read."""
    codes = (view.diagnostics.exit_code, (view.guard or {}).get("exit_code"))
    diagnostics = view.diagnostics
    return (
        STOPPED_BY_ANDON in codes
        or diagnostics.exit_class == "andon"
        or diagnostics.stopped_by_rule
    )


def _asked_to_stop(view: RunView) -> list[AlertRow]:
    return [one for one in view.diagnostics.alerts if one.action in ("stop", "rollback")]


def _why_stopped(view: RunView) -> str:
    """The values that the rule that stopped it saw."""
    if fired := _asked_to_stop(view):
        return what_fired(fired[-1])
    said = (view.last_alert, first_line(view.diagnostics.error), view.detail, "a rule stopped it")
    return next(one for one in said if one)


def _step_time(view: RunView) -> str:
    if view.step_ms is None or not math.isfinite(view.step_ms) or view.step_ms <= 0:
        return ""
    return f"{view.step_ms / 1000:.2g} s"


def _word(value: float) -> str:
    return "nan" if value != value else ("inf" if value > 0 else "-inf")
