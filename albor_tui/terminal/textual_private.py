"""Every private name of Textual's that the cockpit uses, each with what it buys.

Textual promises nothing about names that begin with an underscore, so they stand in this file alone
and have public names here. HOOKS lists them for tests/tui/test_textual_private.py, which says by
name which of them a new Textual has changed. Remove a hook when Textual offers the same in public.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.segment import Segment
from rich.style import Style
from textual._compositor import ChopsUpdate, Compositor
from textual._styles_cache import StylesCache
from textual.app import App
from textual.binding import Binding
from textual.cache import LRUCache
from textual.color import Color
from textual.css.stylesheet import Stylesheet
from textual.dom import DOMNode
from textual.drivers.linux_driver import LinuxDriver
from textual.geometry import Region
from textual.message import Message
from textual.message_pump import MessagePump
from textual.renderables.background_screen import BackgroundScreen
from textual.screen import Screen
from textual.scrollbar import ScrollBar, ScrollBarRender
from textual.strip import Strip
from textual.widget import Widget

if TYPE_CHECKING:
    _AnyWidget = Widget
else:  # no widget of its own: Textual takes a class's styles and type from its first widget base
    _AnyWidget = object


class Hook(NamedTuple):
    """A private name: where Textual defines it, and where it uses it so that the hook is obeyed."""

    owner: type
    name: str
    used_by: type
    signature: str = ""  # of a function; "" for an attribute that `owner` sets


_TINT = "(segments: 'Iterable[Segment]', color: 'Color')"
HOOKS = (
    Hook(Compositor, "_get_renders", Compositor, "(self, crop: 'Region | None' = None)"),
    Hook(Compositor, "_dirty_regions", Compositor),
    Hook(Screen, "_compositor", Screen),
    Hook(Screen, "_compositor_refresh", Screen, "(self)"),
    Hook(MessagePump, "_dispatch_message", MessagePump, "(self, message: 'Message')"),
    Hook(MessagePump, "_context", MessagePump, "(self)"),
    Hook(Stylesheet, "_parse_cache", Stylesheet),
    Hook(Widget, "_get_component_classes", Stylesheet, "(cls)"),
    Hook(DOMNode, "_component_styles", Stylesheet),
    Hook(MessagePump, "_attach", Stylesheet, "(self, parent: 'MessagePump')"),
    Hook(DOMNode, "_bindings", Screen),
    Hook(Widget, "_border_title", StylesCache),
    Hook(LinuxDriver, "_app", LinuxDriver),
    Hook(LinuxDriver, "_file", LinuxDriver),
    Hook(ScrollBar, "renderer", ScrollBar),
    Hook(App, "_driver", App),
    Hook(BackgroundScreen, "process_segments", BackgroundScreen, _TINT),
)


class SparingCompositor(Compositor):
    """A compositor whose partial updates leave alone what lies beside them.

    Textual asks every widget on the screen for its lines whenever one cell of it changes, and
    watching a run is made of such changes.
    """

    def __init__(self) -> None:
        super().__init__()
        self._changed: tuple[Region, ...] = ()

    def render_partial_update(self) -> ChopsUpdate | None:
        self._changed = tuple(self._dirty_regions)
        try:
            return super().render_partial_update()
        finally:
            self._changed = ()

    def _get_renders(
        self, crop: Region | None = None
    ) -> Iterable[tuple[Region, Region, list[Strip]]]:
        changed = self._changed
        if not changed:
            yield from super()._get_renders(crop)
            return
        for widget, (region, clip) in self.visible_widgets.items():
            seen = region.intersection(clip)
            if any(seen.overlaps(cells) for cells in changed):
                yield region, clip, widget.render_lines(seen.translate(-region.offset))


class FrameScreen(Screen[None]):
    """A screen that decides whether a frame is drawn now: at a start each frame of half a picture
    costs as much time as the whole. What is dirty stays so until a frame passes."""

    def __init__(self) -> None:
        super().__init__()
        self._compositor = SparingCompositor()

    def may_draw(self) -> bool:
        """Asked before each frame."""
        return True

    def draw_frame(self) -> None:
        """Draw what is dirty now, if `may_draw`."""
        self._compositor_refresh()

    def _compositor_refresh(self) -> None:
        if self.may_draw():
            super()._compositor_refresh()


class MessageGate(_AnyWidget):
    """Mix in before the widget class: every message and event of a widget passes `dispatch`, where
    an error can still be caught; beyond it Textual ends the app."""

    async def dispatch(self, message: Message) -> None:
        """Let Textual deal with a message."""
        await super()._dispatch_message(message)

    async def _dispatch_message(self, message: Message) -> None:
        await self.dispatch(message)


async def dispatch_now(node: MessagePump, message: Message) -> None:
    """Deal with a message before those that wait, so that its effects are in the same frame as the
    caller's."""
    with node._context():
        await node._dispatch_message(message)


class ParsedStylesheet(Stylesheet):
    """A stylesheet whose cache of parsed rules can be kept and brought back: parsing takes 40 ms,
    and Textual empties the cache whenever the theme changes."""

    @property
    def parsed(self) -> LRUCache[Any, Any]:
        """The cache of parsed stylesheets; cleared by `set_variables`."""
        return self._parse_cache

    @parsed.setter
    def parsed(self, rules: LRUCache[Any, Any]) -> None:
        self._parse_cache = rules


class LazyComponents(Widget):
    """A widget whose component classes are styled when first drawn. A chart has 26, each as dear
    as a widget when a stylesheet is applied: for the 20 charts of a run that was 0.1 s at every
    change of theme."""

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._used: frozenset[str] = frozenset()

    def component_style(self, name: str) -> Style | None:
        """The style of a component class; None where the widget declares no such class."""
        if name not in super()._get_component_classes():
            return None
        if name not in self._used:
            self._use(name)
        return self.get_component_rich_style(name)

    def _get_component_classes(self) -> frozenset[str]:  # type: ignore[override]
        return self._used

    def _use(self, name: str) -> None:
        """Load the styles of one component, as Textual's stylesheet does for all of them."""
        part = DOMNode(classes=name)
        part._attach(self)
        self.app.stylesheet.apply(part, animate=False)
        self._component_styles[name] = part.styles
        self._used |= {name}


class TerminalDriver(LinuxDriver):
    """Textual's driver for Linux, with what a writer of our own has to know of it."""

    @property
    def screen_size(self) -> tuple[int, int]:
        """Cells across and down."""
        size = self._app.size
        return size.width, size.height

    @property
    def output_fd(self) -> int:
        """The file descriptor that frames are written to."""
        assert self._file is not None, "a terminal"
        return self._file.fileno()


def bindings_of(node: DOMNode) -> Iterator[Binding]:
    """The keys of a screen in their order, those that are hidden or refused now included."""
    for _, binding in node._bindings:
        yield binding


def title_text(widget: Widget) -> str:
    """The title in a widget's frame as plain text: Textual gives it back as markup."""
    return "" if widget._border_title is None else widget._border_title.plain


def draw_scroll_bars_with(renderer: type[ScrollBarRender]) -> None:
    """The renderer of all scroll bars: Textual takes it from this one place."""
    ScrollBar.renderer = renderer


def write_to_terminal(app: App[Any], text: str) -> None:
    """Send what is for the terminal itself, as a frame is sent; nothing where there is none."""
    if app._driver is not None:
        app._driver.write(text)
        app._driver.flush()


_tint_segments = BackgroundScreen.process_segments


@lru_cache(maxsize=8192)
def _tinted(style: Style | None, color: Color) -> Style | None:
    (cell,) = _tint_segments([Segment(" ", style)], color)
    return cell.style


def remember_tints() -> None:
    """Mix the colours of what lies below a dialog once for each style: Textual does it for each
    piece of text at each frame of the dialog, half of what such a frame costs."""

    def process_segments(cls: type, segments: Iterable[Segment], color: Color) -> Iterator[Segment]:
        for text, style, control in segments:
            yield Segment(text, style if control else _tinted(style, color), control)

    BackgroundScreen.process_segments = classmethod(process_segments)  # type: ignore[assignment]
