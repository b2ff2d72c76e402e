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

    view: reactive[RunsView | None] = reactive(None, init=False, repaint=False)
    counts: reactive[tuple[tuple[str, int], ...]] = reactive((), init=False)

    def __init__(self, *crumbs: str) -> None:
        super().__init__()
        self.crumbs = crumbs

    def watch_view(self) -> None:
        words = [row.status for row in self.view.rows] if self.view is not None else []
        self.counts = tuple((w, words.count(w)) for w in meters.STATE_TONE if w in words)

    def render(self) -> Content:
        width = self.content_size.width
        parts: list[Content | tuple[str, str]] = [("albor", "bold $accent")]
        for crumb in self.crumbs:
            parts += [(f" {glyphs.current.crumb} ", "$ink-faint"), meters.text(crumb, "$ink")]
        return meters.pair(Content.assemble(*parts), self._counts(), width)

    def _counts(self) -> Content:
        parts = [
            Content.styled(f"{meters.state_glyph(word)} {count} {word}", meters.STATE_TONE[word])
            for word, count in self.counts
        ]
        return Content("   ").join(parts)


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
