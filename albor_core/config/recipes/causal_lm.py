"""Next-token prediction: `model.architecture`, and shards of token ids in `data`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from albor_core.config.recipes.entry import SOME_READ, Numbers, ParameterCounts, RecipeEntry
from albor_core.run.errors import Problem

if TYPE_CHECKING:
    from albor_core.config.config import Config

REQUIRED = ("model.architecture", "data.train")
"""Fields that a config of this recipe has to have."""

SHORTEST = 2  # the last token is only a target


def problems(sections: Mapping[str, Any]) -> Iterator[Problem]:
    """Problems in the sections of a config; some sections may be missing."""
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


def _head_problems(model: Any, optimizer: Any) -> Iterator[Problem]:
    """Problems of settings for a head that is the embedding."""
    what = "the head is the embedding: model.architecture.tie_word_embeddings is true"
    if optimizer and optimizer.head_lr is not None:
        yield Problem("optimizer.head_lr", what, "set optimizer.embedding_lr")
    if model.initialization.head is not None:
        yield Problem("model.initialization.head", what, "set model.initialization.embedding")


def numbers(config: Config) -> Numbers:
    """The numbers of the decoder, all of it trained."""
    shape = config.model.architecture.shape()
    window = "" if shape.sliding_window is None else f", window {shape.sliding_window:,}"
    pattern = config.model.architecture.window_pattern
    return Numbers(
        title=f"{shape.model_type} ({shape.num_hidden_layers}L, {shape.hidden_size}H, "
        f"{shape.num_attention_heads}A, {shape.num_key_value_heads}KV)"
        f"{window}{pattern and f' in {pattern}'}",
        shape=shape,
        counts=ParameterCounts.of_all(shape),
        flops_per_token=shape.flops_per_token(config.data.seq_len),
    )


ENTRY = RecipeEntry(
    name="causal_lm",
    recipe="albor_core.recipes.causal_lm:CausalLM",
    problems=problems,
    numbers=numbers,
    required=REQUIRED,
    reads=tuple(SOME_READ),
)
