"""Lines over one axis as a file of their own: SVG on a light ground for a browser or a page, and
the same points as CSV. No script, no link, no font; texts are made visible, then escaped.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import takewhile
from unicodedata import east_asian_width

from albor_core.picture.chart import (
    BOTTOM,
    HEIGHT,
    LEFT,
    TOP,
    WIDTH,
    ReportCurve,
    axes,
    broken_shapes,
    curve_shapes,
    span,
    x_place,
    x_span,
)
from albor_core.picture.shapes import Shape, svg_text
from albor_core.run.values.clean import clean

Range = tuple[float, float]
INK, MUTED, GRID, ALARM, GROUND = "#16181d", "#676b75", "#dfd9cc", "#c02b2b", "#ffffff"
STROKE, BAND_OPACITY, FAINT_OPACITY = 1.6, 0.18, 0.35
_CHARS, _ROW, _HEAD, _SIDE = 80, 16, 30, 12
_KEY, _CHAR, _MOST_COLUMNS = 32, 6.4, 4  # of the legend: a line's key, a character, columns
_SPANS = ((120.0, 1.0, "seconds"), (7200.0, 60.0, "minutes"), (172800.0, 3600.0, "hours"))
_DAYS = (86400.0, "days")


@dataclass(frozen=True)
class PictureLine:
    """One line. Points that are not finite break it; `low` and `high`, if given, are a band around
    it. A faint one lies under another of its name: the points that this one smooths. A hidden one
    is in CSV alone.
    """

    name: str
    colour: str  # "#rrggbb"
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    dash: str = ""  # as stroke-dasharray has it
    is_faint: bool = False
    part: str = "points"  # what CSV calls it
    between: frozenset[int] = frozenset()  # of these, those that only break or cut the line
    about: str = ""  # what the legend says beside its name
    is_hidden: bool = False


@dataclass(frozen=True)
class PictureMark:
    """Something that happened at a place of the x axis; a grave one has a line up the chart."""

    x: float
    words: str
    is_grave: bool = False


@dataclass(frozen=True)
class LinePicture:
    """A chart to be written. Ranges are those of its axes in values, None: of what it has; `broken`
    are places where a value was not finite; `x_unit` is how much of x is one of `x_label`; `order`
    are names in the order of the legend, without it that of the lines.
    """

    title: str
    x_label: str
    lines: tuple[PictureLine, ...]
    is_log: bool = False
    x_range: Range | None = None
    y_range: Range | None = None
    broken: tuple[float, ...] = ()
    marks: tuple[PictureMark, ...] = ()
    note: str = ""
    x_unit: float = 1.0
    order: tuple[str, ...] = ()

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in units of the SVG."""
        rows = PictureLegend.for_picture(self).rows
        return WIDTH + _SIDE, _HEAD + HEIGHT + _ROW + _ROW * rows + _SIDE

    @property
    def named(self) -> tuple[PictureLine, ...]:
        """The lines that the legend names."""
        shown = [line for line in self.lines if not line.is_hidden]
        over = {line.name for line in shown if not line.is_faint}
        places = {name: place for place, name in enumerate(self.order)}
        found = [one for one in shown if not one.is_faint or one.name not in over]
        return tuple(sorted(found, key=lambda line: places.get(line.name, len(places))))


@dataclass(frozen=True)
class PictureLegend:
    """The names under a picture, in as many columns as make it no taller than wide while they can
    be told apart: longer ones are cut in the middle, or lose how all begin.
    """

    names: tuple[str, ...]
    columns: int = 1

    @classmethod
    def for_picture(cls, picture: LinePicture) -> PictureLegend:
        full = [
            clean("   ".join(part for part in (line.name, line.about) if part))
            for line in picture.named
        ]
        room = WIDTH - _HEAD - HEIGHT - _ROW
        most = min(-(-len(full) * _ROW // room), _MOST_COLUMNS)
        alike = (len({*characters}) == 1 for characters in zip(*full, strict=False))
        shared = sum(takewhile(bool, alike))
        ends = [f"\u2026{name[shared:]}" if shared > 1 else name for name in full]
        for columns in range(most, 1, -1):
            widest = int((WIDTH / columns - _KEY - _SIDE) / _CHAR)
            for form in (full, ends):
                names = tuple(_cut(name, widest) for name in form)
                if len(set(names)) == len(set(full)):
                    return cls(names, columns)
        return cls(tuple(clean(name, limit=_CHARS) for name in full))

    @property
    def rows(self) -> int:
        return -(-len(self.names) // self.columns)

    def place(self, index: int) -> tuple[float, float]:
        """Where the key of a name begins: column by column, each from the top."""
        column, row = divmod(index, max(self.rows, 1))
        left = LEFT if self.columns == 1 else _SIDE + WIDTH / self.columns * column
        return round(left, 1), float(_HEAD + HEIGHT + _ROW * (row + 2))


def _cells(text: str) -> int:
    return sum(1 + (east_asian_width(character) in "WF") for character in text)


def _cut(text: str, widest: int) -> str:
    """A text of so many cells, without its middle where it is longer."""
    if _cells(text) <= widest:
        return text
    head, tail = "", ""
    for first, last in zip(text, reversed(text), strict=True):
        if _cells(head + first + tail) >= widest:
            break
        head += first
        if _cells(head + last + tail) >= widest:
            break
        tail = last + tail
    return f"{head}\u2026{tail}"


@dataclass(frozen=True)
class LineStyle:
    """What the looks `c0`, `d1` of a picture's lines mean."""

    colours: tuple[str, ...]
    dashes: tuple[str, ...]

    @classmethod
    def for_lines(cls, lines: Sequence[PictureLine]) -> LineStyle:
        colours = dict.fromkeys(line.colour for line in lines)
        return cls(tuple(colours), tuple(dict.fromkeys(["", *(line.dash for line in lines)])))

    def looks(self, line: PictureLine) -> str:
        dash = self.dashes.index(line.dash)
        parts = [f"c{self.colours.index(line.colour)}", f"d{dash}" if dash else ""]
        return " ".join(part for part in (*parts, "faint" if line.is_faint else "") if part)

    def sheet(self) -> str:
        """The style sheet of the SVG."""
        colours = (
            f".c{i}{{stroke:{c};fill:{c}}}polyline.c{i}{{fill:none}}.band.c{i}{{stroke:none}}"
            for i, c in enumerate(self.colours)
        )
        dashes = (f".d{i}{{stroke-dasharray:{d}}}" for i, d in enumerate(self.dashes) if d)
        return "".join((_STYLE, *colours, *dashes))


_STYLE = (
    f"text{{font:11px system-ui,sans-serif;fill:{MUTED}}}text.head{{font-size:14px;fill:{INK}}}"
    f"text.name{{fill:{INK}}}text.broken{{fill:{ALARM};font-size:14px}}.grid{{stroke:{GRID}}}"
    f".mark{{stroke:{ALARM};stroke-dasharray:2 3}}.tick-mark{{stroke:{MUTED}}}"
    f"polyline{{fill:none;stroke-width:{STROKE}}}.band{{opacity:{BAND_OPACITY}}}"
    f".faint{{opacity:{FAINT_OPACITY}}}"
)


def time_unit(longest: float) -> tuple[float, str]:
    """How many seconds a unit of an axis of times has, and its name."""
    found = ((unit, word) for below, unit, word in _SPANS if longest < below)
    return next(found, _DAYS)


def shapes_in(picture: LinePicture) -> Iterator[Shape]:
    """All that is drawn, from the bottom to the top, but the ground."""
    style = LineStyle.for_lines(picture.lines)
    yield Shape("text", "head", ((LEFT, 20.0),), clean(picture.title, limit=_CHARS))
    yield from _moved(_chart(picture, style), _HEAD)
    caption = ", ".join(part for part in (picture.x_label, clean(picture.note)) if part)
    middle = (LEFT + WIDTH) / 2
    yield Shape("text", "", ((middle, _HEAD + HEIGHT + BOTTOM - 16),), caption, "middle")
    legend = PictureLegend.for_picture(picture)
    for i, line in enumerate(picture.named):
        x, y = legend.place(i)
        looks = style.looks(line)
        yield Shape("line", looks, ((x, y - 4), (x + 24, y - 4)))
        yield Shape("text", "name", ((x + _KEY, y),), legend.names[i])


def _moved(shapes: Iterator[Shape], down: int) -> Iterator[Shape]:
    for one in shapes:
        points = tuple((x, round(y + down, 1)) for x, y in one.points)
        yield Shape(one.kind, one.looks, points, one.text, one.anchor)


def _chart(picture: LinePicture, style: LineStyle) -> Iterator[Shape]:
    lines = [line for line in picture.lines if not line.is_hidden]
    curves = [_curve(line, picture) for line in lines]
    xs = [x for curve in curves for x in curve.steps]
    parts = [part for curve in curves for part in (curve.low, curve.mean, curve.high)]
    ys = [y for part in parts for y in part if math.isfinite(y)]
    if not xs or not ys:
        yield Shape("text", "", ((LEFT, 40.0),), "nothing finite to draw")
        return
    x_range, y_range = x_span(xs), span(ys)
    if picture.x_range is not None:
        x_range = span([end / picture.x_unit for end in picture.x_range])
    if picture.y_range is not None:
        low, high = picture.y_range
        y_range = span([_log(low), _log(high)] if picture.is_log else [low, high])
    yield from axes(x_range, y_range, is_log=picture.is_log)
    for mark in picture.marks:
        x = x_place(mark.x / picture.x_unit, x_range)
        foot = HEIGHT - BOTTOM
        top = TOP if mark.is_grave else foot - 6
        yield Shape("line", "mark" if mark.is_grave else "tick-mark", ((x, top), (x, foot)))
    for line, curve in zip(lines, curves, strict=True):
        yield from curve_shapes(curve, style.looks(line), x_range, y_range)
    yield from broken_shapes([place / picture.x_unit for place in picture.broken], x_range)


def _curve(line: PictureLine, picture: LinePicture) -> ReportCurve:
    """The line in units of the axes; what has no logarithm breaks it."""
    x = [place / picture.x_unit for place in line.x]
    y, low, high = line.y, line.low or line.y, line.high or line.y
    if picture.is_log:
        high = [_log(value) for value in high]
        low = [
            _log(below) if below > 0 else _log(value) for below, value in zip(low, y, strict=True)
        ]
        y = [_log(value) for value in y]
    return ReportCurve(line.name, x, low, y, high)


def _log(value: float) -> float:
    return math.log10(value) if 0 < value < math.inf else math.nan


def svg_file(picture: LinePicture) -> bytes:
    """The picture as an SVG file."""
    width, height = picture.size
    title = escape(clean(picture.title, limit=_CHARS))
    style = LineStyle.for_lines(picture.lines).sheet()
    page = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}"'
        f' viewBox="0 0 {width} {height}" role="img"><title>{title}</title>'
        f'<style>{style}</style><rect width="100%" height="100%" fill="{GROUND}"/>'
        f"{svg_text(shapes_in(picture))}</svg>\n"
    )
    return page.encode("utf-8", "replace")


def csv_file(picture: LinePicture) -> bytes:
    """The points of the picture: a row for each of each line, values in full."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(("line", "part", picture.x_label, "value", "low", "high"))
    for line in picture.lines:
        for i, (x, y) in enumerate(zip(line.x, line.y, strict=True)):
            if i in line.between:
                continue
            low, high = (part[i] if part else y for part in (line.low, line.high))
            row = (f"{x / picture.x_unit:.17g}", repr(y), repr(low), repr(high))
            writer.writerow((clean(line.name), line.part, *row))
    return file.getvalue().encode("utf-8", "replace")
