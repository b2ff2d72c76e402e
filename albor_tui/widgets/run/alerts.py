"""The alerts of one run: as a panel, and the worst one as a banner."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.content import Content
from textual.reactive import reactive

from albor_core.feed.attention.item import AttentionItem
from albor_core.feed.view.run_view import RunView
from albor_tui.look import glyphs, quantity
from albor_tui.look.naming import said_of
from albor_tui.look.themes import SEVERITY_TONE
from albor_tui.widgets.base import styled
from albor_tui.widgets.run.panels import RunPanel

if TYPE_CHECKING:
    from albor_core.store.rows.rows import AlertRow

_WELL = ("running", "paused", "unguarded")


class Alerts(RunPanel):
    """A panel with the attention entries of a run, then its alerts: open ones first, newest
    first."""

    HEADING = "alerts"
    troubles: reactive[tuple[AttentionItem, ...]] = reactive((), init=False, repaint=False)

    def watch_troubles(self) -> None:
        self.changed()

    def show(self, view: RunView, width: int, height: int) -> Content:
        opened = [item for item in self.troubles if item.is_open]
        told = {alert for item in opened for alert in item.alert_ids}
        lines = [trouble_line(item, width) for item in opened]
        rest = ordered(view.alerts)
        lines += [alert_line(alert, width) for alert in rest if alert.id not in told]
        if not lines:
            return styled.fit(no_alert_listed(view), width)
        return styled.rows(styled.cut(lines, height, "alert"))


def trouble_line(item: AttentionItem, width: int) -> Content:
    """The line of an attention entry."""
    tone = SEVERITY_TONE.get(item.severity, "$warning")
    line = Content.assemble(
        (f"{glyphs.current.alert} ", tone),
        styled.text(f"{item.word}  ", f"bold {tone}"),
        styled.text(said_of(item), "$ink"),
    )
    return styled.fit(line, width)


def no_alert_listed(view: RunView) -> Content:
    """Why the list of alerts is empty. Green only for a run at work that is watched and well: one
    that is hung, silent or over may be anything."""
    if view.alerts_open:
        tone = SEVERITY_TONE.get(view.severity, "$warning")
        return Content.styled(f"{view.alerts_open} open", tone)
    watched = view.diagnostics.watched
    if view.is_active and not watched.is_watched:
        is_bare = watched.rules == 0 and not watched.budgets
        why = ": no rules" if is_bare else ": no rule is evaluated"
        return Content.styled(f"not watched{why}", "$warning")
    if view.is_active:
        return _watched_by(view)
    if watched.rules is None:
        return Content.styled("no alerts", "$ink-muted")
    if not (rules := watched.counts):
        return Content.styled("not watched: no rules", "$ink-muted")
    if view.status == "queued":
        return Content.styled(f"{rules} will watch", "$ink-muted")
    tone = "$success" if view.status == "completed" else "$ink-muted"
    check = f"{glyphs.current.check} " if view.status == "completed" else ""
    return Content.styled(f"{check}no alerts: {rules} watched", tone)


def _watched_by(view: RunView) -> Content:
    """The line about what watches an active run without open alerts."""
    is_well = view.status in _WELL and not view.is_silent
    words = view.diagnostics.watched.words.removeprefix("watched by ")
    calm, by, tells = (
        "quiet: watched by " if is_well else "watched by ",
        *words.partition(", ")[::2],
    )
    line = Content.styled(f"{calm}{by}", "$success" if is_well else "$ink")
    mark = Content.styled(f"{glyphs.current.check} ", "$success") if is_well else Content("")
    return Content.assemble(mark, line, styled.text(f", {tells}" if tells else "", "$ink-muted"))


def ordered(alerts: tuple[AlertRow, ...]) -> list[AlertRow]:
    """Open before acknowledged, red before yellow, newest first."""
    rank = {"critical": 0, "error": 1, "warning": 2}
    return sorted(
        alerts,
        key=lambda a: (a.acked_by is not None, rank.get(a.severity, 3), -(a.step or 0), a.id),
    )


def alert_line(alert: AlertRow, width: int) -> Content:
    """The line of an alert."""
    done = alert.acked_by is not None
    tone = "$ink-faint" if done else SEVERITY_TONE.get(alert.severity, "$warning")
    symbol = glyphs.current.check if done else glyphs.current.alert
    step = f"step {quantity.count(alert.step)} " if alert.step is not None else ""
    words = alert.message or alert.rule
    line = Content.assemble(
        (f"{symbol} ", tone),
        (step, "$ink-muted"),
        styled.text(words, "$ink-faint" if done else "$ink"),
    )
    return styled.fit(line, width)


class AlertBanner(RunPanel):
    """The worst open alert, as one line that is only there when there is one."""

    SHOWS_UNREAD = True

    def watch_view(self) -> None:
        self.display = self.view is not None and self.view.alerts_open > 0
        super().watch_view()

    def show(self, view: RunView, width: int, height: int) -> Content:
        opened = [a for a in ordered(view.alerts) if a.acked_by is None]
        words = opened[0].message or opened[0].rule if opened else view.last_alert
        words = words or quantity.counted(view.alerts_open, "open alert")
        tone = SEVERITY_TONE.get(opened[0].severity if opened else view.severity, "$warning")
        more = f"  +{view.alerts_open - 1}" if view.alerts_open > 1 else ""
        left = Content.assemble(
            (f"{glyphs.current.alert} ", tone), styled.text(words, f"bold {tone}")
        )
        return styled.pair(
            left, Content.assemble((more, tone), ("  a acknowledge", "$ink-muted")), width
        )
