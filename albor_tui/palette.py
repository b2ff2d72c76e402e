"""Runs in the command palette: any of them opens by a part of its name."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, cast

from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.content import Content

from albor_core.feed.clean import clean
from albor_core.feed.view import RunView
from albor_tui.source import HasSource

_MOST = 20
_LISTED = 5
_CHARS = 80


class RunsProvider(Provider):
    """Finds runs by name, id, experiment or tag, newest first."""

    _found: tuple[RunView, ...] = ()

    async def startup(self) -> None:
        """The runs of the home screen, or, where the cockpit began on one run, those of a look."""
        from albor_tui.screens.runs import RunsScreen

        home = next((s for s in self.app.screen_stack if isinstance(s, RunsScreen)), None)
        self._found = home.rows if home else await asyncio.to_thread(self._look)

    def _look(self) -> tuple[RunView, ...]:
        overview = cast("HasSource", self.app).source.overview()
        try:
            return overview.poll().rows
        finally:
            overview.close()

    async def discover(self) -> Hits:
        for view in [row for row in self._found if row.is_active][:_LISTED]:
            title = Content(_title(view))
            yield DiscoveryHit(title, self._opener(view), text=title.plain, help=_about(view))

    async def search(self, query: str) -> Hits:
        matcher, found = self.matcher(query), 0
        for view in self._found:
            title = _title(view)
            score = matcher.match(title)
            if score > 0:
                shown = Content(title)  # matcher.highlight would read the name as markup
                yield Hit(score, shown, self._opener(view), text=title, help=_about(view))
                found += 1
                if found == _MOST:
                    return

    def _opener(self, view: RunView) -> Callable[[], None]:
        return partial(_open, self, view)


def _open(provider: RunsProvider, view: RunView) -> None:
    from albor_tui.screens.run import RunScreen

    provider.app.push_screen(RunScreen(view))


def _title(view: RunView) -> str:
    return f"Open {clean(view.name or view.id, limit=_CHARS)}"


def _about(view: RunView) -> Any:
    """Content, which the palette leaves as it is; a plain string it would read as markup."""
    return Content(f"{view.status}   {clean(view.experiment, limit=_CHARS)}   {view.id}")
