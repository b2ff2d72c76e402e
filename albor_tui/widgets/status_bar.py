"""The first and the last line of every screen: where we are, and what just happened."""

from __future__ import annotations

from textual.content import Content
from textual.reactive import reactive
from textual.timer import Timer
from textual.widget import Widget

from albor_core.feed.view import RunsView
from albor_tui import glyphs
from albor_tui.messages import CommandReport
from albor_tui.widgets import meters

_STAYS_S = 8.0
_REPORT_TONE = {
    "sent": "$ink-muted",
    "accepted": "$secondary",
    "done": "$success",
    "refused": "$error",
    "no guard": "$warning",
    "no answer": "$warning",
}


class TopBar(Widget):
    """Brand, crumbs and how many runs are in which state."""

    crumbs: reactive[tuple[str, ...]] = reactive((), init=False)
    view: reactive[RunsView | None] = reactive(None, init=False)

    def __init__(self, *crumbs: str) -> None:
        super().__init__()
        self.set_reactive(TopBar.crumbs, crumbs)

    def render(self) -> Content:
        width = self.content_size.width
        parts: list[Content | tuple[str, str]] = [("albor", "bold $accent")]
        for crumb in self.crumbs:
            parts += [(f" {glyphs.current.crumb} ", "$ink-faint"), meters.text(crumb, "$ink")]
        return meters.pair(Content.assemble(*parts), self._counts(), width)

    def _counts(self) -> Content:
        if self.view is None:
            return Content("")
        counts: dict[str, int] = {}
        for row in self.view.rows:
            counts[row.status] = counts.get(row.status, 0) + 1
        parts: list[Content | tuple[str, str]] = []
        for word, tone in meters.STATE_TONE.items():
            if counts.get(word):
                parts.append((f"{meters.state_glyph(word)} {counts[word]} {word}   ", tone))
        return Content.assemble(*parts).rstrip() if parts else Content("")


class StatusBar(Widget):
    """One line about the last command or problem; goes away by itself."""

    line: reactive[Content | None] = reactive(None, init=False)

    def __init__(self) -> None:
        super().__init__()
        self.display = False
        self._timer: Timer | None = None

    def report(self, report: CommandReport) -> None:
        """Show how a command fares; the line stays until there is an answer."""
        tone = _REPORT_TONE.get(report.status, "$ink")
        self.line = Content.assemble(
            meters.text(f"{report.cmd} ", "bold $ink"),
            meters.text(f"{report.run_name}: ", "$ink-muted"),
            (report.status, f"bold {tone}"),
            meters.text(f"  {report.detail}" if report.detail else "", "$ink-muted"),
        )
        self._stay(None if report.status in ("sent", "accepted") else _STAYS_S)

    def say(self, words: str, tone: str = "$ink") -> None:
        """Show one line for a while."""
        self.line = meters.text(words, tone)
        self._stay(_STAYS_S)

    def _stay(self, seconds: float | None) -> None:
        self.display = True
        if self._timer is not None:
            self._timer.stop()
        self._timer = self.set_timer(seconds, self._hide) if seconds else None

    def _hide(self) -> None:
        self.display = False

    def render(self) -> Content:
        line = self.line or Content("")
        return meters.fit(line, self.content_size.width)
