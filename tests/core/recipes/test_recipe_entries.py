"""What is known of a recipe without its class: settings, fields that it reads, its numbers."""

from dataclasses import replace

import jsonschema
import pytest
import torch
import yaml

from albor_core.config.json_schema import config_schema
from albor_core.config.load import parse_config
from albor_core.config.recipes import registry
from albor_core.config.recipes.entry import ParameterCounts
from albor_core.config.recipes.registry import NAMES, entries, entry_of
from albor_core.config.sections import Fraction01, Section
from albor_core.plan.facts import PlanFacts, SplitFacts
from albor_core.plan.memory import memory
from albor_core.recipes.recipe import Recipe
from albor_core.recipes.registry import recipe_of
from albor_core.recipes.trainable import Trainable
from albor_core.train.build import flat_optimizer

TINY = b"""
model: {architecture: {hidden_size: 64, num_hidden_layers: 2, num_attention_heads: 4,
  num_key_value_heads: 2, intermediate_size: 128, vocab_size: 96, max_position_embeddings: 64}}
data: {train: x, val: x, batch_size: 2, seq_len: 64}
optimizer: {lr: 0.01}
training: {max_steps: 5, output_dir: out, mixed_precision: bf16}
"""


class Smoothing(Section):
    smoothing: Fraction01 = 0.1
    """Share of the uniform distribution in each target."""


@pytest.fixture
def typed(monkeypatch):
    """causal_lm, as if it had settings."""
    entry = replace(entry_of("causal_lm"), settings=Smoothing, reads=())
    monkeypatch.setattr(registry, "entry_of", lambda mode: entry if mode in NAMES else None)
    return entry


def test_every_recipe_is_named_like_its_file_and_its_class_is_there():
    for name, entry in entries().items():
        assert entry.name == name
        config = parse_config(TINY, file="c", overrides=[f"training.mode={name}"])
        found = recipe_of(config)
        assert isinstance(found, Recipe)
        assert entry.recipe == f"{type(found).__module__}:{type(found).__name__}"
    assert entry_of("own_model:Mine") is None


def test_settings_of_a_recipe_are_typed_and_have_their_defaults(typed):
    config = parse_config(TINY + b"recipe: {smoothing: 0.3}\n", file="c")
    assert config.resolved()["recipe"] == {"smoothing": 0.3}
    assert registry.settings_of("causal_lm", {}) == {"smoothing": 0.1}
    found = {
        problem.field: problem.message
        for said in ({"smothing": 0.3}, {"smoothing": 2.0})
        for problem in registry.recipe_problems("causal_lm", {"recipe": said})
    }
    assert found["recipe.smothing"] == "is not a field of causal_lm"
    assert "less than" in found["recipe.smoothing"]


def test_the_schema_knows_the_settings_of_a_recipe(typed):
    config = yaml.safe_load(TINY)
    check = jsonschema.Draft202012Validator(config_schema())
    assert check.is_valid(config | {"recipe": {"smoothing": 0.3}})
    assert not check.is_valid(config | {"recipe": {"smothing": 0.3}})
    assert not check.is_valid(config | {"recipe": {"smoothing": 2.0}})


def test_a_field_that_a_recipe_does_not_read_is_refused_with_those_that_do(typed):
    sections = {"training": parse_config(TINY, file="c").training}
    assert not [*registry._unread("causal_lm", sections)]
    stability = sections["training"].stability.model_copy(update={"z_loss": 1e-4})
    sections = {"training": sections["training"].model_copy(update={"stability": stability})}
    (problem,) = registry._unread("causal_lm", sections)
    assert problem.field == "training.stability.z_loss"
    assert "0.0001" in problem.message and "training.mode is causal_lm" in problem.message


def test_what_is_frozen_costs_the_bytes_that_it_takes():
    """Of the fused step's buffers, without activations."""
    config = parse_config(TINY, file="c")
    recipe = recipe_of(config)
    recipe.trains = lambda name: "norm" in name
    trainable = Trainable(recipe, recipe.model(torch.device("cpu")))
    optimizer = flat_optimizer(config, trainable)
    flat = optimizer.flat
    shape = config.model.architecture.shape()
    facts = PlanFacts("c", SplitFacts("x"), device="cuda", gpu_capability=(9, 0))  # type: ignore[arg-type]
    every = ParameterCounts.of_all(shape)
    norms = ParameterCounts(0, every.vectors, 0, frozen_matrices=every.matrices)
    plan = memory(config, facts, norms)
    whole = memory(config, facts)
    assert plan.step == whole.step == "fused"
    frozen, vectors = (  # what lies between them is alignment
        sum(shape.numel() for _, shape in segment.places.values())
        for segment in (flat.frozen_matrices, flat.vectors)
    )
    assert plan.weights == 2 * frozen + 4 * vectors
    assert plan.gradients == 4 * vectors
    state = {name: t for name, t in optimizer.tensors().items() if not name.startswith("step.")}
    assert plan.optimizer == sum(tensor.nbytes for tensor in state.values())
    assert plan.half_copies == 0
    assert plan.fixed < whole.fixed / 2 + plan.overhead
