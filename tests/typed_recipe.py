"""A recipe of Albor that has settings: causal_lm, as if the section `recipe` were its own."""

from dataclasses import replace
from typing import Literal

import pytest

from albor_core.config.recipes import registry
from albor_core.config.sections.numbers import Count, Fraction01
from albor_core.config.sections.section import Section

TINY = """
model: {architecture: {hidden_size: 64, num_hidden_layers: 2, num_attention_heads: 4,
  num_key_value_heads: 2, intermediate_size: 128, vocab_size: 96, max_position_embeddings: 64}}
data: {train: x, val: x, batch_size: 2, seq_len: 64}
optimizer: {lr: 0.01}
training: {max_steps: 5, output_dir: out, mixed_precision: bf16}
"""


class Decay(Section):
    """How smoothing ends."""

    steps: Count = 32_768
    """Steps until there is none."""


class Smoothing(Section):
    smoothing: Fraction01 = 0.1
    """Share of the uniform distribution in each target."""
    kind: Literal["uniform", "unigram"] = "uniform"
    """The distribution."""
    decay: Decay = Decay()
    """How it ends."""


def give_settings(patch: pytest.MonkeyPatch, reads: tuple[str, ...] = ()) -> None:
    """To causal_lm, `Smoothing`; of the fields that not every recipe reads, it reads `reads`."""
    entry = replace(registry.entry_of("causal_lm"), settings=Smoothing, reads=reads)
    known = {"causal_lm": entry}
    patch.setattr(registry, "entry_of", known.get)
