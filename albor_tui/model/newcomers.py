"""Which entries of attention are new since the last notice, so that each is told once."""

from __future__ import annotations

from albor_core.feed.attention.item import AttentionItem, AttentionList


class Newcomers:
    """Takes in each list, and gives what came up between two calls of `told`.

    What is open when the first whole list comes is not news: the badge says it. An entry that goes
    and comes again is told once.
    """

    def __init__(self) -> None:
        self._known: set[str] | None = None
        self._waiting: dict[str, AttentionItem] = {}

    def take(self, found: AttentionList) -> None:
        """The list as it is now; one that is not whole is left out."""
        if not found.is_complete:
            return
        now = {item.id: item for item in found.open}
        if self._known is None:
            self._known = set(now)
            return
        fresh = {i: item for i, item in now.items() if i in self._waiting or i not in self._known}
        self._waiting = fresh
        self._known |= now.keys()

    @property
    def is_waiting(self) -> bool:
        """Whether there is something to tell."""
        return bool(self._waiting)

    def told(self) -> tuple[AttentionItem, ...]:
        """New entries, the worst first; the next call starts anew."""
        found = tuple(sorted(self._waiting.values(), key=lambda item: item.rank))
        self._waiting = {}
        return found
