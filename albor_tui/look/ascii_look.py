"""What is still beyond ASCII in an ASCII look: Textual's own borders, names, log lines.

Every character keeps its width, so nothing moves.
"""

from __future__ import annotations

from functools import lru_cache

from rich.cells import get_character_cell_size
from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter

_BOX, _BLOCKS = range(0x2500, 0x2580), range(0x2580, 0x25A0)
_FLAT = frozenset("\u2500\u2501\u2504\u2505\u2508\u2509\u254c\u254d\u2550\u2581\u2594\u2580\u2584")
_UPRIGHT = frozenset(
    "\u2502\u2503\u2506\u2507\u250a\u250b\u254e\u254f\u2551"
    "\u2589\u258a\u258b\u258c\u258d\u258e\u258f\u2590\u2595"
)
_ELLIPSIS = "\u2026"


class AsciiOnly(LineFilter):
    """Lines as `-`, `|` and `+`; what has no likeness is a `?` for each of its cells."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [
            one if one.control or one.text.isascii() else Segment(plain(one.text), one.style)
            for one in segments
        ]


@lru_cache(4096)
def plain(text: str) -> str:
    """`text` in ASCII, as wide as it was."""
    return "".join(c if c.isascii() else _likeness(c) for c in text)


def _likeness(character: str) -> str:
    if character in _FLAT:
        return "-"
    if character in _UPRIGHT:
        return "|"
    if ord(character) in _BOX:
        return "+"
    if ord(character) in _BLOCKS:
        return "#"
    return "~" if character == _ELLIPSIS else "?" * get_character_cell_size(character)
