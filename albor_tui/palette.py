"""The command palette: what can be done now, and each place, view and run, by a part of its name.

Textual's own provider reads what it finds as markup, and highlights it so. A title holds the name
of a run: here everything is Content, which the palette leaves as it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from heapq import nlargest
from typing import Any

from textual.app import SystemCommand
from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.content import Content
from textual.fuzzy import Matcher

from albor_core.feed.view.run_view import RunView
from albor_core.run.errors import AlborError
from albor_core.run.values.clean import clean, natural_place
from albor_tui.model.cockpit import as_cockpit
from albor_tui.screens.base.polling_screen import PollingScreen

_MOST = 20
_LISTED = 5
_AT_ONCE = 100
_CHARS = 80


class ActionsProvider(Provider):
    """The app's commands, as its `get_system_commands` has them."""

    async def discover(self) -> Hits:
        for title, about, act, is_listed in sorted(self._commands(), key=lambda found: found[0]):
            if is_listed:
                yield DiscoveryHit(Content(title), act, text=title, help=_plain(about))

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        for title, about, act, _ in self._commands():
            score = matcher.match(title)
            if score > 0:
                yield Hit(score, _highlighted(matcher, title), act, text=title, help=_plain(about))

    def _commands(self) -> Iterable[SystemCommand]:
        return self.app.get_system_commands(self.screen)


class PlacesProvider(Provider):
    """Finds what the screen on top can show: tabs, metrics, columns."""

    async def startup(self) -> None:
        if isinstance(self.screen, PollingScreen):
            with suppress(AlborError):  # what the screen knows by itself is found all the same
                await asyncio.to_thread(self.screen.read_places)

    async def search(self, query: str) -> Hits:
        screen, matcher = self.screen, self.matcher(query)
        if not isinstance(screen, PollingScreen):
            return
        found = []
        for count, (title, about, act) in enumerate(screen.places()):
            if (score := matcher.match(title)) > 0:
                found.append((score, title, about, act))
            if count % _AT_ONCE == 0:
                await asyncio.sleep(0)  # the next key may come first
        for score, title, about, act in nlargest(_MOST, found, key=lambda one: one[0]):
            shown = _highlighted(matcher, title)
            yield Hit(score, shown, act, text=title, help=_plain(about))


class ViewsProvider(Provider):
    """Finds the named views, also those that another cockpit saved meanwhile."""

    async def startup(self) -> None:
        await asyncio.to_thread(as_cockpit(self.app).views.reload)

    async def discover(self) -> Hits:
        for name, title, about in [*self._titles()][:_LISTED]:
            act = partial(as_cockpit(self.app).open_view, name)
            yield DiscoveryHit(Content(title), act, text=title, help=_plain(about))

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        for name, title, about in self._titles():
            score = matcher.match(title)
            if score > 0:
                act = partial(as_cockpit(self.app).open_view, name)
                shown = _highlighted(matcher, title)
                yield Hit(score, shown, act, text=title, help=_plain(about))

    def _titles(self) -> Iterable[tuple[str, str, str]]:
        from albor_tui.screens.dialogs.views import summary

        named = as_cockpit(self.app).views.named
        for name, view in sorted(named.items(), key=lambda one: natural_place(one[0].lower())):
            about = clean(summary(view), limit=_CHARS)
            yield name, f"View: {clean(name, limit=_CHARS)}", about


class RunsProvider(Provider):
    """Finds runs by name, id, experiment or tag, newest first."""

    _found: tuple[RunView, ...] = ()

    async def startup(self) -> None:
        """The runs of the home screen, or, where the cockpit began on one run, those of a look."""
        from albor_tui.screens.runs.screen import RunsScreen

        home = next((s for s in self.app.screen_stack if isinstance(s, RunsScreen)), None)
        self._found = home.rows if home else await asyncio.to_thread(self._look)

    def _look(self) -> tuple[RunView, ...]:
        overview = as_cockpit(self.app).source.overview()
        try:
            return overview.poll().rows
        finally:
            overview.close()

    async def discover(self) -> Hits:
        for view in [row for row in self._found if row.is_active][:_LISTED]:
            title = _title(view)
            yield DiscoveryHit(
                Content(title), self._opener(view), text=title, help=_plain(_about(view))
            )

    async def search(self, query: str) -> Hits:
        matcher, found = self.matcher(query), 0
        for view in self._found:
            title = _title(view)
            score = matcher.match(title)
            if score > 0:
                shown = _highlighted(matcher, title)
                yield Hit(score, shown, self._opener(view), text=title, help=_plain(_about(view)))
                found += 1
                if found == _MOST:
                    return

    def _opener(self, view: RunView) -> Callable[[], None]:
        return partial(_open, self, view)


def _open(provider: RunsProvider, view: RunView) -> None:
    provider.app.push_screen(as_cockpit(provider.app).run_screen(view))


def _title(view: RunView) -> str:
    return f"Open {clean(view.name or view.id, limit=_CHARS)}"


def _about(view: RunView) -> str:
    return f"{view.shown_status}   {clean(view.experiment, limit=_CHARS)}   {view.id}"


def _plain(text: str) -> Any:
    """The help of a hit, which Textual declares as text and leaves alone as Content."""
    return Content(text)


def _highlighted(matcher: Matcher, title: str) -> Content:
    """The title with its match highlighted, without interpreting markup."""
    shown = Content(title)
    _, offsets = matcher.fuzzy_search.match(matcher.query, title)
    for at in offsets:
        if not title[at].isspace():
            shown = shown.stylize(matcher.match_style, at, at + 1)
    return shown
