"""Alerts of all runs as a list, one of them in full, and what rules say about its run's history."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Mapping
from typing import Any

from textual.content import Content
from textual.reactive import reactive

from albor_core.feed.clean import clean
from albor_core.store.rows import AlertRow
from albor_tui import glyphs, quantity
from albor_tui.widgets import meters
from albor_tui.widgets.line_list import LineList
from albor_tui.widgets.panel import Panel

_LOOKED_AT = 200  # alerts whose runs' names decide how wide that column is
now_wall = time.time  # replaced in tests


class AlertTable(LineList):
    """One line per alert, newest first; those that somebody has seen are dim."""

    alerts: reactive[tuple[AlertRow, ...]] = reactive((), init=False, repaint=False)

    @property
    def current(self) -> AlertRow | None:
        return self.alerts[self.cursor] if self.cursor < len(self.alerts) else None

    def count(self) -> int:
        return len(self.alerts)

    def watch_alerts(self, old: tuple[AlertRow, ...], new: tuple[AlertRow, ...]) -> None:
        if old and self.cursor < len(old):
            mark = (old[self.cursor].run_id, old[self.cursor].id)
            places = (i for i, row in enumerate(new) if (row.run_id, row.id) == mark)
            self.set_reactive(AlertTable.cursor, next(places, self.cursor))
        self.lines_changed()

    def draw_line(self, index: int, width: int) -> Content:
        row = self.alerts[index]
        is_seen = row.acked_by is not None
        tone = "$ink-faint" if is_seen else meters.SEVERITY_TONE.get(row.severity, "$warning")
        ink, dim = ("$ink-muted", "$ink-faint") if is_seen else ("$ink", "$ink-muted")
        mark = glyphs.current.check if is_seen else glyphs.current.alert
        longest = max(len(one.run_name or one.run_id) for one in self.alerts[:_LOOKED_AT])
        name = max(8, min(longest, 32, width // 4))
        when = meters.fit(Content.styled(_ago(row.wall), dim), 8, "right")
        left = Content.assemble(
            (f"{mark} ", tone),
            meters.fit(meters.text(row.severity, tone), 7),
            meters.fit(meters.text(row.run_name or row.run_id, ink), name),
            "  ",
            meters.text(row.message, ink),
        )
        return meters.pair(left, when, width)


class AlertPanel(Panel):
    """Everything known about one alert."""

    HEADING = "alert"
    alert: reactive[AlertRow | None] = reactive(None, init=False, layout=False, repaint=False)

    def watch_alert(self) -> None:
        self.changed()

    def draw(self, width: int, height: int) -> Content:
        row = self.alert
        if row is None:
            return Content.styled("no alert", "$ink-muted")
        seen = f"{row.acked_by}, {_ago(row.acked_wall)} ago" if row.acked_by else "by nobody yet: a"
        limit = "" if row.threshold is None else f", limit {quantity.ratio(row.threshold)}"
        facts = (
            ("run", f"{row.run_name}  {row.run_id}" if row.run_name else row.run_id),
            ("rule", f"{row.rule}  {row.action}"),
            ("metric", row.metric or glyphs.current.missing),
            ("value", f"{_value(row.value)}{limit}"),
            ("step", f"{quantity.count(row.step)}   attempt {row.attempt or 1}"),
            ("seen", seen),
        )
        tone = meters.SEVERITY_TONE.get(row.severity, "$warning")
        said = textwrap.wrap(clean(row.message), max(1, width)) or [""]
        room = max(1, height - len(facts))
        if len(said) > room:
            said[room - 1 :] = [" ".join(said[room - 1 :])]  # the last is cut, with a mark
        lines = [meters.text(line, f"bold {tone}") for line in said[:room]]
        lines += [
            Content.assemble((f"{label:<8}", "$ink-muted"), meters.text(words, "$ink"))
            for label, words in facts
        ]
        return meters.rows([meters.fit(line, width) for line in lines[:height]])


class RulesPanel(Panel):
    """The rules of a run, and what each would say about its history."""

    HEADING = "rules on its history"
    document: reactive[Mapping[str, Any] | None] = reactive(
        None, init=False, layout=False, repaint=False
    )
    problem: reactive[str] = reactive("", init=False, layout=False, repaint=False)

    def watch_document(self) -> None:
        self.changed()

    def watch_problem(self) -> None:
        self.changed()

    def draw(self, width: int, height: int) -> Content:
        if self.problem:
            return meters.text(self.problem, "$warning")
        if self.document is None:
            return Content.styled("playing the rules", "$ink-muted")
        rules = self.document["rules"]
        if not rules:
            words = "This run has no rules of its own; e plays one that you type."
            return Content.styled(words, "$ink-muted")
        lines = [line for rule in rules for line in _rule(rule, width)]
        return meters.rows(lines[:height])


def _rule(rule: Mapping[str, Any], width: int) -> list[Content]:
    found = rule["alerts"]
    tone = "$ink-muted" if not found else "$error" if rule["action"] != "warn" else "$warning"
    steps = ", ".join(quantity.count(alert["step"]) for alert in found[:4])
    more = f" and {len(found) - 4} more" if len(found) > 4 else ""
    points = f"{rule['points']:,} {'points' if rule['exact'] else 'values of a preview'}"
    if not rule["points"]:
        said = f"never measured: {rule['metric']}"
    elif found:
        said = f"{len(found)} alert{'s' * (len(found) != 1)} at step {steps}{more}, in {points}"
    else:
        said = f"silent on {points}"
    head = Content.assemble(
        meters.text(rule["condition"], "bold $ink"),
        meters.text(f" {glyphs.current.crumb} {rule['action']}  ", "$ink-muted"),
        meters.text(said, tone),
    )
    arms = meters.text(
        f"  arms by step {quantity.count(rule['arm_step'])} at the latest", "$ink-muted"
    )
    if head.cell_length > width:
        named = head[: head.cell_length - len(said)]
        return [meters.fit(named, width), *_folded(said, tone, width), meters.fit(arms, width)]
    return [meters.fit(head, width), meters.fit(arms, width)]


def _folded(said: str, tone: str, width: int) -> list[Content]:
    lines = textwrap.wrap(clean(said), max(8, width - 2))
    return [meters.fit(meters.text(f"  {line}", tone), width) for line in lines]


def _value(value: float | None) -> str:
    return quantity.ratio(value)


def _ago(wall: float | None) -> str:
    return glyphs.current.missing if wall is None else quantity.age(max(0.0, now_wall() - wall))
