"""Why the attempts of a run died: each crash report with the end of its output and its stacks."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from albor_core.feed.archive.crashes import CrashView
from albor_tui.look import glyphs
from albor_tui.screens.dialogs.help import Pages
from albor_tui.widgets.base import styled


class CrashScreen(ModalScreen[None]):
    """The reports of one run, the newest first."""

    BINDINGS = [
        Binding("escape,q,enter,o", "dismiss", "Close"),
        Binding("left_square_bracket,left", "turn(1)", "Earlier", tooltip="The report before"),
        Binding("right_square_bracket,right", "turn(-1)", "Later", tooltip="The report after"),
    ]

    def __init__(self, crashes: tuple[CrashView, ...]) -> None:
        super().__init__()
        self._crashes, self._at = crashes, 0

    def compose(self) -> ComposeResult:
        self.set_class(glyphs.current.is_ascii, "-ascii")
        with Pages(id="dialog"):
            yield Static(id="crash", markup=False)

    def on_mount(self) -> None:
        self._show()

    def action_turn(self, by: int) -> None:
        self._at = min(max(0, self._at + by), len(self._crashes) - 1)
        self._show()

    def _show(self) -> None:
        crash, dialog = self._crashes[self._at], self.query_one("#dialog", VerticalScroll)
        count = f"  {self._at + 1} of {len(self._crashes)}" if len(self._crashes) > 1 else ""
        dialog.border_title = Content(f"crash of attempt {crash.attempt}{count}")
        turn = "[ ] another, " if len(self._crashes) > 1 else ""
        dialog.border_subtitle = Content(f"{turn}esc closes")
        dialog.scroll_home(animate=False)
        self.query_one("#crash", Static).update(words_of_crash(crash))


def words_of_crash(crash: CrashView) -> Content:
    """A report as a page."""
    lines = [styled.text(crash.error or crash.hang or crash.reason or crash.kind, "bold $error")]
    if crash.reason and (crash.error or crash.hang):
        lines.append(styled.text(crash.reason, "$ink"))
    lines.append(styled.text(crash.path, "$ink-muted"))
    for title, told in (("last lines of its output", crash.log), ("stacks", crash.stacks)):
        if told:
            lines += [Content(""), Content.styled(title, "$ink-muted")]
            lines += [Content.styled(line, "$ink") for line in told]
    return styled.rows(lines)
