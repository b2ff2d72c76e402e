"""What happened in a run, newest first, and what kind of thing each was."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from textual.content import Content

from albor_core.run.values.flatten import bare
from albor_core.run.values.lenient import finite_of, is_number, whole_of
from albor_core.store.rows.rows import AlertRow, AttemptRow, EventRow
from albor_tui.look import glyphs, quantity
from albor_tui.look.themes import SEVERITY_TONE
from albor_tui.widgets.base import styled
from albor_tui.widgets.base.line_list import LineList
from albor_tui.widgets.base.panel import Panel

now_wall = time.time  # replaced in tests

KINDS = ("all", "alerts", "restarts", "rewinds", "checkpoints", "control", "run", "other")
_DETAIL_CHARS = 400
_WIDE = 110  # cells of a line that has room for long names


def kind_of(event: EventRow) -> str:
    """The filter that an event falls under. A restart is the start of a later attempt, so that
    their number is that of the restarts; `run` has the other words of the run and its guard.
    """
    name, room = event.name, event.name.partition(".")[0]
    if room in ("andon", "jidoka"):
        return "alerts"
    if name == "run.start" and ((event.attempt or 1) > 1 or _resumed_from(event) is not None):
        return "restarts"
    if "rewind" in name or "rollback" in name:
        return "rewinds"
    if room == "checkpoint":
        return "checkpoints"
    if room in ("run", "guard"):
        return "run"
    return "control" if room in ("control", "config") else "other"


def words_of_event(event: EventRow) -> str:
    """An event in one line, for people; what is not known by name is shown as its data."""
    data = event.data
    match event.name:
        case "andon.alert":
            return str(data.get("message") or data.get("rule") or "an alert")
        case "andon.ack":
            by = f" by {data['by']}" if data.get("by") else ""
            return f"{data.get('id')} acknowledged{by}"
        case "jidoka.pause":
            return f"paused: {data.get('brick')} took {_ms(data.get('value_ms'))}"
        case "checkpoint.saved":
            return _words_of_save(data)
        case "checkpoint.failed" | "checkpoint.bad":
            return str(data.get("reason") or "no reason given")
        case "run.start":
            return _words_of_start(event)
        case "run.end":
            return f"{data.get('status') or 'ended'}   {data.get('message') or ''}".rstrip()
    words = "  ".join(f"{key}={_bare(value)}" for key, value in data.items())
    return words if len(words) <= _DETAIL_CHARS else words[:_DETAIL_CHARS] + glyphs.current.ellipsis


def _bare(value: Any) -> str:
    """A value for people: of a measured one six digits, moments and counts as they are."""
    is_measured = isinstance(value, float) and 1e-4 <= abs(value) < 1e6
    return f"{value:.6g}" if is_measured else bare(value)


def _words_of_save(data: Mapping[str, Any]) -> str:
    seconds = data.get("seconds")
    took = f" in {seconds:.2f} s" if is_number(seconds) else ""
    return f"saved {_bytes(data.get('bytes'))}{took}"


def _words_of_start(event: EventRow) -> str:
    back = _resumed_from(event)
    begin = f"resumed from step {quantity.count(back)}" if back is not None else "started"
    return f"attempt {event.attempt or 1} {begin}   {event.data.get('device') or ''}".rstrip()


class EventList(LineList):
    """The events of one kind. An alert is open until it is acknowledged or ends."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self.events: tuple[EventRow, ...] = ()
        self.opened: frozenset[str] = frozenset()

    def show(self, events: tuple[EventRow, ...], alerts: tuple[AlertRow, ...]) -> None:
        """Newest first. The cursor stays on its event, or at the top where it was there."""
        opened = frozenset(alert.id for alert in alerts if alert.is_open)
        if (events, opened) == (self.events, self.opened):
            return
        stood = self.current if self.cursor else None
        self.events, self.opened = events, opened
        if stood is not None:
            one = (stood.wall, stood.name, stood.data)  # its id is news once a store has it
            at = next((i for i, e in enumerate(events) if (e.wall, e.name, e.data) == one), 0)
            self.set_reactive(LineList.cursor, at)
        self.lines_changed()

    @property
    def current(self) -> EventRow | None:
        return self.events[self.cursor] if self.cursor < len(self.events) else None

    def count(self) -> int:
        return len(self.events)

    def draw_line(self, index: int, width: int) -> Content:
        event = self.events[index]
        is_open = event.name == "andon.alert" and event.data.get("id") in self.opened
        tone = SEVERITY_TONE.get(event.severity, "$warning")
        if event.name == "andon.alert" and not is_open:
            tone = "$ink-faint"
        mark = glyphs.current.alert if is_open else glyphs.current.dot
        step = glyphs.current.missing if event.step is None else quantity.count(event.step)
        age = glyphs.current.missing
        if event.wall is not None:
            age = quantity.age(max(0.0, now_wall() - event.wall))
        words = words_of_event(event)
        return Content.assemble(
            (f"{mark} ", tone),
            (f"{age:>4} ", "$ink-muted"),
            (f"{step:>9}  ", "$ink"),
            styled.fit(styled.text(event.name, "$secondary"), 18 if width < _WIDE else 26),
            " ",
            styled.text(words, tone if event.severity != "info" else "$ink"),
        )


class AttemptTable(Panel):
    """The attempts of a run, newest first: how long, how it ended, what the guard did about it."""

    HEADING = "attempts"

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._attempts: tuple[AttemptRow, ...] = ()
        self._alive = self._is_read = False

    def show(
        self, attempts: tuple[AttemptRow, ...], *, is_active: bool, is_read: bool = True
    ) -> None:
        self._attempts, self._alive, self._is_read = attempts, is_active, is_read
        self.changed()

    def draw(self, width: int, height: int) -> Content:
        if not (self._attempts or self._is_read):
            return styled.loading()
        if not self._attempts:
            told = "no attempt yet" if self._alive else "no attempt was recorded"
            return Content.styled(told, "$ink-muted")
        newest = self._attempts[-1].attempt
        lines = [
            Content.styled(f"{'':>2}{'began':<21}{'took':>8}{'step':>10}  ended", "$ink-muted")
        ]
        for one in reversed(self._attempts):
            lines.append(_attempt_line(one, is_alive=self._alive and one.attempt == newest))
        lines = styled.cut(lines, height, "earlier attempt")
        return styled.rows([styled.fit(line, width) for line in lines])


def _attempt_line(one: AttemptRow, *, is_alive: bool) -> Content:
    end = now_wall() if one.ended is None and is_alive else one.ended
    took = None if one.started is None or end is None else max(0.0, end - one.started)
    if one.ended is None:
        ended = Content.styled("running", "$success") if is_alive else Content.styled(
            "no end was recorded", "$warning"
        )  # fmt: skip
    else:
        tone = "$ink-muted" if one.exit_class in (None, "", "clean", "done") else "$warning"
        parts = (one.exit_class or "ended", f"code {one.code}" if one.code is not None else "",
                 one.signal or "", one.action, one.reason)  # fmt: skip
        ended = styled.text("  ".join(part for part in parts if part), tone)
    return Content.assemble(
        (f"{one.attempt} ", "bold $ink"),
        (f"{quantity.clock(one.started):<21}", "$ink-muted"),
        (quantity.duration(took).rjust(8), "$ink"),
        (quantity.count(one.step).rjust(10), "$ink"),
        "  ",
        ended,
    )


def _resumed_from(event: EventRow) -> int | None:
    back = event.data.get("resumed_from") if event.name == "run.start" else None
    return whole_of(back)


def _ms(value: object) -> str:
    return quantity.milliseconds(finite_of(value))


def _bytes(value: object) -> str:
    return quantity.byte_size(finite_of(value))
