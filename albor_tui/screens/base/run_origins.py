"""Where runs come from, as a screen may draw it: read in a thread, and never waited for."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from textual import on, work

from albor_core.feed.run.offers import origin_of
from albor_core.feed.view.run_view import LOADING, RunView
from albor_tui.messages import OriginRead
from albor_tui.screens.base.polling_screen import PollingScreen

_FRESH_S = 5.0  # so long what was read counts: a run may be made this home's own meanwhile
_UNREAD: Mapping[str, Any] = {"is_launched_here": False}  # nothing that it names is offered


class RunOriginsScreen(PollingScreen):
    """A screen that draws what can be done to runs."""

    def __init__(self) -> None:
        super().__init__()
        self._origins: dict[tuple[str, str], tuple[Mapping[str, Any], float]] = {}
        self._unread: dict[tuple[str, str], None] = {}
        self._is_reading = False

    def draw_offers(self) -> None:
        """Draw again what depends on where a run comes from."""
        raise NotImplementedError

    def origin_read(self, view: RunView) -> Mapping[str, Any]:
        """What was last read of where a run comes from. One that is still to be read counts as from
        elsewhere: a key that starts its program is offered once it is known to work.
        """
        key = (view.id, view.path)
        origin, read_at = self._origins.get(key, (_UNREAD, -_FRESH_S))
        is_old = time.monotonic() - read_at >= _FRESH_S
        if is_old and view.path and view.status != LOADING and self.is_running:
            self._unread[key] = None
            self._read_next()
        return origin

    def _read_next(self) -> None:
        if self._unread and not self._is_reading:
            self._is_reading = True
            self._read_origin(*self._unread.popitem()[0])  # the one asked for last is looked at

    @work(thread=True, group="origin", exit_on_error=False)
    def _read_origin(self, run_id: str, path: str) -> None:
        origin: Mapping[str, Any] | None = None
        try:
            origin = origin_of(run_id, path)
        finally:
            self.post_message(OriginRead(run_id, path, origin))

    @on(OriginRead)
    def keep_origin(self, message: OriginRead) -> None:
        self._is_reading = False
        key = (message.run_id, message.path)
        known = self._origins.get(key, (_UNREAD, 0.0))[0]
        self._origins[key] = (known if message.origin is None else message.origin, time.monotonic())
        self._unread.pop(key, None)
        self.draw_offers()
        self._read_next()
