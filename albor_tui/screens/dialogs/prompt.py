"""One line asked of the user."""

from __future__ import annotations

from collections.abc import Callable

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from albor_core.run.errors import AlborError
from albor_tui.look import glyphs
from albor_tui.widgets.base import styled


class PromptScreen(ModalScreen[str | None]):
    """A question with a line to type; None where the user thought better of it. While `check`
    raises an AlborError of the answer, the dialog shows it and stays.
    """

    BINDINGS = [Binding("escape", "dismiss", "Cancel")]

    def __init__(
        self,
        question: Content,
        hint: str = "",
        value: str = "",
        check: Callable[[str], None] | None = None,
    ) -> None:
        super().__init__()
        self._question, self._hint, self._value = question, hint, value
        self._check = check

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
            problem = Static(id="problem", markup=False)
            problem.display = False
            yield problem
            yield Static(keys, id="choices", markup=False)

    def on_mount(self) -> None:
        self.query_one("#answer", Input).focus()

    @on(Input.Submitted)
    def answer(self, event: Input.Submitted) -> None:
        event.stop()
        value = event.value.strip()
        try:
            if value and self._check is not None:
                self._check(value)
        except AlborError as error:
            self._show_problem(f"{error.message} {error.hint}".strip())
        else:
            self.dismiss(value or None)

    @on(Input.Changed)
    def _edit(self, event: Input.Changed) -> None:
        event.stop()
        self._show_problem("")

    def _show_problem(self, words: str) -> None:
        """Show why the answer cannot be used; "" takes it away."""
        problem = self.query_one("#problem", Static)
        problem.display = bool(words)
        problem.update(styled.text(words, "$error"))
