"""Tensors on disk as numbers, a piece at a time, by numpy alone: no torch, no whole tensor."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from albor_core.run.files.weight_files import Held, raw

BLOCK = 4096  # numbers of a sample that lie side by side
_PLAIN = {"F64": "<f8", "F32": "<f4", "F16": "<f2"}


def pieces(held: Held) -> Iterator[NDArray[np.float64]]:
    """The elements of a tensor in order, flat, in fp64. Raises OSError; ValueError if it holds no
    floats."""
    _check_floats(held)
    for piece in raw(held):
        yield _numbers(piece, held.dtype)


def sample(held: Held, most: int) -> NDArray[np.float64]:
    """All of its numbers, or of more than `most` about so many in blocks spread evenly over it, the
    same ones each time. Raises as `pieces`.
    """
    _check_floats(held)
    if held.count <= most:
        return np.concatenate([np.empty(0), *pieces(held)])
    size, width = min(BLOCK, most), held.num_bytes // held.count
    blocks = most // size
    step = (held.count - size) / max(1, blocks - 1)
    found = []
    with held.file.open("rb") as file:
        for block in range(blocks):
            file.seek(held.begin + int(block * step) * width)
            found.append(_numbers(file.read(size * width), held.dtype))
    return np.concatenate(found)


def _check_floats(held: Held) -> None:
    if held.dtype not in (*_PLAIN, "BF16"):
        raise ValueError(f"{held.dtype} holds no floats")


def _numbers(piece: bytes | memoryview, dtype: str) -> NDArray[np.float64]:
    if dtype == "BF16":
        halves = np.frombuffer(piece, "<u2").astype("<u4") << 16
        return halves.view("<f4").astype(np.float64)
    return np.frombuffer(piece, _PLAIN[dtype]).astype(np.float64)
