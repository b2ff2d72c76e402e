"""The JSON Schema of a document, made from its type when it is asked for.

A class called `...Document` is a document: its field `schema` says its name. Its docstring, and
the string under a field, are the descriptions, read from the source. Every field is required but
for those marked `NotRequired`; an object may hold other fields too, if it is not `Closed`.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections import defaultdict
from functools import cache
from importlib import import_module
from itertools import pairwise
from pkgutil import iter_modules
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    NotRequired,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from albor_core import documents
from albor_core.documents.shapes import Closed

_SCALARS = {str: "string", int: "integer", float: "number", bool: "boolean", NoneType: "null"}


def names() -> list[str]:
    """Every document with a published schema."""
    return sorted(_types())


def schema_of(name: str) -> dict[str, Any]:
    """The whole JSON Schema of the document `name`."""
    body = type_schema(_types()[name])
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"{name}/1",
        "description": body.pop("description"),
    }
    return head | body


def type_schema(kind: Any) -> dict[str, Any]:
    """The schema of a type: what a value of it may be."""
    shapes = _Shapes(kind)
    made = shapes.of(kind)
    return made | ({"$defs": shapes.defs} if shapes.defs else {})


@cache
def _types() -> dict[str, Any]:
    """The type of each document, by its name."""
    found: dict[str, Any] = {}
    for info in iter_modules(documents.__path__, f"{documents.__name__}."):
        module = import_module(info.name)
        for one in filter(is_typeddict, vars(module).values()):
            if one.__module__ == info.name and one.__name__.endswith("Document"):
                (schema,) = get_args(_bare(_hints(one)["schema"]))
                found[schema.removesuffix("/1")] = one
        found |= getattr(module, "ROWS", {})
    return found


class _Shapes:
    """The schemas of one document's types."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._word = getattr(root, "__name__", "").removesuffix("Document")
        self.defs: dict[str, Any] = {}
        self._by_name = _holds_itself(root)

    def of(self, hint: Any) -> dict[str, Any]:
        """The schema of a type."""
        args = get_args(hint)
        match get_origin(hint) or hint:
            case _ if hint is Any:
                return {}
            case found if found is Annotated:
                return _marked(self.of(args[0]), *args[1:])
            case found if found is Literal:
                return {"enum": [*args]} if args[1:] else {"const": args[0]}
            case found if found in (Union, UnionType):
                return _union([self.of(one) for one in args])
            case found if found is list:
                items = self.of(args[0])
                return {"type": "array", **({"items": items} if items else {})}
            case found if found is dict:
                values = self.of(args[1])
                return {"type": "object", **({"additionalProperties": values} if values else {})}
            case found if is_typeddict(found):
                return self._named(found) if self._by_name else self._object(found)
        return {"type": _SCALARS[hint]}

    def _named(self, one: Any) -> dict[str, Any]:
        """Where a type holds itself, each below the document's own is said once, by its name."""
        if one is self._root:
            return self._object(one)
        name = one.__name__.removesuffix(self._word).lower()
        if name not in self.defs:
            self.defs[name] = {}
            self.defs[name] = self._object(one)
        return {"$ref": f"#/$defs/{name}"}

    def _object(self, one: Any) -> dict[str, Any]:
        hints, meanings = _hints(one), _meanings(one)
        fields = {}
        for name in sorted(hints, key=lambda name: name != "schema"):
            fields[name] = self.of(_bare(hints[name]))
            if name in meanings:
                fields[name]["description"] = meanings[name]
        made: dict[str, Any] = {
            "type": "object",
            "properties": fields,
            "required": [name for name in fields if get_origin(hints[name]) is not NotRequired],
        }
        if text := _source(one.__module__)[one.__name__][1]:
            made["description"] = text
        if any(base is Closed for base in _bases(one)):
            made["additionalProperties"] = False
        return made


def _holds_itself(root: Any) -> bool:
    """Whether a type is among those that its own fields are made of."""
    below: dict[Any, set[Any]] = {}

    def visit(hint: Any) -> set[Any]:
        if not is_typeddict(hint):
            return {found for one in get_args(hint) for found in visit(one)}
        if hint not in below:
            below[hint] = set()
            for one in _hints(hint).values():
                below[hint] |= visit(one)
        return {hint} | below[hint]

    visit(root)
    return any(one in found for one, found in below.items())


def _marked(shape: dict[str, Any], *marks: tuple[tuple[str, Any], ...]) -> dict[str, Any]:
    """The shape with the keywords beside its type; an `enum` stands for the type too."""
    said = {word: value for mark in marks for word, value in mark}
    if "enum" not in said:
        return shape | said
    module, _, registry = said["enum"].partition(":")
    return said | {"enum": list(getattr(import_module(module), registry))}


def _union(shapes: list[dict[str, Any]]) -> dict[str, Any]:
    """Any of the shapes, in as few words as they allow."""
    plain = [one["type"] for one in shapes if one.keys() == {"type"}]
    match [one for one in shapes if one.keys() != {"type"}]:
        case []:
            return {"type": plain}
        case [{"type": kind, **more}]:
            return {"type": [kind, *plain], **more}
        case [{"enum": values}] if plain == ["null"]:
            return {"enum": [*values, None]}
        case rich:
            return {"anyOf": [{"type": plain if plain[1:] else plain[0]}, *rich]}


@cache
def _hints(one: Any) -> dict[str, Any]:
    return get_type_hints(one, include_extras=True)


def _bare(hint: Any) -> Any:
    return get_args(hint)[0] if get_origin(hint) is NotRequired else hint


@cache
def _source(module: str) -> dict[str, tuple[list[str], str, dict[str, str]]]:
    """Of each class statement of a module: its bases, docstring, the string under each field."""
    found: dict[str, tuple[list[str], str, dict[str, str]]] = defaultdict(lambda: ([], "", {}))
    for one in ast.parse(inspect.getsource(sys.modules[module])).body:
        if isinstance(one, ast.ClassDef):
            bases = [base.id for base in one.bases if isinstance(base, ast.Name)]
            below = {}
            for item, after in pairwise(one.body):
                match item, after:
                    case (
                        ast.AnnAssign(target=ast.Name(id=name)),
                        ast.Expr(value=ast.Constant(value=str(text))),
                    ):
                        below[name] = " ".join(text.split())
            found[one.name] = bases, " ".join((ast.get_docstring(one) or "").split()), below
    return found


def _bases(one: Any) -> list[Any]:
    """The type and those it extends, which a `TypedDict` itself does not keep."""
    names = _source(one.__module__)[one.__name__][0]
    direct = [vars(sys.modules[one.__module__])[name] for name in names]
    return [one, *(far for base in direct if is_typeddict(base) for far in _bases(base))]


def _meanings(one: Any) -> dict[str, str]:
    """What the source says of each field."""
    found: dict[str, str] = {}
    for base in reversed(_bases(one)):
        found |= _source(base.__module__)[base.__name__][2]
    return found
