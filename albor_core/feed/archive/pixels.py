"""Decodes a picture of a run to the few pixels that a screen of cells has room for.

The bytes may be anything: only common formats are tried, the number of pixels is read before the
first of them is decoded, and a picture that would need too much memory is refused. Belongs into a
thread: Pillow is loaded with the first picture.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING

from albor_core.run.errors import AlborError, DataError
from albor_core.run.files.media_format import picture_format

if TYPE_CHECKING:
    from PIL.Image import Image

MOST_PIXELS = 40_000_000  # decoded: 160 MB of memory for a moment
INSTALL = "pip install pillow"
_FORMATS = ("PNG", "JPEG", "GIF", "WEBP", "BMP")
_LARGEST_SCALE = 16  # a pixel of a tiny picture is at most so many wide
_MIXED = ("L", "LA", "RGB", "RGBA", "CMYK", "YCbCr")
_DEEP = ("I;16", "I;16L", "I;16B", "I;16N", "I", "F")


@dataclass(frozen=True)
class Pixels:
    """A picture as it is drawn: `rgb` has three bytes for each pixel, row after row. `source` is
    the size of the whole picture, `frames` how many it has, of which this is the first.
    """

    width: int
    height: int
    rgb: bytes
    source: tuple[int, int]
    frames: int = 1

    def row(self, y: int) -> bytes:
        """The bytes of one row."""
        return self.rgb[y * self.width * 3 : (y + 1) * self.width * 3]


def decode(content: bytes, room: tuple[int, int], ground: tuple[int, int, int]) -> Pixels:
    """The picture as large as fits into `room` (width, height), what is transparent over `ground`.

    Raises DataError for what is not a whole picture or is too large, AlborError without Pillow.
    """
    try:
        from PIL import Image  # noqa: PLC0415  30 ms and 10 MB, for who looks at pictures
    except ImportError as error:
        raise AlborError("Pillow is not installed, which decodes pictures", hint=INSTALL) from error
    width, height = picture_format(content)[1:]
    if width * height > MOST_PIXELS:
        raise DataError(
            f"{width:,} x {height:,} pixels are more than is decoded here ({MOST_PIXELS:,})"
        )
    try:
        with Image.open(BytesIO(content), formats=_FORMATS) as picture:
            width, height = picture.size
            size = fitting((width, height), room)
            picture.draft("RGB", size)  # a JPEG is decoded no finer than it is drawn
            drawn = _flat(picture, size, ground)
            frames = int(getattr(picture, "n_frames", 1))
    except MemoryError as error:
        raise DataError("it needs more memory than there is") from error
    except Exception as error:  # of a decoder that was given anything
        raise DataError("it is damaged, or not a picture") from error
    return Pixels(*size, drawn, (width, height), frames)


def fitting(size: tuple[int, int], room: tuple[int, int]) -> tuple[int, int]:
    """The size that fills the room and keeps the shape; small pictures grow by a whole factor."""
    scale = min(wide / own for wide, own in zip(room, size, strict=True))
    if scale > 1:
        scale = min(math.floor(scale), _LARGEST_SCALE)
    width, height = (max(1, round(own * scale)) for own in size)
    return min(width, max(1, room[0])), min(height, max(1, room[1]))


def _flat(picture: Image, size: tuple[int, int], ground: tuple[int, int, int]) -> bytes:
    """The scaled picture without transparency, as RGB bytes."""
    from PIL import Image  # noqa: PLC0415

    is_larger = size[0] > picture.width
    if picture.mode in _DEEP:
        picture = _eight_bits(picture)
    elif picture.mode not in _MIXED:  # the mean of two places in a palette is not a colour
        picture = picture.convert("RGBA")
    how = Image.Resampling.NEAREST if is_larger else Image.Resampling.BOX
    scaled = picture.resize(size, how).convert("RGBA")
    under = Image.new("RGBA", size, (*ground, 255))
    return Image.alpha_composite(under, scaled).convert("RGB").tobytes()


def _eight_bits(picture: Image) -> Image:
    """Greys of more than eight bits, stretched from their lowest to their highest."""
    floats = picture.convert("F")
    low, high = (float(end) for end in floats.getextrema())  # type: ignore[arg-type]
    scale = 255.0 / (high - low) if math.isfinite(high - low) and high > low else 0.0
    return floats.point(lambda value: value * scale - low * scale).convert("L")
