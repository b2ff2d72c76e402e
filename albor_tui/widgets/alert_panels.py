"""Alerts of all runs as a list, one of them in full, and what rules say about its run's history."""

from __future__ import annotations

import math
import shlex
import textwrap
import time
from collections.abc import Mapping
from typing import Any

from textual.content import Content
from textual.reactive import reactive

from albor_core.andon.actions import ACTIONS, action_of
from albor_core.feed.view.run_view import RunView
from albor_core.run.values.clean import clean
from albor_core.store.rows.rows import AlertRow
from albor_tui.look import glyphs, quantity
from albor_tui.look.themes import SEVERITY_TONE
from albor_tui.widgets.base import styled
from albor_tui.widgets.base.line_list import LineList
from albor_tui.widgets.base.panel import Panel

_LOOKED_AT = 200  # alerts whose runs' names decide how wide that column is
now_wall = time.time  # replaced in tests


def _did(action: str) -> str:
    """A description of an action that was taken; for one from a newer version its name."""
    action = action_of(action)
    return ACTIONS[action].did if action in ACTIONS else action


def limit_of(row: AlertRow) -> float | None:
    """The limit that a value passed; None where there is none, as for a loss that is NaN, whose
    rule has infinity for one.
    """
    limit = row.threshold
    return limit if limit is not None and math.isfinite(limit) else None


def limit_words(row: AlertRow) -> str:
    """ "limit 10.00"; "" without one."""
    limit = limit_of(row)
    return "" if limit is None else f"limit {quantity.ratio(limit)}"


class AlertTable(LineList):
    """A table with a line per alert, newest first; acknowledged ones are dim."""

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
        is_seen = not row.is_open
        tone = "$ink-faint" if is_seen else SEVERITY_TONE.get(row.severity, "$warning")
        ink, dim = ("$ink-muted", "$ink-faint") if is_seen else ("$ink", "$ink-muted")
        mark = glyphs.current.check if is_seen else glyphs.current.alert
        longest = max(len(one.run_name or one.run_id) for one in self.alerts[:_LOOKED_AT])
        name = max(8, min(longest, 32, width // 4))
        when = styled.fit(Content.styled(_ago(row.wall), dim), 8, "right")
        left = Content.assemble(
            (f"{mark} ", tone),
            styled.fit(styled.text(row.severity, tone), 9),
            styled.fit(styled.text(row.run_name or row.run_id, ink), name),
            "  ",
            styled.text(row.message, ink),
        )
        return styled.pair(left, when, width)


class AlertPanel(Panel):
    """Everything known about one alert, the most important where there is little room."""

    HEADING = "alert"
    alert: reactive[AlertRow | None] = reactive(None, init=False, layout=False, repaint=False)
    run: reactive[RunView | None] = reactive(None, init=False, layout=False, repaint=False)

    def watch_alert(self) -> None:
        self.changed()

    def watch_run(self) -> None:
        self.changed()

    def draw(self, width: int, height: int) -> Content:
        row = self.alert
        if row is None:
            return styled.loading()
        facts = self._facts(row)
        said = textwrap.wrap(clean(row.message), max(1, width)) or [""]
        more = height - min(3, len(said)) - sum(is_needed for is_needed, _, _ in facts)
        shown = []
        for is_needed, label, value in facts:
            more -= not is_needed
            if is_needed or more >= 0:
                shown.append(Content.assemble((f"{label:<8}", "$ink-muted"), value))
        if row.acked_by is None:
            shown += _command(row, width, more)
        tone = SEVERITY_TONE.get(row.severity, "$warning")
        room = max(1, height - len(shown))
        if len(said) > room:
            said[room - 1 :] = [" ".join(said[room - 1 :])]  # the last is cut, with a mark
        lines = [styled.text(line, f"bold {tone}") for line in said[:room]] + shown
        return styled.rows([styled.fit(line, width) for line in lines[:height]])

    def _facts(self, row: AlertRow) -> list[tuple[bool, str, Content]]:
        """Whether it is needed, its name, its value."""
        seen = "not yet: press a"
        if row.acked_by:
            seen = f"{row.acked_by}, {_ago(row.acked_wall)} ago"
        if row.cleared_wall is not None:
            seen = f"over for {_ago(row.cleared_wall)}"
        limit = f", {words}" if (words := limit_words(row)) else ""
        ago = "" if row.wall is None else f", {_ago(row.wall)} ago"
        run = self.run if self.run is not None and self.run.id == row.run_id else None
        name = f"{row.run_name}  {row.run_id}" if row.run_name else row.run_id
        return [
            (True, "run", styled.text(name, "$ink")),
            (False, "now", _now(run)),
            (True, "rule", styled.text(f"{row.rule}  {row.action}", "$ink")),
            (False, "did", styled.text(_did(row.action), "$ink")),
            (True, "metric", styled.text(row.metric or glyphs.current.missing, "$ink")),
            (True, "value", styled.text(f"{quantity.ratio(row.value)}{limit}", "$ink")),
            (
                True,
                "step",
                styled.text(f"{quantity.count(row.step)}   attempt {row.attempt or 1}", "$ink"),
            ),
            (False, "raised", styled.text(f"{quantity.clock(row.wall)}{ago}", "$ink")),
            (True, "seen", styled.text(seen, "$ink")),
        ]


def _command(row: AlertRow, width: int, room: int) -> list[Content]:
    """The shell command that acknowledges the alert: whole, on several lines if needed, or
    omitted."""
    words = (row.run_id, row.id)
    command = " ".join(("albor alerts ack", *(shlex.quote(clean(word)) for word in words)))
    folded = textwrap.wrap(
        command, max(8, width - 10), break_on_hyphens=False, break_long_words=False
    )
    if len(folded) > room or any(len(line) > width - 10 for line in folded):
        return []
    ends = [" \\"] * (len(folded) - 1) + [""]
    return [
        Content.assemble(
            ("shell   " if i == 0 else " " * 8, "$ink-muted"),
            styled.text(line + end, "$ink-muted"),
        )
        for i, (line, end) in enumerate(zip(folded, ends, strict=True))
    ]


def _now(run: RunView | None) -> Content:
    """How it stands with the run of an alert at this moment."""
    if run is None:
        return Content.styled(glyphs.current.missing, "$ink-faint")
    at = f"  step {quantity.count(run.step)}" if run.step is not None else ""
    of = f" / {quantity.count(run.max_steps)}" if run.max_steps and at else ""
    why = f"  {run.detail}" if run.detail else ""
    return Content.assemble(styled.state_of(run), styled.text(f"{at}{of}{why}", "$ink-muted"))


class RulesPanel(Panel):
    """The rules of a run, and what each would say about its history."""

    HEADING = "rules on its history"
    document: reactive[Mapping[str, Any] | None] = reactive(
        None, init=False, layout=False, repaint=False
    )
    problem: reactive[str] = reactive("", init=False, layout=False, repaint=False)
    watched: reactive[tuple[str, ...]] = reactive((), init=False, layout=False, repaint=False)

    def watch_watched(self) -> None:
        self.changed()

    def watch_document(self) -> None:
        self.changed()

    def watch_problem(self) -> None:
        self.changed()

    def draw(self, width: int, height: int) -> Content:
        if self.problem:
            return styled.text(self.problem, "$warning")
        if self.document is None:
            return Content.styled("playing the rules", "$ink-muted")
        rules = self.document["rules"]
        lines = [line for rule in rules for line in _rule(rule, width)]
        if not rules:
            words = "This run has no rules of its own; e tests one that you type."
            lines = [styled.fit(Content.styled(words, "$ink-muted"), width)]
        for problem in self.document.get("problems", ()):
            unused = styled.text(f"not used: {clean(problem)}", "$warning")
            lines.append(styled.fit(unused, width))
        for sentence in self.watched:
            limit, arrow, action = sentence.partition(" -> ")
            told = f" {glyphs.current.crumb} {action}" if arrow else ""
            line = Content.assemble(
                styled.text(limit, "bold $ink"), styled.text(told, "$ink-muted")
            )
            lines.append(styled.fit(line, width))
        return styled.rows(lines[:height])


def _rule(rule: Mapping[str, Any], width: int) -> list[Content]:
    found = rule["alerts"]
    tone = SEVERITY_TONE.get(rule["severity"], "$warning") if found else "$ink-muted"
    steps = ", ".join(quantity.count(alert["step"]) for alert in found[:4])
    more = f" and {len(found) - 4} more" if len(found) > 4 else ""
    points = f"{rule['points']:,} {'points' if rule['exact'] else 'values of a preview'}"
    if not rule["points"]:
        said = f"never measured: {rule['metric']}"
    elif found:
        said = f"{quantity.counted(len(found), 'alert')} at step {steps}{more}, in {points}"
    else:
        said = f"silent on {points}"
    head = Content.assemble(
        styled.text(rule["condition"], "bold $ink"),
        styled.text(f" {glyphs.current.crumb} {rule['action']}  ", "$ink-muted"),
        styled.text(said, tone),
    )
    when = f"arms by step {quantity.count(rule['arm_step'])} at the latest"
    in_full = rule["sentence"].partition("; ")[2]
    if in_full and len(in_full) + 2 <= width:
        when = in_full
    arms = styled.text(f"  {when}", "$ink-muted")
    if head.cell_length > width:
        named = head[: head.cell_length - len(said)]
        return [styled.fit(named, width), *_folded(said, tone, width), styled.fit(arms, width)]
    return [styled.fit(head, width), styled.fit(arms, width)]


def _folded(said: str, tone: str, width: int) -> list[Content]:
    lines = textwrap.wrap(clean(said), max(8, width - 2))
    return [styled.fit(styled.text(f"  {line}", tone), width) for line in lines]


def _ago(wall: float | None) -> str:
    return glyphs.current.missing if wall is None else quantity.age(max(0.0, now_wall() - wall))
