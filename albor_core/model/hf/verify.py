"""Nine questions to a folder of weights, answered without torch: is this a trained, whole model?

The last ones look for what damage and mistakes leave behind: numbers that are not finite, norms
that never left 1, a layer that was copied over another.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from blake3 import blake3

from albor_core.config.hf_config import shape_of
from albor_core.config.shape import ModelShape
from albor_core.data.pack.foreign_tokenizer import not_applied
from albor_core.model.hf.arrays import pieces
from albor_core.model.hf.folder import (
    form_misfits,
    name_misfits,
    read_about,
    tokenizer_problems,
)
from albor_core.run.errors import AlborError, DataError
from albor_core.run.files.fingerprint import fingerprint
from albor_core.run.files.tensor_header import FLOATS
from albor_core.run.files.weight_files import (
    INDEX,
    WHOLE,
    Held,
    WeightFiles,
    open_weights,
    raw,
    without_tied_head,
)
from albor_core.run.rundir import read_json

CHECKS = {
    "files": "every file is whole, and the index names what is there",
    "config": "config.json tells a model that is built",
    "tensors": "there are the tensors that config.json tells, and no other",
    "shapes": "they have the shapes that config.json tells, and hold floats",
    "hashes": "the bytes are those that the manifest names",
    "values": "every number is finite",
    "trained": "norms have left where they begin, and no matrix holds one number throughout",
    "layers": "no two layers hold the same matrix",
    "tokenizer": "ids of the tokenizer, eos and bos are inside the vocabulary",
}
_SHOWN = 3


@dataclass(frozen=True)
class WeightCheck:
    name: str
    ok: bool | None
    """None: what came before left nothing to look at."""
    detail: str


@dataclass
class _Read:
    """The results of one reading of all elements."""

    not_finite: list[str] = field(default_factory=list)
    constant: dict[str, float] = field(default_factory=dict)
    """Tensors that hold one number throughout, and that number; of vectors up to its sign."""
    hashes: dict[str, str] = field(default_factory=dict)


def verify(path: Path) -> list[WeightCheck]:
    """All nine. Raises NotFoundError or DataError where there is no model to ask about, OSError."""
    weights, why = _weights(path)
    shape, why_not = _shape(path)
    found = [
        WeightCheck("files", weights is not None, why),
        WeightCheck("config", shape is not None, why_not),
    ]
    if weights is not None and shape is not None:
        weights = without_tied_head(weights, is_tied=shape.tie_word_embeddings)
    if weights is None:
        skipped = [name for name in CHECKS if name not in ("files", "config", "tokenizer")]
        found += [
            WeightCheck(name, None, "not looked at: the files are damaged") for name in skipped
        ]
    else:
        found += _of_weights(weights, shape)
    found.append(_tokenizer(path, shape))
    return found


def _weights(path: Path) -> tuple[WeightFiles | None, str]:
    try:
        weights = open_weights(path)
    except DataError as error:
        if (path / WHOLE).exists() or (path / INDEX).exists():
            return None, error.message
        raise
    return weights, f"{len(weights.files)} with {len(weights.tensors):,} tensors"


def _shape(path: Path) -> tuple[ModelShape | None, str]:
    try:
        shape = shape_of(read_about(path), str(path / "config.json"))
    except AlborError as error:
        return None, error.message
    return shape, f"{shape.model_type}, {shape.num_parameters:,} parameters"


def _of_weights(weights: WeightFiles, shape: ModelShape | None) -> Iterator[WeightCheck]:
    if shape is None:
        yield WeightCheck("tensors", None, "not looked at: config.json does not tell them")
        yield WeightCheck("shapes", None, "not looked at: config.json does not tell them")
    else:
        names, forms = [*name_misfits(shape, weights)], [*form_misfits(shape, weights)]
        yield WeightCheck("tensors", not names, _listed(names) or f"{len(weights.tensors):,}")
        yield WeightCheck("shapes", not forms, _listed(forms) or _dtypes(weights))
    yield _hashes(weights)
    read = read_numbers(weights)
    bad = [f"{name} is not finite throughout" for name in read.not_finite]
    yield WeightCheck("values", not bad, _listed(bad) or f"{_count(weights):,} numbers")
    yield _trained(weights, read)
    yield _layers(read)


def read_numbers(weights: WeightFiles) -> _Read:
    """Every number once."""
    found = _Read()
    for name, held in weights.tensors.items():
        found.hashes[name] = hash_of(held)
        if held.dtype not in FLOATS or not held.count:
            continue
        low, high, finite = np.inf, -np.inf, True
        is_norm = len(held.shape) < 2  # a mirrored one begins with both signs
        for piece in pieces(held):
            finite = finite and bool(np.isfinite(piece).all())
            seen = np.abs(piece) if is_norm else piece
            low, high = min(low, float(seen.min())), max(high, float(seen.max()))
        if not finite:
            found.not_finite.append(name)
        elif low == high:
            found.constant[name] = low
    return found


def hash_of(held: Held) -> str:
    """blake3 of a tensor's bytes."""
    hasher = blake3()
    for piece in raw(held):
        hasher.update(piece)
    return hasher.hexdigest()


def _hashes(weights: WeightFiles) -> WeightCheck:
    files = (read_json(weights.folder / "manifest.json") or {}).get("files")
    stated = files if isinstance(files, dict) else {}
    wrong, known = [], 0
    for file in weights.files:
        size, found = fingerprint(file)
        told = stated.get(file.name)
        if not isinstance(told, dict) or told.get("algo") != "blake3":
            continue
        known += 1
        if (told.get("size"), f"blake3:{told.get('hash')}") != (size, found):
            wrong.append(f"{file.name} is not what was written")
    if not known:
        return WeightCheck("hashes", True, "no manifest.json names any")
    return WeightCheck(
        "hashes", not wrong, _listed(wrong) or f"{known} as manifest.json names them"
    )


def _trained(weights: WeightFiles, read: _Read) -> WeightCheck:
    """A norm begins with one number throughout and leaves it at the first step."""
    norms = [name for name in weights.tensors if name.endswith("norm.weight")]
    still = [name for name in norms if name in read.constant]
    flat = [
        f"{name} holds {read.constant[name]:g} throughout"
        for name, held in weights.tensors.items()
        if len(held.shape) > 1 and held.count > 1 and name in read.constant
    ]
    if norms and len(still) == len(norms):
        return WeightCheck(
            "trained", False, "as initialised: every norm holds one number throughout"
        )
    detail = f"{len(norms) - len(still)} of {len(norms)} norms have moved"
    return WeightCheck("trained", not flat, _listed(flat) or detail)


def _layers(read: _Read) -> WeightCheck:
    held: dict[tuple[str, str], list[str]] = defaultdict(list)
    for name, digest in read.hashes.items():
        parts = name.split(".")
        if "layers" in parts and "proj" in name and name.endswith("weight"):
            where = parts.index("layers") + 1
            held[".".join(parts[where + 1 :]), digest].append(parts[where])
    same = [
        f"layers {' and '.join(sorted(layers, key=int))} hold the same {part}"
        for (part, _), layers in held.items()
        if len(layers) > 1
    ]
    return WeightCheck("layers", not same, _listed(same) or f"{len(held)} matrices, all distinct")


def _tokenizer(path: Path, shape: ModelShape | None) -> WeightCheck:
    if shape is None:
        return WeightCheck(
            "tokenizer", None, "not looked at: config.json does not tell the vocabulary"
        )
    problems = [*tokenizer_problems(path, shape)]
    there = (path / "tokenizer.json").exists()
    fine = f"ids below {shape.vocab_size:,}" if there else "no tokenizer.json"
    if left_out := not_applied(path):
        fine += f"; not applied: {', '.join(left_out)}"
    return WeightCheck("tokenizer", not problems, _listed(problems) or fine)


def to_json(path: Path, checks: list[WeightCheck]) -> dict[str, Any]:
    """Strict JSON of schema albor.model.verify/1, without the schema's name."""
    rows = [
        {"name": one.name, "asks": CHECKS[one.name], "ok": one.ok, "detail": one.detail}
        for one in checks
    ]
    return {"path": str(path), "ok": all(one.ok for one in checks), "checks": rows}


def _listed(found: list[str]) -> str:
    more = f", and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return ", ".join(found[:_SHOWN]) + more


def _dtypes(weights: WeightFiles) -> str:
    return ", ".join(sorted({held.dtype for held in weights.tensors.values()}))


def _count(weights: WeightFiles) -> int:
    return sum(held.count for held in weights.tensors.values())
