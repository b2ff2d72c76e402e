"""A question before something that stops work."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.content import Content
from textual.events import Key
from textual.screen import ModalScreen
from textual.widgets import Static

from albor_tui.look import glyphs


class ChoiceScreen(ModalScreen[str | None]):
    """One of several answers, each by its key; any other key that leaves is none of them."""

    BINDINGS = [Binding("n,escape,q,enter", "leave", "No")]

    def __init__(
        self, question: Content, why: str, choices: tuple[tuple[str, str, str], ...]
    ) -> None:
        """`choices`: key, what it answers, words."""
        super().__init__()
        self._question, self._why, self._choices = question, why, choices

    def compose(self) -> ComposeResult:
        self.set_class(glyphs.current.is_ascii, "-ascii")
        with Vertical(id="dialog"):
            yield Static(self._question, id="question", markup=False)
            yield Static(Content.styled(self._why, "$ink-muted"), markup=False)
            lines = [(key, words) for key, _, words in self._choices] + [("n", "no, leave it")]
            keys = Content("\n").join(
                Content.assemble((key, "bold $accent"), f"  {words}") for key, words in lines
            )
            yield Static(keys, id="choices", markup=False)

    def on_key(self, event: Key) -> None:
        for key, answer, _ in self._choices:
            if event.key == key:
                event.stop()
                self.dismiss(answer)

    def action_leave(self) -> None:
        self.dismiss(None)


class ConfirmScreen(ModalScreen[bool]):
    """Asks yes or no; enter and escape mean no."""

    BINDINGS = [
        Binding("y", "answer(True)", "Yes"),
        Binding("n,escape,q,enter", "answer(False)", "No"),
    ]

    def __init__(
        self, question: Content, consequence: str, *, decline: str = "no, keep it running"
    ) -> None:
        super().__init__()
        self._question, self._consequence, self._decline = question, consequence, decline

    def compose(self) -> ComposeResult:
        self.set_class(glyphs.current.is_ascii, "-ascii")
        with Vertical(id="dialog"):
            yield Static(self._question, id="question", markup=False)
            yield Static(Content.styled(self._consequence, "$ink-muted"), markup=False)
            keys = Content.assemble(
                ("y", "bold $error"), " yes     ", ("n", "bold $accent"), f" {self._decline}"
            )
            yield Static(keys, id="choices", markup=False)

    def action_answer(self, yes: bool) -> None:
        self.dismiss(yes)
