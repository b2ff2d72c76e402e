"""One line asked of the user."""

from __future__ import annotations

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from albor_tui.look import glyphs


class PromptScreen(ModalScreen[str | None]):
    """A question with a line to type; None where the user thought better of it."""

    BINDINGS = [Binding("escape", "dismiss", "Cancel")]

    def __init__(self, question: Content, hint: str = "", value: str = "") -> None:
        super().__init__()
        self._question, self._hint, self._value = question, hint, value

    def compose(self) -> ComposeResult:
        self.set_class(glyphs.current.is_ascii, "-ascii")
        with Vertical(id="dialog", classes="-prompt"):
            yield Static(self._question, id="question", markup=False)
            yield Input(self._value, id="answer", compact=True, select_on_focus=False)
            keys = Content.assemble(
                (self._hint + "   " if self._hint else "", "$ink-muted"),
                ("enter", "bold $accent"),
                " ok   ",
                ("esc", "bold $accent"),
                " cancel",
            )
            yield Static(keys, id="choices", markup=False)

    def on_mount(self) -> None:
        self.query_one("#answer", Input).focus()

    @on(Input.Submitted)
    def answer(self, event: Input.Submitted) -> None:
        event.stop()
        self.dismiss(event.value.strip() or None)
