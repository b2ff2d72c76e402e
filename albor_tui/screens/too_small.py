"""What is shown in place of every screen while the terminal is too small for any of them."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.binding import Binding
from textual.geometry import Size
from textual.screen import ModalScreen
from textual.widgets import Static

LEAST = Size(60, 16)  # below it the list of runs has no room for a run and the keys no line


def is_too_small(size: Size) -> bool:
    """Whether nothing of use fits. A size of nothing is not known yet."""
    return bool(size.area) and (size.width < LEAST.width or size.height < LEAST.height)


class TooSmallScreen(ModalScreen[None]):
    """Says how large the terminal is and should be. The app takes it away when that is so."""

    BINDINGS = [Binding("q", "app.leave", "Quit")]

    def compose(self) -> ComposeResult:
        yield Static(words(self.app.size), id="too-small", markup=False)

    def on_resize(self) -> None:
        self.query_one("#too-small", Static).update(words(self.app.size))

    def on_screen_resume(self) -> None:
        if not is_too_small(self.app.size):  # it grew while another screen was on top
            self.dismiss()


def words(size: Size) -> str:
    """The message about the size, with line breaks where it would not fit."""
    end = " " if size.width > 46 else "\n"
    least = f"at least {LEAST.width} x {LEAST.height}"
    return f"terminal too small: {size.width} x {size.height},{end}{least}"
