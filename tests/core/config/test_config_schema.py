"""`albor schema config`: what a config may hold, as JSON Schema, generated from the sections."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path

import jsonschema
import pytest
from click.testing import CliRunner

from albor_core.cli.main import cli
from albor_core.config.config import Config
from albor_core.config.json_schema import config_schema
from albor_core.config.load import load_config, parse_config
from albor_core.config.sections.architecture import ArchitectureConfig
from albor_core.config.sections.section import Section
from albor_core.config.text.fields import children, limits
from albor_core.config.text.strict_yaml import load_yaml
from albor_core.run.errors import ConfigError
from albor_core.run.values.numbers import WRITTEN

ROOT = Path(__file__).resolve().parents[3]
FILES = [
    *sorted({*(ROOT / "configs").rglob("*.yaml")} - {*(ROOT / "configs/data").glob("*")}),
    Path(__file__).parent / "pretrain-350m-v2.yaml",
]
SCHEMA = config_schema()
CHECK = jsonschema.Draft202012Validator(SCHEMA)


def data(path=FILES[0]):
    return load_yaml(path.read_bytes(), file=str(path)).data


def refusals(config):
    return [(".".join(map(str, e.absolute_path)), e.message) for e in CHECK.iter_errors(config)]


def changed(dotted, value):
    """The demo's config with one more value, as a file would hold it."""
    config = copy.deepcopy(data())
    *path, last = dotted.split(".")
    place = config
    for part in path:
        place = place.setdefault(part, {})
    place[last] = value
    return config


def is_read(config):
    try:
        parse_config(json.dumps(config).encode(), file="c.yaml")
    except ConfigError:
        return False
    return True


def test_the_schema_is_a_schema_and_the_command_prints_it():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    printed = CliRunner().invoke(cli, ["schema", "config"])
    assert printed.exit_code == 0
    assert json.loads(printed.output) == SCHEMA
    assert "config" in CliRunner().invoke(cli, ["schema"]).output.split()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_config_that_people_have_fits_and_so_does_what_it_resolves_to(path):
    assert refusals(data(path)) == []
    assert refusals(load_config(path).config.resolved()) == []


@pytest.mark.parametrize(
    ("dotted", "value", "place"),
    [
        ("optimizer.learning_rate", 3e-4, "optimizer"),
        ("optimizr", {}, ""),
        ("monitoring.alerts", [{"condition": "loss > 1", "when": "now"}], "monitoring.alerts.0"),
        ("model.architecture.n_layer", 3, "model.architecture"),
        ("guard.patience", 3, "guard"),
    ],
)
def test_a_wrong_field_is_refused_where_it_stands(dotted, value, place):
    found = refusals(changed(dotted, value))
    assert [where for where, _ in found] == [place]
    assert re.search("Additional properties are not allowed", found[0][1])
    assert not is_read(changed(dotted, value))


@pytest.mark.parametrize("name", ["model", "data", "optimizer", "training"])
def test_a_section_that_must_be_there_is_missed(name):
    config = data()
    del config[name]
    assert refusals(config) == [("", f"'{name}' is a required property")]


@pytest.mark.parametrize(
    ("dotted", "value"),
    [
        ("training.max_steps", "10K"),
        ("training.max_steps", "1_000"),
        ("training.max_steps", 1e6),
        ("optimizer.lr", "3e-4"),
        ("optimizer.min_lr", None),
        ("training.eval_interval", None),
        ("training.mixed_precision", "no"),
        ("training.compile", "auto"),
        ("training.deterministic", "yes"),
        ("monitoring.tracking.tags", {"year": 2026, "is_new": True}),
        ("monitoring.alerts", [{"condition": "loss > 1", "action": "warn"}]),
        ("monitoring.budgets", {"tokens": "10M", "action": "warn", "soft": "0.5"}),
        ("monitoring", None),
        ("guard", None),
        ("guard.backoff_s", [0.5, "1"]),
        ("model.architecture.mlp_bias", False),
    ],
)
def test_what_a_config_may_spell_otherwise_is_accepted(dotted, value):
    assert refusals(changed(dotted, value)) == []
    assert is_read(changed(dotted, value))


@pytest.mark.parametrize(
    ("dotted", "value"),
    [
        ("training.max_steps", "many"),
        ("training.max_steps", 1.5),
        ("training.max_steps", True),
        ("training.device", "tpu"),
        ("optimizer.name", "sgd"),
        ("optimizer.lr", None),
        ("training.deterministic", "perhaps"),
        ("guard.backoff_s", []),
        ("guard.backoff_s", [-1]),
        ("data", None),
        ("monitoring.notify", [{"kind": "pigeon"}]),
        ("model.architecture.mlp_bias", True),
    ],
)
def test_a_wrong_value_is_refused(dotted, value):
    assert refusals(changed(dotted, value)) != []
    assert not is_read(changed(dotted, value))


def test_the_other_names_of_the_architecture_stand_for_their_fields():
    config = data()
    shape = config["model"]["architecture"]
    for alias, name in ArchitectureConfig.ALIASES.items():
        shape[alias] = shape.pop(name)
    assert refusals(config) == [] and is_read(config)
    del shape["num_layers"]
    assert len(refusals(config)) == 1 and not is_read(config)


def test_an_architecture_may_be_left_out_where_weights_say_it():
    config = data()
    config["model"] = {"path": "weights", "architecture": {"rope_theta": 1e6}}
    assert refusals(config) == []
    del config["model"]["architecture"]
    assert refusals(config) == []
    config["model"]["path"] = "."
    assert len(refusals(config)) == 1


def numbers(section: type[Section] = Config, path: str = ""):
    """Each dotted field that has bounds, with a value beyond each."""
    for name, child in children(section).items():
        if child is not None:
            yield from numbers(child, f"{path}{name}.")
            continue
        field = section.model_fields[name]
        is_list = str(field.annotation).startswith("tuple")
        for word, bound in limits(field):
            value = bound if word in ("gt", "lt") else bound + (1 if word == "le" else -1)
            if value != bound or word in ("gt", "lt"):  # 2**62 + 1 is itself as a double
                yield pytest.param(
                    path + name, [value] if is_list else value, id=path + name + word
                )


@pytest.mark.parametrize(("dotted", "value"), numbers())
def test_the_bound_of_every_field_is_in_the_schema(dotted, value):
    assert [where for where, _ in refusals(changed(dotted, value))][:1]
    assert not is_read(changed(dotted, value))


def test_numbers_are_written_as_the_schema_says():
    assert re.fullmatch(WRITTEN, "32_768") and re.fullmatch(WRITTEN, "1.5m")
    assert not re.fullmatch(WRITTEN, "1.5x")
