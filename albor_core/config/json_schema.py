"""The JSON Schema of a config file, for editors and for programs that write one: `albor schema
config`. Generated from the sections, so a field has one description.

What it cannot say is left to `albor train validate`: what must fit between two fields, and the
grammars inside texts (alert conditions, metrics). A config that validates may hold other spellings
of a word than the ones listed here (BF16 for bf16).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

from albor_core.config.config import Config
from albor_core.config.recipes.causal_lm import SHORTEST
from albor_core.config.recipes.own import CLASS
from albor_core.config.recipes.registry import DEFAULT, entries
from albor_core.config.sections.architecture import BIASES_OFF, BIASES_ON, ArchitectureConfig
from albor_core.config.sections.section import Section
from albor_core.config.text.fields import limits
from albor_core.run.values.numbers import WRITTEN

_BOUNDS = {"gt": "exclusiveMinimum", "ge": "minimum", "lt": "exclusiveMaximum", "le": "maximum"}
_NUMBER = {"type": "string", "pattern": f"^(?:{WRITTEN})$"}
_WORDS = {"enum": ["true", "false", "yes", "no", "on", "off"]}  # beside true and false


def config_schema() -> dict[str, Any]:
    """The schema, whole."""
    made = _schema_of(Config)
    whole = _allow_other_names(made["$defs"][ArchitectureConfig.__name__])
    _ask_by_recipe(made, whole)
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "albor config",
        "description": made.pop("description"),
    }
    return head | made


def _schema_of(root: type[Section]) -> dict[str, Any]:
    """A section and those below it, with bounds and spellings that validators hide."""
    made = root.model_json_schema()
    for section in {root, *_sections(root)}:
        part = made if section is root else made["$defs"][section.__name__]
        del part["title"]
        part["description"] = _line(part.get("description", ""))
        meanings = section.meanings()
        for name, field in section.model_fields.items():
            shape = part["properties"][name]
            shape.pop("title", None)
            shape["description"] = meanings[name]
            _bind(shape, dict(limits(field)))
            if shape.get("default", "") is None:
                _allow_nothing(shape)
        if "required" not in part:  # a section may be left empty; one type, so that what is wrong
            part["type"] = ["object", "null"]  # in it is refused where it stands
    return made


def _sections(section: type[Section]) -> Iterator[type[Section]]:
    """Every class of sections below `section`, those in lists too."""
    for field in section.model_fields.values():
        for part in (field.annotation, *get_args(field.annotation)):
            if isinstance(part, type) and issubclass(part, Section):
                yield part
                yield from _sections(part)


def _line(text: str) -> str:
    return " ".join(text.split())


def _bind(shape: dict[str, Any], bounds: dict[str, float]) -> None:
    """Write the bounds that a validator before pydantic's own hid, and how numbers and booleans
    may be spelled.
    """
    if "items" in shape:
        _bind(shape["items"], bounds)
    kinds = {branch.get("type") for branch in shape.get("anyOf", [shape])}
    for branch in shape.get("anyOf", [shape]):
        if branch.get("type") in ("integer", "number"):
            branch |= {_BOUNDS[word]: bound for word, bound in bounds.items()}
        elif branch == {"type": "string"} and kinds & {"integer", "number"}:
            branch |= _NUMBER
    if shape.get("type") == "boolean":
        del shape["type"]
        shape["anyOf"] = [{"type": "boolean"}, dict(_WORDS)]


def _allow_nothing(shape: dict[str, Any]) -> None:
    """`null` beside what may stand here: a default that is none, or is worked out. A section that
    has none may be left out, but not be null.
    """
    del shape["default"]
    if "anyOf" in shape and {"type": "null"} not in shape["anyOf"]:
        shape["anyOf"].append({"type": "null"})


def _allow_other_names(shape: dict[str, Any]) -> dict[str, Any]:
    """The names that other configs have for fields of the architecture, one of each; returned what
    a whole one has, which need not be there where weights have a config.json.
    """
    fields, required = shape["properties"], shape.pop("required")
    for alias, name in ArchitectureConfig.ALIASES.items():
        fields[alias] = {**fields[name], "description": f"The same as {name}."}
        required.remove(name)
    for name in ArchitectureConfig.BIASES:
        on = () if name == "mlp_bias" else BIASES_ON
        fields[name] = {"enum": [None, *BIASES_OFF, *on]}
    return {
        "required": required,
        "allOf": [
            {"anyOf": [{"required": [name]}, {"required": [alias]}]}
            for alias, name in ArchitectureConfig.ALIASES.items()
        ],
    }


def _ask_by_recipe(config: dict[str, Any], whole: dict[str, Any]) -> None:
    """Make fields optional in the schema if training.mode is a user's class, and only then."""
    weights = {"required": ["path"], "properties": {"path": {"not": {"enum": ["", "."]}}}}
    shaped = {"required": ["architecture"], "properties": {"architecture": whole}}
    own = {"required": ["mode"], "properties": {"mode": {"pattern": f"^{CLASS}$"}}}
    config["if"] = {"required": ["training"], "properties": {"training": own}}
    config["else"] = {
        "required": ["model"],
        "properties": {
            "model": {"type": "object", "if": weights, "else": shaped},
            "data": {
                "anyOf": [
                    {"required": ["train"]},
                    {"required": ["mixture"], "properties": {"mixture": {"minItems": 1}}},
                ],
                "properties": {"seq_len": {"minimum": SHORTEST}},
            },
            "recipe": {"maxProperties": 0},
        },
    }
    if typed := {name: one.settings for name, one in entries().items() if one.settings}:
        config["else"]["properties"]["recipe"] = {}
        shapes = {name: _schema_of(section) for name, section in typed.items()}
        for shape in shapes.values():
            config["$defs"] |= shape.pop("$defs", {})
        config["allOf"] = [*_by_mode(shapes)]


def _by_mode(typed: dict[str, dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The schemas of `recipe`, by the recipes that have settings; empty under the others."""

    def asks(names: list[str]) -> dict[str, Any]:
        mode: dict[str, Any] = {"properties": {"mode": {"enum": names}}}
        if DEFAULT in names:  # which is meant where none is said
            return {"properties": {"training": mode}}
        return {
            "required": ["training"],
            "properties": {"training": {"required": ["mode"], **mode}},
        }

    for name, shape in typed.items():
        yield {"if": asks([name]), "then": {"properties": {"recipe": shape}}}
    untyped = sorted(entries().keys() - typed.keys())
    yield {"if": asks(untyped), "then": {"properties": {"recipe": {"maxProperties": 0}}}}
