"""The head of a safetensors file: which tensors it holds, of what shape. No torch needed."""

from __future__ import annotations

import json
import math
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

MAX_HEADER_BYTES = 16 << 20
MAX_TENSORS = 65_536
FLOATS = frozenset({"F64", "F32", "F16", "BF16"})
_BYTES = {
    **dict.fromkeys(("F64", "I64", "U64"), 8),
    **dict.fromkeys(("F32", "I32", "U32"), 4),
    **dict.fromkeys(("F16", "BF16", "I16", "U16"), 2),
    **dict.fromkeys(("U8", "I8", "BOOL", "F8_E4M3", "F8_E5M2"), 1),
}


class DamagedFileError(Exception):
    """A file is not what its writer left; the message says how."""


def read_header(path: Path) -> dict[str, Any]:
    """{tensor: its dtype, shape, data_offsets}.

    Raises OSError, and DamagedFileError unless the header describes exactly the bytes that follow
    it, before anything of the size that it claims is allocated.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(fd, "rb") as file:
        about = os.fstat(file.fileno())
        if not stat.S_ISREG(about.st_mode):
            raise DamagedFileError(f"{path.name}: not a regular file")
        head = file.read(8)
        length = int.from_bytes(head, "little")
        if len(head) < 8 or length > min(MAX_HEADER_BYTES, about.st_size - 8):
            raise DamagedFileError(
                f"{path.name}: header of {length} bytes in a file of {about.st_size}"
            )
        try:
            header = json.loads(file.read(length), object_pairs_hook=_once)
        except (ValueError, RecursionError) as error:
            raise DamagedFileError(f"{path.name}: header is not JSON") from error
    if not isinstance(header, dict) or len(header) > MAX_TENSORS:
        raise DamagedFileError(f"{path.name}: header is not a table of tensors")
    header.pop("__metadata__", None)
    _check_layout(path.name, header, about.st_size - 8 - length)
    return header


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A mapping without duplicate names: readers may differ in which of two entries they use.
    Raises ValueError."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name stands there twice")
    return found


def _check_layout(name: str, header: Mapping[str, Any], room: int) -> None:
    try:
        entries = sorted(
            (*map(int, entry["data_offsets"]), _span(entry)) for entry in header.values()
        )
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise DamagedFileError(f"{name}: a tensor's entry is malformed") from error
    expected = 0
    for begin, end, span in entries:
        if begin != expected or end - begin != span:
            raise DamagedFileError(f"{name}: tensors overlap or leave a hole at byte {expected}")
        expected = end
    if expected != room:
        raise DamagedFileError(f"{name}: {room} bytes of values where the header says {expected}")


def _span(entry: Mapping[str, Any]) -> int:
    shape = entry["shape"]
    if not all(type(extent) is int and extent >= 0 for extent in shape):
        raise ValueError("an extent is not a whole number from 0 on")
    return int(math.prod(shape)) * _BYTES[entry["dtype"]]
