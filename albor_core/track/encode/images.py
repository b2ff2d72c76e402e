"""Pictures as files: what they are is read from their first bytes, arrays become PNG.

No picture encoded elsewhere is decoded here, so none can be a bomb: its size in
pixels is read from its head and held to the limit, and its bytes are kept as they are.
"""

from __future__ import annotations

import io
import os
import struct
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from albor_core.run.files.media_format import PNG, picture_format
from albor_core.run.rundir import NotPlainError, open_plain
from albor_core.track.encode.arrays import all_finite, as_array, is_array
from albor_core.track.encode.medium import Limits, Medium, RefusedError

_LEVEL = 3  # of zlib: half the time of 6 for a tenth more bytes
_COLOURS = {1: 0, 2: 4, 3: 2, 4: 6}  # channels -> colour type of PNG
_MODES = ("1", "L", "LA", "P", "RGB", "RGBA", "I;16")  # of PIL, which PNG has
_DPI = 100.0


def image_of(value: Any, limits: Limits) -> Medium:
    """A picture of any of the forms that `Run.image` takes. Raises RefusedError, OSError."""
    if isinstance(value, bytes | bytearray | memoryview):
        return encoded(bytes(value), limits)
    if isinstance(value, str | os.PathLike):
        return encoded(read_bounded(value, limits.max_bytes), limits)
    if callable(getattr(value, "save", None)) and hasattr(value, "mode") and hasattr(value, "size"):
        return _of_pil(value, limits)
    if is_array(value):
        return _of_array(as_array(value), limits)
    raise RefusedError("media_unreadable", f"{type(value).__name__!r} is not a picture")


def read_bounded(path: str | os.PathLike[str], most: int) -> bytes:
    """A plain file of at most `most` bytes; the path may be a link to it, as in model caches, and
    no FIFO or device is waited for. Raises RefusedError, OSError.
    """
    try:
        with open_plain(Path(path).expanduser().resolve(strict=True)) as file:
            size = os.fstat(file.fileno()).st_size
            if size > most:
                raise RefusedError.too_large(size, most)
            content = file.read(most + 1)
    except (NotPlainError, RuntimeError, ValueError) as error:  # links in a ring; a NUL in a name
        why = getattr(error, "strerror", None) or str(error)
        raise RefusedError("media_unreadable", f"{os.fspath(path)!r}: {why}") from error
    except OSError as error:
        raise RefusedError("media_unreadable", f"{os.fspath(path)!r}: {error.strerror}") from error
    if len(content) > most:  # it grew, or says that it has no size
        raise RefusedError.too_large(len(content), most)
    return content


def encoded(content: bytes, limits: Limits) -> Medium:
    """A picture that is one already. Raises RefusedError."""
    form, width, height = picture_format(content)
    if not form:
        raise RefusedError("media_unreadable", "not a PNG, JPEG, GIF, WebP, BMP or SVG")
    _bound(width, height, limits)
    return Medium(form, content, {"width": width, "height": height} if width else {})


def _bound(width: int, height: int, limits: Limits) -> None:
    if width * height > limits.max_pixels:
        raise RefusedError(
            "media_too_large",
            f"{width:,} x {height:,} pixels, and {limits.max_pixels:,} in all are allowed",
        )


def _of_pil(value: Any, limits: Limits) -> Medium:
    width, height = map(int, value.size)
    _bound(width, height, limits)  # before the first pixel of a lazy one is decoded
    picture = value.copy()

    def write() -> bytes:
        shown = picture if picture.mode in _MODES else picture.convert("RGB")
        file = io.BytesIO()
        shown.save(file, format="PNG")
        return file.getvalue()

    return Medium("png", write, {"width": width, "height": height}, held=width * height * 4)


def _of_array(array: Any, limits: Limits) -> Medium:
    while array.ndim > 3 and array.shape[0] == 1:
        array = array[0]
    if array.ndim == 3 and array.shape[2] > 4 and array.shape[0] in _COLOURS:
        array = array.transpose(1, 2, 0)  # as torch has them
    if array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[2] not in _COLOURS):
        shape = " x ".join(map(str, array.shape)) or "no dimension"
        raise RefusedError("media_unreadable", f"an array of {shape} is not one picture")
    height, width = array.shape[:2]
    if not height or not width:
        raise RefusedError("media_unreadable", "an array without a pixel")
    _bound(width, height, limits)
    pixels = _bytes_of(array)
    channels = 1 if pixels.ndim == 2 else pixels.shape[2]
    meta = {"width": width, "height": height}
    return Medium("png", _png_writer(pixels, channels), meta, held=pixels.size)


def _bytes_of(array: Any) -> Any:
    """A copy of an array as 0 to 255: truths and floats of 0 to 1 are stretched, whole numbers stay
    as they are. Raises RefusedError for what lies beyond.
    """
    numpy = sys.modules["numpy"]
    if array.dtype == numpy.uint8:
        return numpy.array(array, order="C", copy=True)
    if array.dtype.kind == "b":
        return numpy.ascontiguousarray(array.astype(numpy.uint8) * numpy.uint8(255))
    if not all_finite(array):
        raise RefusedError("media_not_finite", "NaN or Inf among its pixels")
    low, high = array.min(), array.max()
    if low < 0 or high > 255:
        raise RefusedError(
            "media_unreadable", f"pixels from {low:g} to {high:g}: 0 to 1 or 0 to 255 are shown"
        )
    if array.dtype.kind == "f" and high <= 1:
        array = array.astype(numpy.float32) * numpy.float32(255)
        array = numpy.rint(array)
    return numpy.ascontiguousarray(array.astype(numpy.uint8))


def _png_writer(pixels: Any, channels: int) -> Callable[[], bytes]:
    """Each row as what it adds to the one above, which packs better: filter 2 of PNG."""

    def write() -> bytes:
        numpy = sys.modules["numpy"]
        height, width = pixels.shape[:2]
        rows = pixels.reshape(height, width * channels)
        lines = numpy.empty((height, 1 + width * channels), dtype=numpy.uint8)
        lines[:, 0] = 2
        lines[:1, 1:] = rows[:1]
        numpy.subtract(rows[1:], rows[:-1], out=lines[1:, 1:])
        head = struct.pack(">IIBBBBB", width, height, 8, _COLOURS[channels], 0, 0, 0)
        body = zlib.compress(lines, _LEVEL)
        return PNG + _chunk(b"IHDR", head) + _chunk(b"IDAT", body) + _chunk(b"IEND", b"")

    return write


def _chunk(kind: bytes, body: bytes) -> bytes:
    check = zlib.crc32(body, zlib.crc32(kind))
    return b"".join((len(body).to_bytes(4, "big"), kind, body, check.to_bytes(4, "big")))


def figure_of(value: Any, limits: Limits) -> Medium:
    """A figure of matplotlib as PNG, drawn here and now: nothing else may draw beside the thread
    that the program draws in. Raises RefusedError, and what drawing raises.
    """
    if callable(getattr(value, "gcf", None)):  # pyplot
        value = value.gcf()
    if not callable(getattr(value, "savefig", None)) and hasattr(value, "figure"):
        value = value.figure  # axes, a grid of seaborn
    if not callable(getattr(value, "savefig", None)):
        raise RefusedError("media_unreadable", f"{type(value).__name__!r} is not a figure")
    size = getattr(value, "get_size_inches", None)
    if callable(size):
        dpi = float(getattr(value, "dpi", _DPI))
        width, height = (int(float(side) * dpi) for side in size())
        _bound(width, height, limits)
    file = io.BytesIO()
    value.savefig(file, format="png")
    return encoded(file.getvalue(), limits)
