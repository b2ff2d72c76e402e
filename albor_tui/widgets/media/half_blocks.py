"""A picture in cells: two pixels in each, one over the other, as a half block in two colours.

Where a terminal has only sixteen colours, or no half blocks, each cell is a shade as dense as its
two pixels are bright.
"""

from __future__ import annotations

from rich.segment import Segment
from rich.style import Style
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from albor_core.feed.archive.pixels import Pixels
from albor_tui.look import glyphs
from albor_tui.widgets.base.cells import cells_of
from albor_tui.widgets.base.error_boundary import ErrorBoundary

_ASCII_SHADES = " .:-=+*#%@"
_GRAIN = 4  # of a channel: neighbours that look the same are one run of cells
_BAYER = (0, 8, 2, 10, 12, 4, 14, 6, 3, 11, 1, 9, 15, 7, 13, 5)  # ordered dithering


class HalfBlocks(ErrorBoundary, Widget):
    """Shows `pixels` in the middle, or words in its place; only changed rows are drawn again."""

    COMPONENT_CLASSES = {"half-blocks--shade", "half-blocks--words"}

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._pixels: Pixels | None = None
        self._words = ""
        self._strips: dict[int, Strip] = {}

    @property
    def room(self) -> tuple[int, int]:
        """Pixels across and down that have room."""
        width, height = self.content_size
        return width, height * 2

    def show(self, pixels: Pixels | None, words: str = "") -> None:
        """Draw this picture; without one, these words."""
        old, self._pixels = self._pixels, pixels
        said, self._words = self._words, words
        self._strips.clear()
        is_same_size = old and pixels and (old.width, old.height) == (pixels.width, pixels.height)
        if old is None or pixels is None or not is_same_size or said != words:
            self.refresh()
            return
        left, top = self._corner(pixels)
        changed = [
            Region(left, top + y, pixels.width, 1)
            for y in range((pixels.height + 1) // 2)
            if _pair(old, y) != _pair(pixels, y)
        ]
        if changed:
            self.refresh(*changed)

    @property
    def has_colours(self) -> bool:
        """Whether a cell can have any two colours."""
        return not (glyphs.current.is_ascii or self.app.current_theme.ansi or self.app.no_color)

    def notify_style_update(self) -> None:
        self._strips.clear()
        super().notify_style_update()

    def on_resize(self) -> None:
        self._strips.clear()

    def _corner(self, pixels: Pixels) -> tuple[int, int]:
        width, height = self.content_size
        across, down = width - pixels.width, height - (pixels.height + 1) // 2
        return max(0, across // 2), max(0, down // 2)

    def render_line(self, y: int) -> Strip:
        strip = self._strips.get(y)
        if strip is None:
            strip = self._strips[y] = self._line(y)
        return strip

    def _line(self, y: int) -> Strip:
        width, height = self.content_size
        ground = self.rich_style
        pixels = self._pixels
        if pixels is None:
            words = self._words if y == height // 2 else ""
            cells = "".join(one for one, _ in cells_of(words, ""))
            tone = self.get_component_rich_style("half-blocks--words")
            strip = Strip([Segment(cells, tone)])
            return strip.adjust_cell_length(width, ground).text_align(width, "center")
        left, top = self._corner(pixels)
        row = y - top
        if not 0 <= row < (pixels.height + 1) // 2:
            return Strip.blank(width, ground)
        if self.has_colours:
            drawn = _blocks(pixels, row, ground)
        else:
            drawn = _shades(pixels, row, self.get_component_rich_style("half-blocks--shade"))
        return Strip([Segment(" " * left, ground), *drawn]).adjust_cell_length(width, ground)


def _pair(pixels: Pixels, row: int) -> tuple[bytes, bytes]:
    """The two rows of pixels in a row of cells; the second is empty below the last."""
    return pixels.row(2 * row), pixels.row(2 * row + 1)


def _blocks(pixels: Pixels, row: int, ground: Style) -> list[Segment]:
    """A row of half blocks, cells of the same colours together."""
    upper, lower = _pair(pixels, row)
    runs: list[tuple[bytes, bytes, int]] = []
    for at in range(0, len(upper), 3):
        above, below = _grained(upper[at : at + 3]), _grained(lower[at : at + 3])
        if runs and runs[-1][:2] == (above, below):
            runs[-1] = (above, below, runs[-1][2] + 1)
        else:
            runs.append((above, below, 1))
    segments = []
    for above, below, count in runs:
        if above == below:
            segments.append(Segment(" " * count, Style(bgcolor=_hex(above))))
        else:
            style = Style(color=_hex(above), bgcolor=_hex(below) if below else None)
            drawn = glyphs.current.upper_half * count
            segments.append(Segment(drawn, style if below else ground + style))
    return segments


def _grained(channels: bytes) -> bytes:
    return bytes(value // _GRAIN * _GRAIN for value in channels)


def _hex(channels: bytes) -> str:
    return f"#{channels.hex()}"


def _shades(pixels: Pixels, row: int, tone: Style) -> list[Segment]:
    """A row of shades; a pattern of thresholds gives flat parts the levels between two shades."""
    upper, lower = _pair(pixels, row)
    ramp = _ASCII_SHADES if glyphs.current.is_ascii else glyphs.current.shades
    drawn = []
    for x in range(pixels.width):
        both = (upper[3 * x : 3 * x + 3], lower[3 * x : 3 * x + 3])
        lights = [0.2126 * r + 0.7152 * g + 0.0722 * b for r, g, b in filter(None, both)]
        level = sum(lights) / len(lights) / 255 * (len(ramp) - 1)
        threshold = (_BAYER[row % 4 * 4 + x % 4] + 0.5) / 16
        drawn.append(ramp[min(int(level + threshold), len(ramp) - 1)])
    return [Segment("".join(drawn), tone)]
