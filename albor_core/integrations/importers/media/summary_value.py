"""Media in a Summary.Value: the messages of the first years, and tensors with a plugin's name.

Source: tensorflow/core/framework/summary.proto and tensor.proto; tensorboard/plugins/*/summary_v2.
"""

from __future__ import annotations

import struct
from typing import Any

from albor_core.integrations.importers.foreign import ForeignMedium
from albor_core.integrations.importers.formats.protobuf import ProtobufError, block, double, fields
from albor_core.integrations.importers.media.kept import At, histogram, picture, sound, words

_DOUBLE, _FLOAT, _STRING = 2, 1, 7  # DataType
_MOST = 4096  # texts or bins of one value


def media_of(at: At, tag: str, plugin: str, value: dict[int, Any]) -> list[ForeignMedium | None]:
    """The media of one value, None for each that cannot be had; nothing where it holds no medium.
    Raises ProtobufError.
    """
    if 4 in value:
        return [picture(at, tag, _encoded(value[4]))]
    if 6 in value:
        return [sound(at, tag, _encoded(value[6]))]
    if 5 in value:
        return [_buckets(at, tag, block(value[5]))]
    if 8 not in value:
        return []
    tensor = block(value[8])
    match plugin:
        case "images":  # width, height, and pictures
            return [picture(at, tag, one) for one in _strings(tensor)[2:]] or [None]
        case "audio":  # sound and label in turns
            return [sound(at, tag, one) for one in _strings(tensor)[::2]] or [None]
        case "text":
            said = [one.decode("utf-8", "replace") for one in _strings(tensor)]
            return [words(at, tag, "\n".join(said))]
        case "histograms":
            return [_rows(at, tag, tensor)]
    return []


def _encoded(message: Any) -> bytes:
    return block(dict(fields(block(message))).get(4, b""))


def _strings(tensor: bytes) -> list[bytes]:
    found = list(fields(tensor))
    if (1, _STRING) not in found:
        return []
    return [block(value) for number, value in found if number == 8][:_MOST]


def _numbers(packed: bytes, form: str = "d") -> list[float]:
    size = struct.calcsize(form)
    if len(packed) % size or len(packed) // size > 3 * _MOST:
        raise ProtobufError("numbers that are cut")
    return list(struct.unpack(f"<{len(packed) // size}{form}", packed))


def _buckets(at: At, tag: str, message: bytes) -> ForeignMedium | None:
    """Limits to the right of each bucket; the outermost may stand at the end of all numbers."""
    limits: list[float] = []
    counts: list[float] = []
    low = high = 0.0
    for number, value in fields(message):
        if number == 1:
            low = double(value)
        elif number == 2:
            high = double(value)
        elif number in (6, 7):
            (limits if number == 6 else counts).extend(_numbers(block(value)))
    if not limits or len(limits) != len(counts) or not low <= high:
        return None
    first, last = _filled(counts)
    limits, counts = limits[first:last], counts[first:last]
    edges = [low, *(min(max(limit, low), high) for limit in limits)]
    return histogram(at, tag, counts, edges)


def _filled(counts: list[float]) -> tuple[int, int]:
    """The first and the end index of non-empty buckets: the peer has empty ones outside."""
    filled = [place for place, count in enumerate(counts) if count]
    return (filled[0], filled[-1] + 1) if filled else (0, len(counts))


def _rows(at: At, tag: str, tensor: bytes) -> ForeignMedium | None:
    """(left, right, count) for each bucket."""
    found = dict(fields(tensor))
    kind = found.get(1)
    form = {_DOUBLE: "d", _FLOAT: "f"}.get(kind) if isinstance(kind, int) else None
    if form is None:
        return None
    content = block(found.get(4, b"")) or block(found.get(6 if form == "d" else 5, b""))
    numbers = _numbers(content, form)
    if not numbers or len(numbers) % 3:
        return None
    return histogram(at, tag, numbers[2::3], [numbers[0], *numbers[1::3]])
