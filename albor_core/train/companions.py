"""Files that make a checkpoint loadable elsewhere: its config, its tokenizer, where texts end."""

from __future__ import annotations

import json
from dataclasses import replace

from albor_core.data.pack.special_tokens import (
    CONFIG,
    SpecialIds,
    generation_config,
    special_ids,
    tokenizer_config,
    tokenizer_file,
)
from albor_core.data.pack.tokenizer import load_tokenizer
from albor_core.run.errors import DataError
from albor_core.train.build import Parts


def ids_of(parts: Parts) -> SpecialIds:
    """What the data was packed with; where they do not say, what their tokenizer does."""
    packed, path = parts.train.manifest, parts.config.data.tokenizer
    own = SpecialIds() if path is None else special_ids(load_tokenizer(path), path)
    if packed.eos_token_id is not None:
        own = replace(own, eos=packed.eos_token_id)
    if packed.bos_token_id is not None:
        own = replace(own, bos=packed.bos_token_id)
    return own


def companions(parts: Parts) -> dict[str, bytes]:
    """By name. Raises DataError or NotFoundError where the tokenizer cannot be read."""
    shape, ids, path = parts.model.config, ids_of(parts), parts.config.data.tokenizer
    about = shape.to_hf(bos_token_id=ids.first, eos_token_id=ids.eos)
    files = {"config.json": json.dumps(about, indent=2).encode()}
    if ids.eos is not None:
        files["generation_config.json"] = generation_config(ids)
    if path is not None:
        source = tokenizer_file(path)
        try:
            files["tokenizer.json"] = source.read_bytes()
        except OSError as error:
            raise DataError(f"{source}: cannot be read: {error.strerror}") from error
        told = tokenizer_config(load_tokenizer(path), path, ids, shape.max_position_embeddings)
        files[CONFIG] = json.dumps(told, indent=2).encode()
    return files
