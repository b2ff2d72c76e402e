"""The stylesheet: parsed once for each theme, applied to what can be seen.

Textual forgets what it parsed whenever the theme changes, and once more with the next kind of
widget (40 ms each), and styles hidden tabs like shown ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from weakref import WeakSet

from textual.cache import LRUCache
from textual.dom import DOMNode

from albor_tui.terminal.textual_private import ParsedStylesheet

LATER = "-styled-later"  # class of what may be hidden for long: whoever shows it calls `freshen`
_SOURCES = 512  # each kind of widget has its own; Textual keeps 64


class KeptStylesheet(ParsedStylesheet):
    """A stylesheet that remembers what it parsed, for each set of variables."""

    def __init__(self, *, variables: dict[str, str] | None = None) -> None:
        super().__init__(variables=variables)
        self._kept: dict[frozenset[tuple[str, str]], LRUCache] = {}  # type: ignore[type-arg]
        self._stale: WeakSet[DOMNode] = WeakSet()
        self.set_variables(variables or {})

    def set_variables(self, variables: dict[str, str]) -> None:
        self.parsed = LRUCache(1)  # it is cleared
        super().set_variables(variables)
        self.parsed = self._kept.setdefault(_key(variables), LRUCache(_SOURCES))

    def reparse(self) -> None:
        """Parse what is not yet parsed for the variables as they are. Raises StylesheetError."""
        self.parse()  # replaces the rules only if all of it parses

    def prepare(self, variables: dict[str, str]) -> None:
        """Parse what is known now for other variables, too. May run in any thread."""
        ahead = KeptStylesheet(variables=variables)
        ahead.source = dict(self.source)
        ahead.parse()
        self._kept.setdefault(_key(variables), ahead.parsed)

    def update(self, root: DOMNode, animate: bool = False) -> None:
        """Style `root` and all below it that is not hidden for long."""
        self.update_nodes(self._shown(root), animate=animate)

    def freshen(self, node: DOMNode) -> None:
        """Style what was left out while it was hidden."""
        if node in self._stale:
            self._stale.discard(node)
            self.update(node)

    def _shown(self, node: DOMNode) -> Iterator[DOMNode]:
        if node.has_class(LATER) and not node.display:
            self._stale.add(node)
            return
        yield node
        for child in node.children:
            yield from self._shown(child)


def _key(variables: Mapping[str, str]) -> frozenset[tuple[str, str]]:
    return frozenset(variables.items())
