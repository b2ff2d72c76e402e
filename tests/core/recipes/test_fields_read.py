"""Which fields of a config a recipe reads: those that it does not are refused by name."""

import inspect
import re
from pathlib import Path
from typing import Literal, get_args, get_origin

import pytest
import typed_recipe
import yaml

import albor_core
from albor_core.config.config import Config
from albor_core.config.load import parse_config
from albor_core.config.recipes import registry
from albor_core.config.recipes.entry import SOME_READ
from albor_core.config.recipes.registry import NAMES
from albor_core.config.sections.section import Section
from albor_core.config.text.fields import FieldTree, field_paths
from albor_core.plan.recipes.own import DECODERS_ALONE, notes
from albor_core.run.errors import ConfigError

ROOT = Path(albor_core.__path__[0])
OTHER = {  # texts and lists say for themselves what else may stand there
    "data.curriculum": [{"from": 8, "weights": {"b": 1}}],
    "data.fim": {"rate": 0.5},
    "data.mixture": [{"path": "a", "weight": 1}, {"path": "b", "weight": 1}],
    "data.val_mixture": [{"path": "a", "weight": 1}],
    "training.batch_ramp": [{"until": 2, "gradient_accumulation": 1}],
    "training.continue_from": "elsewhere",
    "training.mode": None,
    "training.output_dir": "elsewhere",
    "training.sample_prompts": ["def f"],
    "training.seq_len_ramp": [{"until": 2, "seq_len": 32}],
    "training.compile": True,
    "training.grad_clip": 1.0,
    "training.stability.z_loss": 1e-4,
    "training.distributed.world_size": 2,
    "training.activation_checkpointing": True,
}
BESIDE = {  # what a field does not stand without
    "data.curriculum": ("data.mixture",),
    "training.batch_ramp": ("training.gradient_accumulation",),
}
ASKED = tuple(one for one in field_paths(Config) if one.startswith("training.") or one in SOME_READ)


def other_value(path):
    field = (
        FieldTree(Config)
        .section_at(tuple(path.split(".")[:-1]))
        .model_fields[path.rpartition(".")[2]]
    )
    now = field.get_default(call_default_factory=True, validated_data={})
    if path in OTHER:
        return OTHER[path]
    if isinstance(now, bool):
        return not now
    if get_origin(field.annotation) is Literal:
        return next(word for word in get_args(field.annotation) if word != now)
    return 4 if now is None else type(now)(now * 0.5) or 1


def config_with(mode, *paths):
    config = yaml.safe_load(typed_recipe.TINY)
    config["data"]["tokenizer"] = "t"
    config["training"]["mode"] = mode
    for path in paths:
        *sections, name = path.split(".")
        place = config
        for section in sections:
            place = place.setdefault(section, {})
        place[name] = other_value(path)
    for taken in ("train", "val"):
        if f"{'val_' if taken == 'val' else ''}mixture" in config["data"]:
            del config["data"][taken]
    return yaml.safe_dump(config).encode()


@pytest.mark.parametrize("reads", [(), tuple(SOME_READ)], ids=["none", "all"])
@pytest.mark.parametrize("mode", [*NAMES, "mine:Own"])
def test_a_field_is_read_by_a_recipe_or_refused_with_those_that_read_it(mode, reads, monkeypatch):
    """Every field of the section `training`, and all that only some recipes read."""
    typed_recipe.give_settings(monkeypatch, reads)
    readers = " and ".join(NAMES if reads else ())
    for path in ASKED:
        if OTHER.get(path, "") is None:
            continue
        raw = config_with(mode, path, *BESIDE.get(path, ()))
        try:
            parse_config(raw, file="c.yaml")
            found = {}
        except ConfigError as error:
            found = {one.field: one for one in error.problems if " alone, and " in one.message}
        entry = registry.entry_of(mode)
        is_unread = path in SOME_READ and (entry is None or path not in entry.reads)
        assert (path in found) == is_unread, path
        assert {*found} <= {path, *BESIDE.get(path, ())}
        if is_unread:
            ends = f"read by {readers} alone, and training.mode is {mode}"
            assert found[path].message.endswith(ends)
            assert found[path].file.startswith("c.yaml:") and found[path].hint


def test_no_field_that_only_a_recipe_reads_is_left_out_of_the_lists():
    """Of the section `training`, those that recipes look up and the loop does not."""
    of_recipes = lookups("recipes") - lookups("train", "data", "checkpoint")
    assert {"training.stability.z_loss", "training.residual_in_fp32"} <= of_recipes
    assert of_recipes <= {*SOME_READ, *DECODERS_ALONE}


def lookups(*folders):
    """Leaves of `training` that modules look up, also by a method of a section."""
    files = [file for folder in folders for file in (ROOT / folder).rglob("*.py")]
    chains = {f".{one}" for file in files for one in re.findall(r"[\w.]+", file.read_text())}
    return {path for path in field_paths(Config) if is_looked_up(path, chains)}


def is_looked_up(path, chains):
    """Whether `training.seed`, `stability.zclip` or a method such as `training.segments` is."""
    section, _, name = path.rpartition(".")
    if not section.startswith("training"):
        return False
    owner = FieldTree(Config).section_at(tuple(section.split(".")))
    methods = [one for one, value in vars(owner).items() if inspect.isfunction(value)]
    by = [one for one in methods if f"self.{name}" in inspect.getsource(getattr(owner, one))]
    wanted = tuple(f".{section.rpartition('.')[2]}.{one}" for one in (name, *by))
    return any(chain.endswith(wanted) for chain in chains)


@pytest.mark.parametrize("path", DECODERS_ALONE)
def test_what_a_class_reads_by_extending_ours_is_noted_where_it_is_set(path):
    plain = parse_config(config_with("mine:Own"), file="c.yaml")
    assert not [note for note in notes(plain, None) if "has no effect" in note]
    section, _, name = path.rpartition(".")
    value = getattr(getattr(plain, section), name)
    other = value.model_copy(update={"mirrored": False}) if isinstance(value, Section) else "other"
    part = getattr(plain, section).model_copy(update={name: other})
    changed: Config = plain.model_copy(update={section: part})
    (note,) = [note for note in notes(changed, None) if "has no effect" in note]
    assert note.startswith(f"{path} has no effect unless")
