"""A folder of a model: what its config.json, its weights and its tokenizer say. No torch."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from albor_core.config.hf_config import ids_said, shape_of
from albor_core.config.shape import ModelShape
from albor_core.data.pack.special_tokens import SpecialIds, special_ids
from albor_core.data.pack.tokenizer import load_tokenizer, vocabulary_size
from albor_core.run.errors import AlborError, ConfigError, DataError, NotFoundError
from albor_core.run.files.tensor_header import FLOATS
from albor_core.run.files.weight_files import (
    EMBEDDING,
    GENERATION,
    HEAD,
    WeightFiles,
    open_weights,
    without_tied_head,
)


@dataclass(frozen=True)
class ModelFolder:
    """A model that is built here, its shape and the headers of its weights."""

    path: Path
    about: dict[str, Any]
    shape: ModelShape
    weights: WeightFiles


def open_model(path: Path) -> ModelFolder:
    """Everything about a model but its numbers; `misfits` says whether they agree.

    Raises NotFoundError where there is none, DataError where it cannot be read or is not built.
    """
    weights = open_weights(path)
    about = read_about(path)
    try:
        shape = shape_of(about, str(path / "config.json"))
    except ConfigError as error:
        raise DataError(error.message, hint=error.hint) from error
    weights = without_tied_head(weights, is_tied=shape.tie_word_embeddings)
    return ModelFolder(path, about, shape, weights)


def refuse_misfits(model: ModelFolder) -> None:
    """Raise DataError if weights or tokenizer do not fit the config.json."""
    problems = [*misfits(model.shape, model.weights), *tokenizer_problems(model.path, model.shape)]
    if problems:
        more = f", and {len(problems) - 3} more" if len(problems) > 3 else ""
        hint = f"albor model verify {model.path}"
        raise DataError(f"{model.path}: {', '.join(problems[:3])}{more}", hint=hint)


def read_about(path: Path) -> dict[str, Any]:
    """config.json. Raises NotFoundError, DataError."""
    return _document(path / "config.json", "it says what the weights are")


def read_generation(path: Path) -> dict[str, Any]:
    """generation_config.json; {} where there is none. Raises DataError."""
    file = path / GENERATION
    return _document(file, "or delete it") if file.exists() else {}


def _document(file: Path, why: str) -> dict[str, Any]:
    try:
        found = json.loads(file.read_bytes())
    except FileNotFoundError as error:
        raise NotFoundError(
            f"no {file.name} in {file.parent}", hint=f"{why}: fetch it, too"
        ) from error
    except (ValueError, RecursionError):
        found = None
    except OSError as error:
        raise DataError(f"{file}: cannot be read: {error.strerror}", hint="ls -ld") from error
    if not isinstance(found, dict):
        what = f"{file} is not a JSON object that can be read"
        raise DataError(what, hint=f"repair it: {why}")
    return found


def misfits(shape: ModelShape, weights: WeightFiles) -> Iterator[str]:
    """Mismatches of the weights with the shape: names, shapes, dtypes."""
    yield from name_misfits(shape, weights)
    yield from form_misfits(shape, weights)


def name_misfits(shape: ModelShape, weights: WeightFiles) -> Iterator[str]:
    wanted = shape.tensor_shapes()
    yield from (f"{name} is missing" for name in wanted if name not in weights.tensors)
    for name in weights.tensors:
        if name == HEAD and shape.tie_word_embeddings:
            yield f"{name} is not {EMBEDDING}, though tie_word_embeddings is true"
        elif name not in wanted:
            yield f"{name} is not in the model"


def form_misfits(shape: ModelShape, weights: WeightFiles) -> Iterator[str]:
    wanted = shape.tensor_shapes()
    for name, held in weights.tensors.items():
        if name in wanted and held.shape != wanted[name]:
            yield f"{name} is {[*held.shape]}, not {[*wanted[name]]}"
        elif held.dtype not in FLOATS:
            yield f"{name} holds {held.dtype}, no floats"


def tokenizer_problems(path: Path, shape: ModelShape) -> Iterator[str]:
    """Ids that the embedding has no row for, from the tokenizer beside the weights or the eos and
    bos of config.json and generation_config.json; nothing where there is none.
    """
    rows = shape.vocab_size
    try:
        read_generation(path)
    except DataError as error:
        yield error.message
        return
    for role, number in _said_ids(path):
        if not 0 <= number < rows:
            yield f"{role} {number} is outside vocab_size {rows:,}"
    if not (path / "tokenizer.json").exists():
        return
    try:
        size = vocabulary_size(load_tokenizer(path))
    except AlborError as error:
        yield error.message
        return
    if size > rows:
        yield f"tokenizer.json has {size:,} tokens, above vocab_size {rows:,}"


def _said_ids(path: Path) -> Iterator[tuple[str, int]]:
    for about in (read_about(path), read_generation(path)):
        for role in ("bos_token_id", "eos_token_id"):
            yield from ((role, number) for number in ids_said(about, role))


def show(model: ModelFolder, hashes: dict[str, str] | None = None) -> dict[str, Any]:
    """Strict JSON of schema albor.model.show/1, without the schema's name."""
    weights, shape = model.weights, model.shape
    by_file = Counter(held.file for held in weights.tensors.values())
    return {
        "path": str(model.path),
        "model_type": shape.model_type,
        "parameters": sum(held.count for held in weights.tensors.values()),
        "expected_parameters": shape.num_parameters,
        "bytes": sum(held.num_bytes for held in weights.tensors.values()),
        "fits": not [*misfits(shape, weights)],
        "shape": asdict(shape),
        "switches": {"qkv_bias": shape.qkv_bias, "qk_norm": shape.qk_norm},
        "dtypes": _by_dtype(weights),
        "files": [
            {"name": file.name, "bytes": file.stat().st_size, "tensors": by_file[file]}
            for file in weights.files
        ],
        "tokenizer": _tokenizer(model.path),
        "tensors": [
            {
                "name": name,
                "dtype": held.dtype,
                "shape": [*held.shape],
                "file": held.file.name,
                "blake3": None if hashes is None else hashes[name],
            }
            for name, held in weights.tensors.items()
        ],
    }


def _by_dtype(weights: WeightFiles) -> list[dict[str, Any]]:
    count, numbers, size = Counter[str](), Counter[str](), Counter[str]()
    for held in weights.tensors.values():
        count[held.dtype] += 1
        numbers[held.dtype] += held.count
        size[held.dtype] += held.num_bytes
    return [
        {"dtype": d, "tensors": count[d], "parameters": numbers[d], "bytes": size[d]} for d in count
    ]


def _tokenizer(path: Path) -> dict[str, Any] | None:
    if not (path / "tokenizer.json").exists():
        return None
    try:
        loaded = load_tokenizer(path)
    except AlborError as error:
        return {"tokens": None, "eos": None, "bos": None, "error": error.message}
    ids: SpecialIds = special_ids(loaded, path)
    return {"tokens": vocabulary_size(loaded), "eos": ids.eos, "bos": ids.bos, "error": None}
