"""A line to search with, at the foot of a page."""

from __future__ import annotations

from dataclasses import dataclass

from textual import on
from textual.binding import Binding
from textual.message import Message
from textual.widgets import Input


class SearchLine(Input):
    """Hidden until `open`; `Typed` while the words change, `Left` when they are done."""

    BINDINGS = [
        Binding("enter", "submit", "Keep", tooltip="Keep the words, back to the page"),
        Binding("escape", "leave", "Clear", tooltip="Clear the search"),
    ]

    @dataclass
    class Typed(Message):
        """The words are others now."""

        words: str

    @dataclass
    class Left(Message):
        """Enter, or escape: then there are no words."""

        words: str

    def __init__(self, *, id: str) -> None:
        super().__init__(
            id=id, classes="search -keys", compact=True, select_on_focus=False, max_length=200
        )
        self.display = False

    def open(self) -> None:
        """Take the focus, with the words of the last time. A zoomed panel would hide the line."""
        if self.screen.maximized is not None:
            self.screen.minimize()
        self.display = True
        self.focus()
        self.cursor_position = len(self.value)

    def action_leave(self) -> None:
        self.value = ""
        self._leave()

    def _leave(self) -> None:
        self.display = False
        self.post_message(self.Left(self.value))

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        event.stop()
        self.post_message(self.Typed(self.value))

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self._leave()
