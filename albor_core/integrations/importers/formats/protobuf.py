"""Protocol buffers as they lie in files: fields of one message, flat, and nothing allocated that
the bytes do not hold.

A message inside a message is its bytes until its fields are asked for: no recursion, so no
depth that a file could choose. Source: the encoding guide of Protocol Buffers.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_DOUBLE, _FLOAT = struct.Struct("<d"), struct.Struct("<f")
_MAX_VARINT_BYTES = 10
Value = int | bytes


class ProtobufError(ValueError):
    """Bytes that are not a message."""


def fields(message: bytes) -> Iterator[tuple[int, Value]]:
    """(field number, value) in order: varints as unsigned integers, all else as bytes.

    Raises ProtobufError where the message ends inside a field, or uses groups.
    """
    at, end = 0, len(message)
    while at < end:
        tag, at = _varint(message, at)
        number, kind = tag >> 3, tag & 7
        if number == 0:
            raise ProtobufError("field number 0")
        if kind == VARINT:
            value, at = _varint(message, at)
            yield number, value
            continue
        if kind == BYTES:
            size, at = _varint(message, at)
        elif kind == FIXED64:
            size = 8
        elif kind == FIXED32:
            size = 4
        else:
            raise ProtobufError(f"wire type {kind}")
        if size > end - at:
            raise ProtobufError("a field ends beyond its message")
        yield number, message[at : at + size]
        at += size


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    for position in range(at, min(at + _MAX_VARINT_BYTES, len(message))):
        byte = message[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, position + 1
        shift += 7
    raise ProtobufError("a varint without an end")


def packed_varints(block: bytes, limit: int) -> list[int]:
    """At most `limit` unsigned integers of a packed repeated field."""
    found: list[int] = []
    at = 0
    while at < len(block) and len(found) < limit:
        value, at = _varint(block, at)
        found.append(value)
    return found


def signed(value: Value) -> int:
    """An int32 or int64 field, two's complement in 64 bits. ProtobufError for another wire type."""
    if not isinstance(value, int):
        raise ProtobufError("bytes where a number belongs")
    return value - (1 << 64) if value >= 1 << 63 else value


def zigzag(value: Value) -> int:
    """A sint32 or sint64 field. ProtobufError for another wire type."""
    if not isinstance(value, int):
        raise ProtobufError("bytes where a number belongs")
    return (value >> 1) ^ -(value & 1)


def block(value: Value) -> bytes:
    """A field of bytes, text or a message. ProtobufError for another wire type."""
    if not isinstance(value, bytes):
        raise ProtobufError("a number where bytes belong")
    return value


def text(value: Value) -> str:
    """A field of text; invalid UTF-8 is replaced."""
    return block(value).decode("utf-8", "replace")


def double(value: Value) -> float:
    """A double. ProtobufError for another size."""
    return _unpack(_DOUBLE, value)


def single(value: Value) -> float:
    """A float, as the double of the same value. ProtobufError for another size."""
    return _unpack(_FLOAT, value)


def _unpack(form: struct.Struct, value: Value) -> float:
    raw = block(value)
    if len(raw) != form.size:
        raise ProtobufError("a number of another size")
    return float(form.unpack(raw)[0])


def seconds(timestamp: bytes) -> float:
    """google.protobuf.Timestamp as UTC seconds."""
    found = dict(fields(timestamp))
    return signed(found.get(1, 0)) + signed(found.get(2, 0)) / 1e9
