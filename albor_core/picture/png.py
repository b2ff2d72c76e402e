"""A line picture as PNG, drawn by Pillow: lines at four times their size and made smaller, so that
they are smooth; texts at their own size.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from io import BytesIO
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from albor_core.picture.line_picture import (
    ALARM,
    BAND_OPACITY,
    FAINT_OPACITY,
    GRID,
    GROUND,
    INK,
    MUTED,
    STROKE,
    LinePicture,
    LineStyle,
    shapes_in,
)
from albor_core.picture.shapes import Shape
from albor_core.run.errors import AlborError

if TYPE_CHECKING:
    from PIL.Image import Image

SCALE = 2.5  # pixels for a unit of the SVG
_FINER = 2  # of lines, before they are made smaller
_FONTS = {  # the first that a machine has; without one a font without these signs
    False: ("DejaVuSans.ttf", "NotoSans-Regular.ttf", "LiberationSans-Regular.ttf"),
    True: ("NotoSansCJK-Regular.ttc", "NotoSansCJKsc-Regular.otf", "wqy-microhei.ttc"),
}
_FIRST_EAST_ASIAN = "\u2e80"
_TEXT = {"head": (14, INK), "name": (11, INK), "broken": (14, ALARM)}
_STRAIGHT = {"grid": (GRID, ""), "mark": (ALARM, "2 3"), "tick-mark": (MUTED, "")}


def png_file(picture: LinePicture) -> bytes:
    """The picture as a PNG file. Raises AlborError without Pillow."""
    try:
        from PIL import Image, ImageDraw  # noqa: PLC0415  30 ms, for who wants pixels
    except ImportError as error:
        raise AlborError(
            "cannot write PNG: Pillow is not installed", hint="pip install pillow, or --out x.svg"
        ) from error
    style = LineStyle.for_lines(picture.lines)
    width, height = (round(side * SCALE) for side in picture.size)
    shapes = [*shapes_in(picture)]
    drawn = Image.new("RGB", (width * _FINER, height * _FINER), GROUND)
    for one in shapes:
        if one.kind != "text":
            _draw(drawn, one, style)
    page = drawn.resize((width, height), Image.Resampling.BOX)
    pen = ImageDraw.Draw(page)
    anchors = {"": "ls", "middle": "ms", "end": "rs"}
    for one in shapes:
        if one.kind == "text":
            size, colour = _TEXT.get(one.looks, (11, MUTED))
            font = _font(size * SCALE, any(c >= _FIRST_EAST_ASIAN for c in one.text))
            ((x, y),) = one.points
            pen.text((x * SCALE, y * SCALE), one.text, colour, font, anchors[one.anchor])
    file = BytesIO()
    page.save(file, "PNG", optimize=False, compress_level=6)
    return file.getvalue()


def _draw(page: Image, shape: Shape, style: LineStyle) -> None:
    from PIL import Image, ImageDraw  # noqa: PLC0415

    scale = SCALE * _FINER
    points = [(x * scale, y * scale) for x, y in shape.points]
    if shape.looks in _STRAIGHT:
        colour, dash = _STRAIGHT[shape.looks]
        _line(ImageDraw.Draw(page), points, colour, dash, scale)
        return
    looks = shape.looks.split()
    colour = next(style.colours[int(name[1:])] for name in looks if name[0] == "c")
    dash = next((style.dashes[int(name[1:])] for name in looks if name[0] == "d"), "")
    opacity = BAND_OPACITY if "band" in looks else 1.0
    opacity *= FAINT_OPACITY if "faint" in looks else 1.0
    if opacity == 1.0:
        _fill(ImageDraw.Draw(page), shape.kind, points, colour, dash)
        return
    mask = Image.new("L", page.size, 0)
    _fill(ImageDraw.Draw(mask), shape.kind, points, round(255 * opacity), dash)
    page.paste(colour, (0, 0, *page.size), mask)


def _fill(
    pen: Any, kind: str, points: Sequence[tuple[float, float]], colour: str | int, dash: str
) -> None:
    scale = SCALE * _FINER
    if kind == "area":
        pen.polygon(points, colour)
    elif kind == "dot":
        pen.circle(points[0], 2 * scale, colour)
    else:
        _line(pen, points, colour, dash, STROKE * scale)


def _line(
    pen: Any, points: Sequence[tuple[float, float]], colour: str | int, dash: str, width: float
) -> None:
    scale = SCALE * _FINER
    for part in _dashed(points, [float(one) * scale for one in dash.split()]):
        pen.line(part, colour, max(1, round(width)), joint="curve")


def _dashed(
    points: Sequence[tuple[float, float]], pattern: Sequence[float]
) -> Iterator[list[tuple[float, float]]]:
    """The parts of a line that are drawn, by lengths of drawn and left out parts in turn."""
    if not pattern:
        yield list(points)
        return
    at, left, is_drawn = 0, pattern[0], True
    part = [points[0]]
    for (x0, y0), (x1, y1) in pairwise(points):
        length = math.hypot(x1 - x0, y1 - y0)
        gone = 0.0
        while length - gone > left:
            gone += left
            place = (x0 + (x1 - x0) * gone / length, y0 + (y1 - y0) * gone / length)
            if is_drawn:
                yield [*part, place]
            part, is_drawn = [place], not is_drawn
            at = (at + 1) % len(pattern)
            left = pattern[at]
        left -= length - gone
        part.append((x1, y1))
    if is_drawn and len(part) > 1:
        yield part


@lru_cache(maxsize=8)
def _font(size: float, is_east_asian: bool) -> Any:
    from PIL import ImageFont  # noqa: PLC0415

    for name in _FONTS[is_east_asian]:
        try:
            return ImageFont.truetype(name, size)
        except OSError:
            continue
    return ImageFont.load_default(size)
