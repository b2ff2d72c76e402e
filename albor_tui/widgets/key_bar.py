"""The last line of every screen: its keys, as many as fit, the important ones first.

Keys whose binding is shown come first; the rest follow where there is room, so a wide terminal
teaches more. Help and Quit always have their place. A click does what the key does.

Keys are those of the screen and the app, and before them those of a part of the screen that has the
focus and the class `-keys`: a tab, say.
"""

from __future__ import annotations

from typing import Any, Protocol, cast, runtime_checkable

from textual import events
from textual.app import App
from textual.binding import Binding
from textual.content import Content
from textual.dom import DOMNode
from textual.screen import Screen
from textual.widget import Widget

from albor_tui.model.cockpit import as_cockpit
from albor_tui.widgets.base import styled
from albor_tui.widgets.base.error_boundary import ErrorBoundary

_GAP = 2
_ALWAYS = ("help", "leave")
_FOREIGN = ("quit",)  # Textual's own, beside our `leave`
_WORDS = {"enter": "enter", "space": "space", "escape": "esc"}


def key_name(app: App[Any], binding: Binding) -> str:
    """How a key is written: words where Textual draws a sign that fonts and ASCII lack."""
    return binding.key_display or _WORDS.get(binding.key) or app.get_key_display(binding)


@runtime_checkable
class KnowsKeys(Protocol):
    """A screen that knows which of its keys do something now."""

    def shows_key(self, action: str) -> bool: ...

    def key_word(self, action: str) -> str: ...


class KeyBar(ErrorBoundary, Widget):
    """Draws the active bindings of its screen and the app that explain themselves (have a tooltip)
    and are worth naming now; those of widgets, such as moving up and down, are left to `?`."""

    def __init__(self) -> None:
        super().__init__()
        self._drawn: list[tuple[int, int, str]] = []  # first cell, end, action
        self._owners: dict[str, DOMNode] = {}  # whose action it is

    def on_mount(self) -> None:
        self.screen.bindings_updated_signal.subscribe(self, self._bindings_changed)

    def _bindings_changed(self, _screen: Screen[object]) -> None:
        self.refresh()

    def render(self) -> Content:
        width = self.content_size.width
        named = [(b.action, key_name(self.app, b), self._title(b)) for b in self._shown_keys()]
        fixed = [one for one in named if one[0] in _ALWAYS]
        room = width - sum(map(_length, fixed))
        chosen: list[tuple[str, str, str]] = []
        for one in named:
            if one not in fixed and _length(one) <= room:
                room -= _length(one)
                chosen.append(one)
        self._drawn, parts, at = [], [], 0
        for one in (*chosen, *fixed):
            action, key, title = one
            self._drawn.append((at, at + _length(one) - _GAP, action))
            parts.append(
                Content.assemble(
                    (key, "bold $footer-key-foreground"),
                    (f" {title}", "$footer-description-foreground"),
                    " " * _GAP,
                )
            )
            at += _length(one)
        return styled.fit(Content("").join(parts), width)

    def _shown_keys(self) -> list[Binding]:
        """One per action; those to be shown first, each group in the order it was declared."""
        found: dict[str, Binding] = {}
        for node, binding, enabled, tooltip in self.screen.active_bindings.values():
            is_ours = node in (self.screen, self.app) or node.has_class("-keys")
            is_ours = is_ours and binding.action not in _FOREIGN
            is_ours = is_ours and cast("KnowsKeys", self.screen).shows_key(binding.action)
            is_ours = is_ours and as_cockpit(self.app).permits(binding.action)
            is_ours = is_ours and not self._is_typed(binding)
            if is_ours and enabled and tooltip and binding.description and not binding.system:
                if binding.action not in found:
                    self._owners[binding.action] = node
                found.setdefault(binding.action, binding)
        listed = list(found.values())
        return [b for b in listed if b.show] + [b for b in listed if not b.show]

    def _is_typed(self, binding: Binding) -> bool:
        """Whether the key is a letter in a line that is being typed. Textual knows it of most keys,
        but not of those that it has a name for and Unicode another, such as `slash`."""
        typing = self.screen.focused
        return typing is not None and typing.check_consume_key(binding.key, binding.key_display)

    def _title(self, binding: Binding) -> str:
        """The label that its screen gives it now, else the binding's, with a capital letter."""
        words = cast("KnowsKeys", self.screen).key_word(binding.action) or binding.description
        return words[:1].upper() + words[1:]

    async def on_click(self, event: events.Click) -> None:
        x = event.x - self.gutter.left
        for start, end, action in self._drawn:
            if start <= x < end:
                await self.app.run_action(action, self._owners.get(action, self.screen))
                return


def _length(named: tuple[str, str, str]) -> int:
    """Cells of a key, what it does and the gap behind them."""
    _, key, title = named
    return len(key) + 1 + len(title) + _GAP
