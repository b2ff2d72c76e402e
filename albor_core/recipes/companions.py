"""Files that make a checkpoint loadable by other programs: its config, its tokenizer, its end
tokens."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from albor_core.config.config import Config
from albor_core.data.pack.manifest import Manifest
from albor_core.data.pack.special_tokens import (
    CONFIG,
    SpecialIds,
    generation_config,
    special_ids,
    tokenizer_config,
    tokenizer_file,
)
from albor_core.data.pack.tokenizer import load_tokenizer
from albor_core.model.llama import LlamaConfig
from albor_core.run.errors import DataError
from albor_core.run.files.weight_files import GENERATION
from albor_core.run.rundir import read_json

TOKENIZER_FILES = (
    "tokenizer.json",
    CONFIG,
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
    "chat_template.jinja",
)
"""What a tokenizer of Hugging Face's may consist of."""


def ids_of(config: Config, packed: Manifest, source: Path | None = None) -> SpecialIds:
    """The special tokens that the data was packed with; if it has none on record, those of the
    tokenizer."""
    path = _tokenizer(config, source)
    own = SpecialIds() if path is None else special_ids(load_tokenizer(path), path)
    if packed.eos_token_id is not None:
        own = replace(own, eos=packed.eos_token_id)
    if packed.bos_token_id is not None:
        own = replace(own, bos=packed.bos_token_id)
    return own


def _tokenizer(config: Config, source: Path | None) -> Path | None:
    """The config's tokenizer; without one, that of the folder the weights came from."""
    if config.data.tokenizer is not None:
        return config.data.tokenizer
    return source if source is not None and tokenizer_file(source).is_file() else None


def companions(
    config: Config, shape: LlamaConfig, ids: SpecialIds, source: Path | None = None
) -> dict[str, bytes]:
    """The files by name. `source`: the folder that weights came from, whose settings and tokenizer
    are kept. Raises DataError or NotFoundError if the tokenizer cannot be read.
    """
    about = None if source is None else read_json(source / "config.json")
    begins = ids.first if about is None else ids.bos
    told = shape.to_hf(bos_token_id=begins, eos_token_id=ids.eos, about=about)
    files = {"config.json": json.dumps(told, indent=2).encode()}
    kept = None if source is None else read_json(source / GENERATION)
    if kept is not None or ids.eos is not None:
        files[GENERATION] = generation_config(ids, kept)
    path = _tokenizer(config, source)
    if path is None:
        return files
    raw = _read(tokenizer_file(path))
    if source is not None and _is_the_same(source, raw):
        there = [source / name for name in TOKENIZER_FILES if (source / name).is_file()]
        return files | {file.name: _read(file) for file in there}
    files["tokenizer.json"] = raw
    said = tokenizer_config(load_tokenizer(path), path, ids, shape.max_position_embeddings)
    files[CONFIG] = json.dumps(said, indent=2).encode()
    return files


def _is_the_same(source: Path, raw: bytes) -> bool:
    file = tokenizer_file(source)
    return file.is_file() and _read(file) == raw


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise DataError(f"{file}: cannot be read: {error.strerror}") from error
