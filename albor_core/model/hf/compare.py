"""Two folders of weights, told apart: settings, tensors, and how far each has moved. No torch."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from albor_core.model.hf.arrays import pieces
from albor_core.model.hf.folder import ModelFolder
from albor_core.model.hf.verify import hash_of
from albor_core.run.files.tensor_header import FLOATS
from albor_core.run.files.weight_files import Held

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Moved:
    """One tensor of both: `state` equal (the same numbers), changed, shape, only_a or only_b."""

    name: str
    state: str
    relative: float | None = None
    """L2 of the difference over that of A's; null where A is all 0 or they cannot be compared."""
    cosine: float | None = None


def compare(a: ModelFolder, b: ModelFolder) -> dict[str, Any]:
    """Strict JSON of schema albor.model.compare/1, without the schema's name."""
    ours, theirs = asdict(a.shape), asdict(b.shape)
    names = [*a.weights.tensors, *(n for n in b.weights.tensors if n not in a.weights.tensors)]
    held = [(name, a.weights.tensors.get(name), b.weights.tensors.get(name)) for name in names]
    tensors, moved, whole = [], 0.0, 0.0
    for name, mine, other in held:
        one, difference, size = _one(name, mine, other)
        tensors.append(one)
        moved, whole = moved + difference, whole + size
    states = Counter(one.state for one in tensors)
    kinds = ("equal", "changed", "shape", "only_a", "only_b")
    return {
        "a": str(a.path),
        "b": str(b.path),
        "config": [
            {"field": name, "a": ours[name], "b": theirs[name]}
            for name in ours
            if ours[name] != theirs[name]
        ],
        "counts": {kind: states[kind] for kind in kinds},
        "relative": math.sqrt(moved / whole) if whole else None,
        "same": states["equal"] == len(tensors) and ours == theirs,
        "tensors": [asdict(one) for one in tensors],
    }


def _one(name: str, a: Held | None, b: Held | None) -> tuple[Moved, float, float]:
    """The comparison of one tensor, with the squares of difference and of A, 0 if unknown."""
    if a is None or b is None:
        return Moved(name, "only_b" if a is None else "only_a"), 0.0, 0.0
    if a.shape != b.shape:
        return Moved(name, "shape"), 0.0, 0.0
    if a.dtype not in FLOATS or b.dtype not in FLOATS:
        same = a.dtype == b.dtype and hash_of(a) == hash_of(b)
        return Moved(name, "equal" if same else "changed"), 0.0, 0.0
    difference = own = other = dot = 0.0
    for x, y in _in_step(a, b):
        with np.errstate(invalid="ignore", over="ignore"):
            difference += float(np.square(x - y).sum())
            own, other = own + float(x @ x), other + float(y @ y)
            dot += float(x @ y)
    if difference == 0:
        return Moved(name, "equal", 0.0, 1.0), 0.0, own
    if not math.isfinite(difference + own + other):
        return Moved(name, "changed"), 0.0, 0.0
    relative = math.sqrt(difference / own) if own else None
    cosine = dot / math.sqrt(own * other) if own and other else None
    return Moved(name, "changed", relative, cosine), difference, own


def _in_step(a: Held, b: Held) -> Iterator[tuple[Numbers, Numbers]]:
    """Pieces of both, cut alike though their dtypes differ."""
    left, right = pieces(a), pieces(b)
    none = np.empty(0)
    x, y = next(left, none), next(right, none)
    while len(x) and len(y):
        size = min(len(x), len(y))
        yield x[:size], y[:size]
        x, y = x[size:], y[size:]
        x = x if len(x) else next(left, none)
        y = y if len(y) else next(right, none)
