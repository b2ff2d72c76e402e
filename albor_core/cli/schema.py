"""`albor schema NAME`: the JSON Schema of a document that some command prints or a run writes, and
of the config file.

A file in schemas/ says what is the document's own; `schema_of` adds what all have in common. What a
file says itself stands; an `enum` may name a registry (`MODULE:NAME`), whose names it then lists.
"""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from albor_core.cli.common.output import emit, json_option, print_line, write_stdout
from albor_core.run.errors import NotFoundError

FOLDER = Path(__file__).parent / "schemas"
CONFIG = "config"  # its schema is that of the sections


def names() -> list[str]:
    """Every document with a published schema."""
    return sorted(path.stem for path in FOLDER.glob("*.json"))


def schema_of(name: str) -> dict[str, Any]:
    """The whole JSON Schema of the document `name`: an object that names its schema, in which every
    property that is described is required, at every depth, unless the file has `required` there.
    """
    said = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    own = said.pop("properties")
    if said.pop("is_document", True):  # a row or line of an export does not name its schema
        own = {"schema": {"const": f"{name}/1"}, **own}
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"{name}/1",
        "description": said.pop("description"),
        "type": "object",
        "properties": own,
    }
    whole: dict[str, Any] = _with_required(head | said)
    return whole


def _with_required(said: Any) -> Any:
    """`said`, where each object that lists its properties requires them all if nothing is said."""
    if isinstance(said, list):
        return [_with_required(part) for part in said]
    if not isinstance(said, dict):
        return said
    is_object = "object" in said.get("type", ()) and "properties" in said
    whole: dict[str, Any] = {}
    for key, value in said.items():
        if is_object and key == "properties":  # their names are no words of JSON Schema
            whole[key] = {name: _with_required(part) for name, part in value.items()}
            whole["required"] = said.get("required", list(value))
        elif key == "enum" and isinstance(value, str):
            module, _, registry = value.partition(":")
            whole[key] = list(getattr(import_module(module), registry))
        elif key not in whole:
            whole[key] = _with_required(value)
    return whole


@click.command()
@click.argument("name", required=False)
@json_option
def schema(name: str | None, as_json: bool) -> None:
    """Print the JSON Schema called NAME; without a name, list the names.

    `albor schema config` is the schema of the config file, for an editor or a program that writes
    one; the others describe what commands print and what run directories hold.
    """
    if name is None:
        known = [*names(), CONFIG]
        if as_json:
            emit({"schema": "albor.schema/1", "names": known})
        else:
            print_line("\n".join(known))
        return
    stem = name.removesuffix("/1")
    if stem == CONFIG:
        from albor_core.config.json_schema import config_schema

        whole = config_schema()
    elif stem in names():
        whole = schema_of(stem)
    else:
        raise NotFoundError(f"no schema {name!r}", hint="albor schema")
    write_stdout(json.dumps(whole, indent=1, ensure_ascii=False) + "\n")
