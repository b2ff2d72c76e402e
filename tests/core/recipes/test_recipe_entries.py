"""What is known of a recipe without its class: settings, fields that it reads, its numbers."""

import jsonschema
import pytest
import torch
import typed_recipe
import yaml
from typed_recipe import give_settings

from albor_core.config.json_schema import config_schema
from albor_core.config.load import parse_config
from albor_core.config.recipes import registry
from albor_core.config.recipes.entry import ParameterCounts
from albor_core.config.recipes.registry import entries, entry_of
from albor_core.config.reference import field_docs, render_reference
from albor_core.plan.facts import PlanFacts, SplitFacts
from albor_core.plan.memory import memory
from albor_core.recipes.recipe import Recipe
from albor_core.recipes.registry import recipe_of
from albor_core.recipes.trainable import Trainable
from albor_core.run.errors import ConfigError
from albor_core.train.build import flat_optimizer

TINY = typed_recipe.TINY.encode()


@pytest.fixture
def typed(monkeypatch):
    """causal_lm, as if it had settings."""
    give_settings(monkeypatch)


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
    rest = {"kind": "uniform", "decay": {"steps": 32_768}}
    assert config.resolved()["recipe"] == {"smoothing": 0.3, **rest}
    assert registry.settings_of("causal_lm", {}) == {"smoothing": 0.1, **rest}


@pytest.mark.parametrize(
    ("given", "field", "message", "hint"),
    [
        ("{smothing: 0.3}", "recipe.smothing", "is not a field", "did you mean recipe.smoothing?"),
        ("{q: 0.3}", "recipe.q", "is not a field", "fields here: smoothing, kind, decay"),
        ("{smoothing: 2}", "recipe.smoothing", "must be at least 0 and below 1, is 2.0", ""),
        ("{smoothing: x}", "recipe.smoothing", "must be a number such as 0.1", ""),
        ("{kind: x}", "recipe.kind", "must be 'uniform' or 'unigram', is 'x'", ""),
        ("{decay: {steps: 0}}", "recipe.decay.steps", "must be above 0, is 0", ""),
        ("{decay: 3}", "recipe.decay", "must be a section with fields, is 3", ""),
        ("3", "recipe", "must be a section with fields, is 3", ""),
    ],
)
@pytest.mark.parametrize("lr", ["0.01", "fast"])  # every problem at once
def test_a_wrong_setting_is_refused_like_every_other_field(typed, given, field, message, hint, lr):
    text = TINY.replace(b"0.01", lr.encode()) + f"recipe: {given}\n".encode()
    with pytest.raises(ConfigError) as caught:
        parse_config(text, file="c.yaml")
    *others, problem = caught.value.problems
    assert [one.field for one in others] == ["optimizer.lr"] * (lr == "fast")
    assert (problem.field, problem.hint, problem.file) == (field, hint, "c.yaml:7")
    assert message in problem.message


def test_a_setting_of_the_command_line_is_checked_and_named_as_it_was_set(typed):
    config = parse_config(TINY, file="c", overrides=["recipe.decay.steps=4K"])
    assert config.resolved()["recipe"]["decay"] == {"steps": 4096}
    assert parse_config(TINY + b"recipe:\n", file="c").recipe == {}
    with pytest.raises(ConfigError) as caught:
        parse_config(TINY, file="c", overrides=["recipe.smothing=1"])
    (problem,) = caught.value.problems
    assert (problem.field, problem.file) == ("recipe.smothing", "--set recipe.smothing=1")


def test_forms_and_the_reference_list_the_settings_of_a_recipe(typed):
    found = {doc.key: doc for doc in field_docs("causal_lm") if doc.section.startswith("recipe")}
    assert [*found] == ["recipe.smoothing", "recipe.kind", "recipe.decay.steps"]
    smoothing = found["recipe.smoothing"]
    assert (smoothing.type, smoothing.default) == ("number >= 0, < 1", "0.1")
    assert smoothing.meaning == "Share of the uniform distribution in each target."
    assert found["recipe.kind"].choices == ("uniform", "unigram")
    assert "recipe" in {doc.key for doc in field_docs("own_model:Mine")}  # whatever stands there
    page = render_reference().partition("## `causal_lm: recipe`")[2]
    for doc in found.values():
        assert f"| `{doc.key.rpartition('.')[2]}` |" in page
        default = doc.default.replace('"', "")
        assert f"{default}` | {doc.meaning} |" in page.replace('"', "")
    assert "## `causal_lm: recipe.decay`" in page


def test_without_settings_there_is_nothing_to_fill_in():
    assert not [doc for doc in field_docs("causal_lm") if doc.key.startswith("recipe")]


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
