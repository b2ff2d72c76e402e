"""Next-token prediction: `model.architecture`, and shards of token ids in `data`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from albor_core.run.errors import Problem

REQUIRED = ("model.architecture", "data.train")
"""Fields that a config of this recipe has to have."""

SHORTEST = 2  # the last token is only a target


def problems(sections: Mapping[str, Any]) -> Iterator[Problem]:
    """What is wrong in the sections of a config; some of them may be away."""
    model, data = sections.get("model"), sections.get("data")
    if model and not model.architecture:
        yield from model.unknown_shape()
    if data and not data.is_named:  # the hint keeps it from being said where a mixture is wrong
        yield Problem("data.train", "is required", "or data.mixture")
    if data and data.seq_len < SHORTEST:
        yield Problem("data.seq_len", f"must be at least {SHORTEST}, is {data.seq_len}")
    if model and model.architecture and data:
        longest = model.architecture.max_position_embeddings
        if data.seq_len > longest:
            what = f"{data.seq_len} is above model.architecture.max_position_embeddings {longest}"
            yield Problem("data.seq_len", what, f"use at most {longest}, or raise that")
    if model and model.architecture and model.architecture.tie_word_embeddings:
        yield from _head_problems(model, sections.get("optimizer"))
    if sections.get("recipe"):
        what = "is the section of a class of your own, and training.mode is causal_lm"
        yield Problem("recipe", what, "leave it out, or set training.mode to package.module:Class")


def _head_problems(model: Any, optimizer: Any) -> Iterator[Problem]:
    """What is said of a head that is the embedding."""
    what = "the head is the embedding: model.architecture.tie_word_embeddings is true"
    if optimizer and optimizer.head_lr is not None:
        yield Problem("optimizer.head_lr", what, "set optimizer.embedding_lr")
    if model.initialization.head is not None:
        yield Problem("model.initialization.head", what, "set model.initialization.embedding")
