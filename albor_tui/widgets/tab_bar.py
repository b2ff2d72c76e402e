"""The tabs of a screen on one line: names where they fit, short names, or their keys."""

from __future__ import annotations

from textual import events
from textual.content import Content
from textual.message import Message
from textual.reactive import reactive
from textual.widget import Widget

from albor_core.run.light_dataclass import dataclass
from albor_tui.model.run_tabs import RunTab
from albor_tui.widgets.base import styled
from albor_tui.widgets.base.error_boundary import ErrorBoundary


class TabBar(ErrorBoundary, Widget):
    """Draws `tabs`, the `current` one lit; a click chooses."""

    current: reactive[str] = reactive("", init=False)

    @dataclass
    class Chosen(Message):
        """A tab was clicked."""

        key: str

    def __init__(self, tabs: tuple[RunTab, ...], current: str) -> None:
        super().__init__(id="tabs")
        self.tabs = tabs
        self._ends: list[int] = []
        self.set_reactive(TabBar.current, current)

    def render(self) -> Content:
        width = self.content_size.width
        labels = self._labels(width)
        self._ends, parts, at = [], [], 0
        for tab, label in zip(self.tabs, labels, strict=True):
            lit = tab.key == self.current
            tone, key = ("bold $accent", "bold $accent") if lit else ("$ink-muted", "$ink-faint")
            drawn = Content.assemble((tab.stroke, key), (f" {label}" if label else "", tone))
            if lit:
                drawn = drawn.stylize("underline")
            at += drawn.cell_length + 1
            self._ends.append(at)
            parts.append(drawn)
        return styled.fit(Content(" ").join(parts), width)

    def _labels(self, width: int) -> list[str]:
        """The longest form that fits: names, short names, or the name of the current tab alone."""
        for labels in ([tab.name for tab in self.tabs], [tab.short for tab in self.tabs]):
            if sum(len(label) + 3 for label in labels) - 1 <= width:
                return labels
        return [tab.short if tab.key == self.current else "" for tab in self.tabs]

    def on_click(self, event: events.Click) -> None:
        x = event.x - self.gutter.left
        for tab, end in zip(self.tabs, self._ends, strict=True):
            if x < end:
                self.post_message(self.Chosen(tab.key))
                return
