"""Every key of the screen below, from its own bindings, so that it cannot disagree with them.
Those that would only be refused now stand apart; what a read-only cockpit refuses does not stand.
"""

from __future__ import annotations

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen, Screen
from textual.widgets import Static

from albor_tui.look import glyphs
from albor_tui.model.cockpit import as_cockpit
from albor_tui.widgets.key_bar import KnowsKeys, key_name


class Pages(VerticalScroll):
    """A text that scrolls in a dialog by the keys that move everywhere."""

    BINDINGS = [Binding("j", "scroll_down", "Down", show=False),
                Binding("k", "scroll_up", "Up", show=False)]  # fmt: skip


class HelpScreen(ModalScreen[None]):
    """Lists what the keys do."""

    BINDINGS = [Binding("escape,q,question_mark,enter", "dismiss", "Close")]

    def __init__(self, below: Screen[object]) -> None:
        super().__init__()
        self._below = below

    def compose(self) -> ComposeResult:
        self.set_class(glyphs.current.is_ascii, "-ascii")
        with Pages(id="dialog") as dialog:
            dialog.border_title = Content("keys")
            yield Static(keys_of(self._below), markup=False)
            yield Static(_GENERAL, id="general", markup=False)

    def on_resize(self) -> None:
        self.call_after_refresh(self._show_scroll_hint)

    def _show_scroll_hint(self) -> None:
        dialog = self.query_one("#dialog", VerticalScroll)
        arrows = glyphs.current.arrow_up + glyphs.current.arrow_down
        more = f"{arrows} for more, " if dialog.max_scroll_y else ""
        dialog.border_subtitle = Content(f"{more}esc closes")


def keys_of(screen: Screen[object]) -> Content:
    """One line per action of ours, the screen's own first: its keys, what it does.

    Bindings that explain themselves (have a tooltip) are ours; Textual's own scrolling keys do not.
    """
    keys: dict[str, tuple[bool, list[str], str]] = {}
    for node, binding, _, tooltip in screen.active_bindings.values():
        is_hidden = binding.system or not tooltip or binding.action == "quit"
        if is_hidden or not as_cockpit(screen.app).permits(binding.action):
            continue
        _, names, _ = keys.setdefault(binding.action, (node is screen, [], tooltip))
        names.append(key_name(screen.app, binding))
    now: list[Content] = []
    later: list[Content] = []
    for action, (_, names, words) in sorted(keys.items(), key=lambda entry: not entry[1][0]):
        is_worth_it = not isinstance(screen, KnowsKeys) or screen.shows_key(action)
        key_tone, tone = ("bold $accent", "$ink") if is_worth_it else ("$ink-muted",) * 2
        line = Content.assemble((f"{' '.join(names):>12}", key_tone), "   ", (words, tone))
        (now if is_worth_it else later).append(line)
    if later:
        now += [Content(""), Content.styled("not now:", "$ink-muted"), *later]
    return Content("\n").join(now)


_GENERAL = Content.assemble(
    ("\nClosing the cockpit changes nothing: runs go on without it.", "$ink-muted"),
    ("\nFor programs: albor-tui --json, albor runs ls --json", "$ink-muted"),
)
