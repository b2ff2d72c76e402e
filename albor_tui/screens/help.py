"""Every key of the screen below, from its own bindings, so that it cannot disagree with them."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen, Screen
from textual.widgets import Static

from albor_tui import glyphs


class HelpScreen(ModalScreen[None]):
    """Lists what the keys do."""

    BINDINGS = [Binding("escape,q,question_mark,enter", "dismiss", "Close")]

    def __init__(self, below: Screen[object]) -> None:
        super().__init__()
        self._below = below

    def compose(self) -> ComposeResult:
        self.set_class(glyphs.current.is_ascii, "-ascii")
        with VerticalScroll(id="dialog") as dialog:
            dialog.border_title = Content("keys")
            dialog.border_subtitle = Content("esc closes")
            yield Static(keys_of(self._below), markup=False)
            yield Static(_GENERAL, id="general", markup=False)


def keys_of(screen: Screen[object]) -> Content:
    """One line per action of ours, the screen's own first: its keys, what it does.

    Bindings that explain themselves (have a tooltip) are ours; Textual's own scrolling keys do not.
    """
    keys: dict[str, tuple[bool, list[str], str]] = {}
    for node, binding, _, tooltip in screen.active_bindings.values():
        if binding.system or not tooltip:
            continue
        _, names, _ = keys.setdefault(binding.action, (node is screen, [], tooltip))
        names.append(screen.app.get_key_display(binding))
    lines = [
        Content.assemble((f"{' '.join(names):>12}", "bold $accent"), "   ", (words, "$ink"))
        for _, names, words in sorted(keys.values(), key=lambda entry: not entry[0])
    ]
    return Content("\n").join(lines)


_GENERAL = Content.assemble(
    ("\nThe cockpit only reads. Closing it changes nothing; runs go on.", "$ink-muted"),
    ("\nThe same data for programs: albor-tui --json, albor runs ls --json", "$ink-muted"),
)
