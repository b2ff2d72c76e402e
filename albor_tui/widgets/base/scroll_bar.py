"""Scroll bars in the look of the terminal: their ends are parts of a cell where there are such."""

from __future__ import annotations

from typing import Any

from rich.segment import Segments
from textual.scrollbar import ScrollBarRender

from albor_tui.look import glyphs


class WholeCells(ScrollBarRender):
    """A bar of nothing but colour."""

    VERTICAL_BARS = [" "]
    HORIZONTAL_BARS = [" "]


class FittingBar(ScrollBarRender):
    """Textual's own bar, or whole cells: the look is chosen after classes are made."""

    @classmethod
    def render_bar(cls, *args: Any, **options: Any) -> Segments:
        look = WholeCells if glyphs.current.is_ascii else ScrollBarRender
        return look.render_bar(*args, **options)
