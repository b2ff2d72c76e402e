"""A screen as one small SVG that looks the same everywhere.

Lines, blocks and the dots of charts are drawn as shapes, which no font has to know; every run of
letters is held to its cells, whatever monospaced font the reader has.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from html import escape

from rich.cells import cell_len
from rich.color import Color
from rich.segment import Segment
from rich.style import Style
from rich.terminal_theme import DIMMED_MONOKAI
from textual.app import App

W, H, EDGE = 9, 18, 10  # pixels of a cell, and around the screen
BASE = 13.5  # of the letters, below the top of a cell
FONT = "ui-monospace,'Fira Code','DejaVu Sans Mono',Menlo,Consolas,monospace"

# Where strokes go from the middle of a cell, and how thick they are.
LINES = {
    "\u2502": ("ud", 1), "\u254e": ("ud", 1), "\u250c": ("rd", 1), "\u2510": ("ld", 1),
    "\u2514": ("ur", 1), "\u2518": ("ul", 1), "\u251c": ("udr", 1), "\u2524": ("udl", 1),
    "\u252c": ("lrd", 1), "\u2534": ("lru", 1), "\u253c": ("lrud", 1),
    "\u2578": ("l", 3), "\u2503": ("ud", 3),
}  # fmt: skip
ENDS = {"l": (0, H / 2), "r": (W, H / 2), "u": (W / 2, 0), "d": (W / 2, H)}
ARCS = {"\u256d": "rd", "\u256e": "ld", "\u2570": "ru", "\u256f": "lu"}
ALONG = {  # lines of many cells, drawn in one stroke
    "\u2500": 'stroke-width="1"',
    "\u2501": 'stroke-width="3"',
    "\u2508": 'stroke-width="1" stroke-dasharray="1 2"',
}
DOT = 2.5  # pixels
SHADES = {"\u2591": 0.25, "\u2592": 0.5, "\u2593": 0.75}
DOTS = ((0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (0, 3), (1, 3))  # of Braille, by bit


@dataclass(frozen=True)
class Cell:
    """One character, where it is, and how it is drawn."""

    text: str
    x: int
    y: int
    ink: str
    ground: str
    is_bold: bool
    is_underlined: bool
    alpha: float


def picture(app: App[object], title: str) -> str:
    """What `app` shows, as an SVG document."""
    width, height = app.size
    strips = app.screen._compositor.render_strips()
    cells = [cell for y, strip in enumerate(strips) for cell in _cells(strip, y)]
    ground = max({c.ground for c in cells}, key=[c.ground for c in cells].count)
    body = [*_grounds(cells, ground), *_shapes(cells), *_letters(cells)]
    full = width * W + 2 * EDGE, height * H + 2 * EDGE
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {full[0]} {full[1]}"'
            f' role="img" aria-label="{escape(title)}">',
            f'<rect width="{full[0]}" height="{full[1]}" rx="8" fill="{ground}"/>',
            f'<g transform="translate({EDGE} {EDGE})" font-family="{FONT}" font-size="15"'
            ' style="font-variant-ligatures:none"'
            ' xml:space="preserve">',
            *body,
            "</g></svg>\n",
        )
    )


def _cells(strip: Iterable[Segment], y: int) -> Iterator[Cell]:
    x = 0
    for segment in strip:
        if segment.control:
            continue
        style = segment.style or Style()
        ink, ground = _hex(style.color, True), _hex(style.bgcolor, False)
        if style.reverse:
            ink, ground = ground, ink
        bold, line = bool(style.bold), bool(style.underline)
        alpha = 0.6 if style.dim else 1.0
        for text in segment.text:
            if size := cell_len(text):
                yield Cell(text, x, y, ink, ground, bold, line, alpha)
                x += size


def _hex(color: Color | None, is_ink: bool) -> str:
    if color is None:
        color = Color.default()
    return str(color.get_truecolor(DIMMED_MONOKAI, foreground=is_ink).hex)


def _grounds(cells: list[Cell], common: str) -> Iterator[str]:
    for run in _runs([c for c in cells if c.ground != common], lambda c: (c.ground,)):
        first, count = run[0], run[-1].x - run[0].x + cell_len(run[-1].text)
        yield (
            f'<rect x="{first.x * W}" y="{first.y * H}" width="{count * W}" height="{H}"'
            f' fill="{first.ground}"/>'
        )


def _shapes(cells: list[Cell]) -> Iterator[str]:
    """Filled parts, dots and lines, each colour and thickness in one path."""
    fills: dict[str, list[str]] = defaultdict(list)
    strokes: dict[str, list[str]] = defaultdict(list)
    for cell in cells:
        if found := _block(cell):
            fills[f'fill="{cell.ink}"{_faint(cell.alpha * SHADES.get(cell.text, 1.0))}'].append(
                found
            )
        looks = f'stroke="{cell.ink}"{_faint(cell.alpha)} stroke-width='
        if found := _dots(cell):
            strokes[f'{looks}"{DOT}"'].append(found)
        elif cell.text not in ALONG:
            drawn, thick = _strokes(cell)
            if drawn:
                strokes[f'{looks}"{thick}"'].append(drawn)
    for run in _runs([c for c in cells if c.text in ALONG], lambda c: (c.text, c.ink, c.alpha)):
        first, more = run[0], ALONG[run[0].text]
        looks = f'stroke="{first.ink}"{_faint(first.alpha)} {more}'
        strokes[looks].append(f"M{first.x * W} {first.y * H + H // 2}h{W * len(run)}")
    for looks, parts in fills.items():
        yield f'<path {looks} d="{"".join(parts)}"/>'
    for looks, parts in strokes.items():
        yield f'<path fill="none" {looks} d="{"".join(parts)}"/>'


def _faint(alpha: float) -> str:
    return "" if alpha == 1 else f' opacity="{alpha:g}"'


def _strokes(cell: Cell) -> tuple[str, int]:
    """The path of a line character, and its thickness; "" for another."""
    x, y, text = cell.x * W, cell.y * H, cell.text
    middle = f"{x + W / 2:g} {y + H / 2:g}"
    if text in ARCS:
        (ax, ay), (bx, by) = (ENDS[end] for end in ARCS[text])
        return f"M{x + ax:g} {y + ay:g}Q{middle} {x + bx:g} {y + by:g}", 1
    if text not in LINES:
        return "", 0
    ways, thick = LINES[text]
    if ways == "ud":
        return f"M{x + W / 2:g} {y}v{H}", thick
    ends = (ENDS[way] for way in ways)
    return "".join(f"M{middle}L{x + a:g} {y + b:g}" for a, b in ends), thick


def _dots(cell: Cell) -> str:
    """The dots of a Braille character, each a short stroke as thick as it is long."""
    code = ord(cell.text[0]) - 0x2800
    if not 0 <= code <= 0xFF:
        return ""
    x, y = cell.x * W + 1, cell.y * H + 2.25
    places = [place for bit, place in enumerate(DOTS) if code >> bit & 1]
    return "".join(f"M{x + column * 4.5:g} {y + row * 4.5:g}h{DOT}" for column, row in places)


def _block(cell: Cell) -> str:
    """The filled part of a block or shade character."""
    x, y, code = cell.x * W, cell.y * H, ord(cell.text[0])
    if 0x2581 <= code <= 0x2588:
        tall = H * (code - 0x2580) / 8
        return f"M{x} {y + H - tall:g}h{W}v{tall:g}h-{W}z"
    if code == 0x258C:
        return f"M{x} {y}h{W / 2}v{H}h-{W / 2}z"
    return f"M{x} {y}h{W}v{H}h-{W}z" if cell.text in SHADES else ""


def _is_drawn(text: str) -> bool:
    code = ord(text[0])
    return (
        text in LINES
        or text in ARCS
        or text in ALONG
        or text in SHADES
        or 0x2800 <= code <= 0x28FF
        or 0x2581 <= code <= 0x2588
        or code == 0x258C
    )


def _letters(cells: list[Cell]) -> Iterator[str]:
    seen = [c for c in cells if c.text != " " and not _is_drawn(c.text)]
    for run in _runs(seen, lambda c: (c.ink, c.is_bold, c.is_underlined, c.alpha)):
        first = run[0]
        words = "".join(cell.text for cell in run)
        wide = sum(cell_len(cell.text) for cell in run) * W
        looks = ' font-weight="bold"' * first.is_bold
        looks += ' text-decoration="underline"' * first.is_underlined
        yield (
            f'<text x="{first.x * W}" y="{first.y * H + BASE:g}" textLength="{wide}"'
            f' lengthAdjust="spacingAndGlyphs" fill="{first.ink}"{looks}{_faint(first.alpha)}>'
            f"{escape(words)}</text>"
        )


def _runs(cells: list[Cell], key: object) -> Iterator[list[Cell]]:
    """Neighbours on a line that look alike by `key`."""
    run: list[Cell] = []
    for cell in cells:
        if run:
            last = run[-1]
            is_next = cell.y == last.y and cell.x == last.x + cell_len(last.text)
            if not is_next or key(cell) != key(last):  # type: ignore[operator]
                yield run
                run = []
        run.append(cell)
    if run:
        yield run
