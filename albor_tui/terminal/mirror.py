"""What a terminal shows and what it should show, and the fewest bytes from one to the other.

Textual sends a changed region with all its cells, a full style before each piece and a reset after
it. A mirror reads those frames, keeps the cells, and sends only those that differ, with the part of
a style that differs: a tenth of the bytes on a screen that follows a run, and the link can skip
frames, since the newest difference holds all that was left out.

Nothing but text and colours gets through a frame: every other sequence in it is dropped here, the
second wall behind `albor_core.run.values.clean`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from operator import ne

from rich.cells import get_character_cell_size

_TOKEN = re.compile(
    r"\x1b\[(?P<numbers>[\d;]*)(?P<verb>[Hm])|(?P<line>\n)|(?P<text>[^\x1b\n]+)"
    r"|\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b"
)
_OFF = {"1": "22", "2": "22", "3": "23", "4": "24", "21": "24", "5": "25", "6": "25"} | {
    "7": "27", "8": "28", "9": "29", "51": "54", "52": "54", "53": "55",
}  # fmt: skip
_FORE, _BACK = 0, 1
_GROUND = {
    **dict.fromkeys(map(str, (*range(30, 40), *range(90, 98))), _FORE),
    **dict.fromkeys(map(str, (*range(40, 50), *range(100, 110))), _BACK),
}  # of each code that begins a colour
EVERYTHING = 1 << 30  # more bytes than any screen needs
_NEAR = 4  # cells that are cheaper to send again than to jump over: a jump takes four bytes
_PIECE = 4  # bytes of a jump, a colour or a cell, at the mean
_MARKS = 4  # combining marks a cell keeps
_UNKNOWN = "?"  # a pen that no frame has


class Mirror:
    """Cells of a terminal: `draw` changes what it should show, `take` says how to get there."""

    def __init__(self, width: int = 0, height: int = 0) -> None:
        self.size = (-1, -1)
        self.resize(width, height)

    def resize(self, width: int, height: int) -> None:
        """Another size: everything is blank and nothing is known of the terminal."""
        if (width, height) == self.size:
            return
        self.size = (width, height)
        self._cells = [[" "] * width for _ in range(height)]
        self._pens = [[""] * width for _ in range(height)]
        self._cursor = (0, 0)
        self._next = 0  # the row that was left out
        self._is_short_turn = False
        self.forget()

    def forget(self) -> None:
        """The terminal may show anything: the next `take` sends every cell."""
        width, height = self.size
        self._told = [[""] * width for _ in range(height)]
        self._told_pens = [[_UNKNOWN] * width for _ in range(height)]
        self._pen = _UNKNOWN
        self._dirty = set(range(height))

    @property
    def is_current(self) -> bool:
        """Whether the terminal was told everything."""
        return not self._dirty

    @property
    def pen(self) -> str:
        """The style the terminal writes in now; empty is its own."""
        return self._pen

    def reset_pen(self) -> str:
        """The sequence that ends all colours, empty where there are none."""
        was, self._pen = self._pen, ""
        return "" if was == "" else "\x1b[0m"

    def draw(self, frame: str) -> None:
        """Put a frame of Textual's on the cells."""
        x = y = 0
        pen = ""
        for token in _TOKEN.finditer(frame):
            if (text := token["text"]) is not None:
                x = self._write(x, y, text, pen)
            elif token["verb"] == "m":
                pen = _joined(pen, token["numbers"])
            elif token["verb"] == "H":
                row, _, column = token["numbers"].partition(";")
                y, x = int(row or 1) - 1, int(column or 1) - 1
            elif token["line"]:
                x, y = 0, y + 1
        self._cursor = (x, y)

    def _write(self, x: int, y: int, text: str, pen: str) -> int:
        """Text at a place; returns the column behind it."""
        width, height = self.size
        if text.isspace():
            pen = _ground(pen)
        if not text.isascii() or not text.isprintable():
            return self._write_any(x, y, text, pen)
        end = x + len(text)
        if 0 <= y < height and x < width:
            shown = text[: width - x]
            self._cells[y][x : x + len(shown)] = shown
            self._pens[y][x : x + len(shown)] = [pen] * len(shown)
            self._dirty.add(y)
        return end

    def _write_any(self, x: int, y: int, text: str, pen: str) -> int:
        """Text whose characters may be wide, combining or no characters at all."""
        width, height = self.size
        if not 0 <= y < height:
            return x
        cells, pens = self._cells[y], self._pens[y]
        self._dirty.add(y)
        for character in text:
            size = 1
            if not character.isascii():
                size = get_character_cell_size(character)
            if _is_control(character):
                character, size = "?", 1
            if size == 0:
                if 0 < x <= width and 0 < len(cells[x - 1]) <= _MARKS:
                    cells[x - 1] += character
                continue
            if x + size <= width:
                cells[x], pens[x] = character, pen
                if size == 2:
                    cells[x + 1], pens[x + 1] = "", pen
            x += size
        return x

    def next_difference(self, *, most: int = EVERYTHING, charts: bool = True) -> str:
        """What brings the terminal nearer, about `most` bytes, or an empty text; the mirror takes
        it as shown. Without `charts`, cells that are or were braille keep waiting."""
        parts: list[str] = []
        room = most
        for y in sorted(self._dirty) if most >= EVERYTHING else self._by_turns():
            if room <= 0:
                self._next = y
                break
            drawn, is_whole = self._row(y, charts, room)
            if is_whole:
                self._dirty.discard(y)
            parts.append(drawn)
            room -= len(drawn.encode("utf-8", "replace"))
        found = "".join(parts)
        if found:
            column, row = self._cursor
            found += f"\x1b[{row + 1};{column + 1}H"
        return found

    def _by_turns(self) -> list[int]:
        """Rows in the order of what is left to say, so that a step does not wait for a log, and at
        every other time from where it broke off, so that a log comes too."""
        self._is_short_turn = not self._is_short_turn
        if self._is_short_turn:
            return sorted(self._dirty, key=self._to_say)
        return sorted(self._dirty, key=lambda y: (y < self._next, y))

    def _to_say(self, y: int) -> int:
        """Cells and styles of a row that the terminal does not show."""
        cells: int = sum(map(ne, self._cells[y], self._told[y]))
        styles: int = sum(map(ne, self._pens[y], self._told_pens[y]))
        return cells + styles

    def _row(self, y: int, charts: bool, room: int) -> tuple[str, bool]:
        """The difference of one row, and whether nothing of it waits."""
        cells, pens = self._cells[y], self._pens[y]
        told, told_pens = self._told[y], self._told_pens[y]
        if cells == told and pens == told_pens:
            return "", True
        if any(len(c) != 1 for c in cells) or any(len(c) > 1 for c in told):
            return self._whole_row(y), True
        parts: list[str] = []
        at = -1  # the terminal's column, -1 elsewhere
        is_whole = True
        for x, (character, pen) in enumerate(zip(cells, pens, strict=True)):
            if character == told[x] and pen == told_pens[x]:
                continue
            if not charts and (_is_braille(character) or _is_braille(told[x])):
                is_whole = False
                continue
            if len(parts) * _PIECE > room:
                return "".join(parts), False
            if at != x:
                parts.append(self._go(x, y, at))
            if pen != self._pen:
                parts.append(_change(self._pen, pen))
                self._pen = pen
            parts.append(character)
            told[x], told_pens[x] = character, pen
            at = x + 1
        return "".join(parts), is_whole

    def _go(self, x: int, y: int, at: int) -> str:
        """The way from column `at` of this row to column x."""
        if at < 0:
            return f"\x1b[{y + 1};{x + 1}H"
        gap = self._told[y][at:x]
        if x - at <= _NEAR and all(c.isascii() and c for c in gap):
            same = all(pen == self._pen for pen in self._told_pens[y][at:x])
            if same:
                return "".join(gap)
        return f"\x1b[{x - at}C"

    def _whole_row(self, y: int) -> str:
        """A row with characters that are not one cell wide: where those end, terminals disagree."""
        cells, pens = self._cells[y], self._pens[y]
        parts = [f"\x1b[{y + 1};1H"]
        for x, (character, pen) in enumerate(zip(cells, pens, strict=True)):
            is_half = character == ""
            if is_half and x and get_character_cell_size(cells[x - 1][:1] or " ") == 2:
                parts.append(f"\x1b[{y + 1};{x + 2}H")
                continue
            if pen != self._pen:
                parts.append(_change(self._pen, pen))
                self._pen = pen
            parts.append(character or " ")
            if len(character) > 1:
                parts.append(f"\x1b[{y + 1};{x + 2}H")
        self._told[y], self._told_pens[y] = list(cells), list(pens)
        return "".join(parts)


def _is_braille(character: str) -> bool:
    return "\u2800" <= character <= "\u28ff"


def _is_control(character: str) -> bool:
    return character < " " or "\x7f" <= character <= "\x9f"


@lru_cache(maxsize=4096)
def _joined(pen: str, numbers: str) -> str:
    if numbers in ("", "0"):
        return ""
    return f"{pen};{numbers}" if pen else numbers


@lru_cache(maxsize=4096)
def _parts(pen: str) -> tuple[frozenset[str], str, str]:
    """Attributes, foreground and background of a style."""
    attributes: set[str] = set()
    grounds = ["", ""]
    codes = iter(pen.split(";"))
    for code in codes:
        if code in _GROUND:
            grounds[_GROUND[code]] = _colour(code, codes)
        elif code:
            attributes.add(code)
    return frozenset(attributes), grounds[_FORE], grounds[_BACK]


def _colour(code: str, more: Iterator[str]) -> str:
    """A colour whole, with as many of the codes behind its first as belong to it; "" for the
    terminal's own.
    """
    if code in ("39", "49"):
        return ""
    if code not in ("38", "48"):
        return code
    kind = next(more, "5")
    rest = [next(more, "0") for _ in range(3 if kind == "2" else 1)]
    return ";".join([code, kind, *rest])


@lru_cache(maxsize=4096)
def _ground(pen: str) -> str:
    """All that can be seen of a style on a blank."""
    attributes, _, back = _parts(pen)
    return pen if attributes & {"4", "21", "7", "9", "53"} else back


@lru_cache(maxsize=16384)
def _change(old: str, new: str) -> str:
    """The shortest sequence from one style to another."""
    fresh = f"\x1b[0;{new}m" if new else "\x1b[0m"
    if old == _UNKNOWN or not new:
        return fresh
    (was, was_fore, was_back), (now, fore, back) = _parts(old), _parts(new)
    ended = {_OFF.get(code, "0") for code in was - now}
    if "0" in ended:
        return fresh
    begun = {code for code in now if code not in was or _OFF.get(code) in ended}
    codes = [*sorted(ended), *sorted(begun)]
    if fore != was_fore:
        codes.append(fore or "39")
    if back != was_back:
        codes.append(back or "49")
    short = f"\x1b[{';'.join(codes)}m" if codes else ""
    return min(short, fresh, key=len)
