"""The schema that a type has."""

from __future__ import annotations

import subprocess
import sys
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import jsonschema
import pytest

from albor_core.documents.json_schema import names, schema_of, type_schema
from albor_core.documents.shapes import Closed, Count, NotFinite, Share, StatusName, keywords
from albor_core.run.status import STATUSES


class Point(Closed):
    step: int
    """Of the
    optimizer.
    """
    value: float | None


class NamedPoint(Point):
    """A point and what it is called."""

    name: NotRequired[str]


_From = TypedDict("_From", {"from": Annotated[str, keywords(description="Where it was.")]})


class Curve(_From):
    points: list[NamedPoint]
    first: Point | None
    """Null of none."""


class LeafTree(TypedDict):
    name: str


class BranchTree(TypedDict):
    leaves: list[LeafTree]
    branches: dict[str, BranchTree]


class TreeDocument(TypedDict):
    root: BranchTree


@pytest.mark.parametrize(
    ("kind", "shape"),
    [
        (Any, {}),
        (str, {"type": "string"}),
        (bool | None, {"type": ["boolean", "null"]}),
        (str | float | None, {"type": ["string", "number", "null"]}),
        (list[Any], {"type": "array"}),
        (list[int] | None, {"type": ["array", "null"], "items": {"type": "integer"}}),
        (dict[str, Any], {"type": "object"}),
        (dict[str, str], {"type": "object", "additionalProperties": {"type": "string"}}),
        (Literal[True], {"const": True}),
        (Literal["a", "b"], {"enum": ["a", "b"]}),
        (Literal["a", "b"] | None, {"enum": ["a", "b", None]}),
        (Count, {"type": "integer", "minimum": 0}),
        (Share | None, {"type": ["number", "null"], "minimum": 0, "maximum": 1}),
        (StatusName, {"enum": list(STATUSES)}),
        (float | NotFinite, {"anyOf": [{"type": "number"}, {"enum": ["nan", "inf", "-inf"]}]}),
        (
            float | None | NotFinite,
            {"anyOf": [{"type": ["number", "null"]}, {"enum": ["nan", "inf", "-inf"]}]},
        ),
    ],
)
def test_a_type_has_the_schema_of_its_values(kind, shape):
    assert type_schema(kind) == shape
    jsonschema.Draft202012Validator.check_schema(shape)


def test_a_class_describes_its_fields_and_those_it_extends():
    step = {"type": "integer", "description": "Of the optimizer."}
    fields = {"step": step, "value": {"type": ["number", "null"]}}
    closed = {"additionalProperties": False}
    point = {"type": "object", "properties": fields, "required": ["step", "value"], **closed}
    named = {**point, "properties": {**fields, "name": {"type": "string"}}}
    named["description"] = "A point and what it is called."
    first = {**point, "type": ["object", "null"], "description": "Null of none."}
    assert type_schema(Curve) == {
        "type": "object",
        "properties": {
            "from": {"type": "string", "description": "Where it was."},
            "points": {"type": "array", "items": named},
            "first": first,
        },
        "required": ["from", "points", "first"],
    }


def test_a_class_that_holds_itself_is_said_once_by_name():
    whole = type_schema(TreeDocument)
    assert whole["properties"] == {"root": {"$ref": "#/$defs/branch"}}
    assert whole["$defs"].keys() == {"branch", "leaf"}
    validator = jsonschema.Draft202012Validator(whole)
    leaf = {"leaves": [{"name": "x"}], "branches": {}}
    assert validator.is_valid({"root": {"leaves": [], "branches": {"a": leaf}}})
    assert not validator.is_valid({"root": {"leaves": [], "branches": {"a": {"leaves": []}}}})


@pytest.mark.parametrize("name", names())
def test_every_document_has_a_title_a_description_and_its_name(name):
    whole = schema_of(name)
    jsonschema.Draft202012Validator.check_schema(whole)
    assert whole["title"] == f"{name}/1"
    assert whole["description"].endswith(".")
    is_row = name.startswith("albor.runs.export.")
    assert is_row or whole["properties"]["schema"] == {"const": f"{name}/1"}


def test_only_albor_schema_loads_the_types(tmp_path, monkeypatch):
    monkeypatch.setenv("ALBOR_HOME", str(tmp_path))
    code = (
        "import sys\nfrom albor_core.cli.main import cli\n"
        "cli.main(['runs', 'ls', '--json'], standalone_mode=False)\n"
        "sys.exit('albor_core.documents' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
