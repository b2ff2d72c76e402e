"""The first and the last line of every screen: where we are, and what just happened."""

from __future__ import annotations

from collections import Counter

from textual import events
from textual.content import Content
from textual.reactive import reactive
from textual.timer import Timer
from textual.widget import Widget

from albor_core.feed.attention.item import AttentionList
from albor_core.feed.view.run_status import shown_word
from albor_core.feed.view.run_view import RunsView
from albor_tui.look import glyphs
from albor_tui.look.themes import SEVERITY_TONE, STATE_TONE
from albor_tui.messages import CommandReport
from albor_tui.widgets.base import styled

STAYS_S = 6.0
_VERB = {
    **{"retry_now": "retry", "stop_now": "stop", "ack": "acknowledge"},
    **{"metric.pin": "pin", "metric.unpin": "unpin"},
}
_STAGE = {  # word, tone
    "sent": ("sent", "$ink-muted"),
    "accepted": ("under way", "$secondary"),
    "done": ("done", "$success"),
    "no answer": ("no answer", "$warning"),
}
_HINDERED = {"refused": "$error", "no guard": "$warning"}


class TopBar(Widget):
    """Brand, crumbs, how many runs are in which state, and how many troubles need a person: that
    number is on every screen, and a click on it opens their list."""

    view: reactive[RunsView | None] = reactive(None, init=False, repaint=False)
    counts: reactive[tuple[tuple[str, int], ...]] = reactive((), init=False)
    silent: reactive[int] = reactive(0, init=False)
    """How many of the running ones give no news."""
    is_loading: reactive[bool] = reactive(False, init=False)
    troubles: reactive[tuple[int, str]] = reactive((0, ""), init=False)
    """How many are open, and the severity of the worst."""
    shown_view: reactive[str] = reactive("", init=False)
    """Which named view is shown, in words."""
    is_looking: reactive[bool] = reactive(False, init=False)
    """Whether more may be found: runs are still being read."""

    def __init__(self, *crumbs: str) -> None:
        super().__init__()
        self.crumbs = crumbs

    def on_mount(self) -> None:
        if hasattr(self.app, "attention"):
            self.watch(self.app, "attention", self._take_attention)

    def _take_attention(self, found: AttentionList) -> None:
        self.is_looking = not found.is_complete
        self.troubles = (len(found.open), found.severity)

    def _badge(self) -> Content:
        count, severity = self.troubles
        if not count:
            return Content("")
        if self.is_looking:
            return Content.styled(f" ! {count} so far ", "$ink-muted")
        tone = SEVERITY_TONE.get(severity, "$warning")
        return Content.styled(f" ! {count} ", f"bold $background on {tone}")

    async def on_click(self, event: events.Click) -> None:
        badge = self._badge().cell_length
        if badge and event.x >= self.gutter.left + self.content_size.width - badge:
            await self.app.run_action("attention", self.app)

    def watch_view(self) -> None:
        rows = () if self.view is None else self.view.rows
        words = Counter(row.status for row in rows)
        self.silent = sum(row.is_silent and row.status == "running" for row in rows)
        self.counts = tuple((w, words[w]) for w in STATE_TONE if words[w])
        self.is_loading = self.view is not None and not self.view.is_complete

    def render(self) -> Content:
        width = self.content_size.width
        parts: list[Content | tuple[str, str]] = [("albor", "bold $accent")]
        if getattr(self.app, "is_read_only", False):
            parts.append((" read-only", "$warning"))
        for crumb in self.crumbs:
            parts += [(f" {glyphs.current.crumb} ", "$ink-faint"), styled.text(crumb, "$ink")]
        if self.shown_view:
            parts.append(styled.text(f"  {self.shown_view}", "$ink-muted"))
        left, badge = Content.assemble(*parts), self._badge()
        counts = self._counts(width - left.cell_length - 2 - badge.cell_length - 2)
        right = counts + "  " + badge if counts.plain and badge.plain else counts + badge
        return styled.pair(left, right, width)

    def _counts(self, room: int) -> Content:
        """The longest form that fits: words, symbols alone, or nothing."""
        for gap, has_words in ((3, True), (2, True), (2, False)):
            parts = [
                Content.styled(
                    f"{styled.state_glyph(word)} {count}"
                    + (f" {shown_word(word)}{self._of_them(word)}" if has_words else ""),
                    STATE_TONE[word],
                )
                for word, count in self.counts
            ]
            if self.is_loading:
                parts.insert(0, styled.loading())
            line = Content(" " * gap).join(parts)
            if line.cell_length <= room:
                return line
        return Content("")

    def _of_them(self, word: str) -> str:
        return f", {self.silent} silent" if word == "running" and self.silent else ""


class StatusBar(Widget):
    """A line about the last command or problem, which disappears by itself."""

    line: reactive[Content | None] = reactive(None, init=False)

    def __init__(self) -> None:
        super().__init__()
        self.display = False
        self._timer: Timer | None = None

    def report(self, report: CommandReport) -> None:
        """Show how a command fares; the line stays until there is an answer."""
        self.line = sentence(report)
        self._stay(None if report.status in ("sent", "accepted") else STAYS_S)

    def show_message(self, words: str, tone: str = "$ink") -> None:
        """Show one line for a while."""
        self.show_line(styled.text(words, tone))

    def show_line(self, line: Content) -> None:
        """The same, of a line that is made."""
        self.line = line
        self._stay(STAYS_S)

    @property
    def is_waiting(self) -> bool:
        """Whether a command has its line until there is an answer."""
        return bool(self.display) and self._timer is None

    def dismiss(self) -> None:
        """Something else is done: what is over is forgotten, what waits for an answer is not."""
        if self._timer is not None:
            self._hide()

    def withdraw(self, words: str) -> bool:
        """Show a message no longer, where it is the one that is shown; whether it was."""
        is_shown = bool(self.display and self.line == styled.text(words, "$warning"))
        if is_shown:
            self._hide()
        return is_shown

    def _stay(self, seconds: float | None) -> None:
        self.display = True
        if self._timer is not None:
            self._timer.stop()
        self._timer = self.set_timer(seconds, self._hide) if seconds else None

    def _hide(self) -> None:
        if self._timer is not None:
            self._timer.stop()
            self._timer = None
        self.display = False

    def render(self) -> Content:
        line = self.line or Content("")
        return styled.fit(line, self.content_size.width)


def sentence(report: CommandReport) -> Content:
    """How a command fares, in one sentence: `stop demo: done, in 0.8 s`, `cannot stop demo: it is
    complete`."""
    verb = _VERB.get(report.cmd, report.cmd)
    name = styled.text(report.run_name, "$accent")
    if (tone := _HINDERED.get(report.status)) is not None:
        why = styled.text(f": {report.detail}" if report.detail else "", "$ink")
        return Content.assemble(("cannot ", f"bold {tone}"), (f"{verb} ", "bold $ink"), name, why)
    word, tone = _STAGE.get(report.status, (report.status, "$ink"))
    return Content.assemble(
        (f"{verb} ", "bold $ink"),
        name,
        (": ", "$ink-muted"),
        styled.text(word, f"bold {tone}"),
        styled.text(f", {report.detail}" if report.detail else "", "$ink-muted"),
    )
