"""The weights of a folder in figures: how large the numbers of each tensor are, and how spread.

Of a large tensor a sample is read, the same one each time: a root mean square of 262,144 numbers is
right within a third of a percent (of normal ones, two standard errors). No torch.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from albor_core.model.hf.arrays import sample
from albor_core.run.files.tensor_header import FLOATS
from albor_core.run.files.weight_files import Held, WeightFiles

MOST = 1 << 18  # numbers that are read of a tensor
BINS = 48
_LAYER = re.compile(r"(?:.*\.)?layers\.(\d+)\.(.+)")


@dataclass(frozen=True)
class TensorFigures:
    """Figures of the finite numbers of one tensor, None where it has none. `count` numbers lie in
    it, `read` of them were looked at; `layer` is None outside the layers, `part` the name within
    one.
    """

    name: str
    layer: int | None
    part: str
    dtype: str
    shape: tuple[int, ...]
    count: int
    read: int
    mean: float | None
    rms: float | None
    minimum: float | None
    maximum: float | None
    zeros: float
    """Share of what was read."""
    nonfinite: int
    edges: tuple[float, float]
    counts: tuple[int, ...]
    """Between the edges, in bins of one width."""


def weight_figures(weights: WeightFiles) -> Iterator[TensorFigures]:
    """Figures of each floating-point tensor, in the order of layers. Raises OSError."""
    named = [(*_place(name), name) for name in weights.tensors]
    for layer, part, name in sorted(named, key=lambda one: (one[0] is None, one[0] or 0)):
        held = weights.tensors[name]
        if held.dtype in FLOATS and held.count:
            yield _figures(name, layer, part, held, sample(held, MOST))


def to_json(weights: WeightFiles) -> dict[str, Any]:
    """Strict JSON of schema albor.model.weights/1, without the schema's name."""
    tensors = [asdict(one) for one in weight_figures(weights)]
    return {
        "path": str(weights.folder),
        "is_sampled": any(one["read"] < one["count"] for one in tensors),
        "tensors": tensors,
    }


def _place(name: str) -> tuple[int | None, str]:
    match = _LAYER.fullmatch(name)
    short = name.removesuffix(".weight").removeprefix("model.")
    return (None, short) if match is None else (int(match[1]), match[2].removesuffix(".weight"))


def _figures(
    name: str, layer: int | None, part: str, held: Held, numbers: NDArray[np.float64]
) -> TensorFigures:
    finite = numbers[np.isfinite(numbers)]
    low, high = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 0.0)
    edges = (low, high) if low < high else (low - 0.5, high + 0.5)
    is_wide = not np.isfinite(edges[1] - edges[0])  # of fp64 alone
    counts = np.zeros(BINS) if is_wide else np.histogram(finite, BINS, edges)[0]
    with np.errstate(over="ignore"):
        squares = np.square(finite)
    has = len(finite) > 0
    return TensorFigures(
        name,
        layer,
        part,
        held.dtype,
        held.shape,
        held.count,
        len(numbers),
        float(finite.mean()) if has else None,
        float(np.sqrt(squares.mean())) if has else None,
        low if has else None,
        high if has else None,
        float((numbers == 0).mean()),
        len(numbers) - len(finite),
        edges,
        tuple(map(int, counts)),
    )
