"""Nested plain data as dotted paths, as text in a line, and what differs between two. Standard
library only."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

Scalar = str | float | int | bool | None
Difference = tuple[str, Scalar, Scalar]


def flatten(data: Any, prefix: str = "") -> dict[str, Scalar]:
    """Every scalar by its path, list elements by their index, in the order of `data`.

    An empty mapping or list leaves nothing.
    """
    return dict(_leaves(data, prefix))


def _leaves(data: Any, path: str) -> Iterator[tuple[str, Scalar]]:
    if isinstance(data, Mapping):
        pairs: Iterator[tuple[Any, Any]] = iter(data.items())
    elif isinstance(data, list | tuple):
        pairs = iter(enumerate(data))
    else:
        yield path, data
        return
    for key, value in pairs:
        yield from _leaves(value, f"{path}.{key}" if path else str(key))


def nested(leaves: Mapping[str, Any]) -> Any:
    """The data that `flatten` made these leaves of, in which keys 0, 1, ... make a list."""
    whole: dict[str, Any] = {}
    for path, value in leaves.items():
        *above, last = path.split(".")
        place = whole
        for part in above:
            inner = place.setdefault(part, {})
            place = inner if isinstance(inner, dict) else {}
        place[last] = value
    return _listed(whole)


def _listed(data: Any) -> Any:
    if not isinstance(data, dict):
        return data
    items = {key: _listed(value) for key, value in data.items()}
    places = [str(index) for index in range(len(items))]
    return [items[place] for place in places] if {*items} == {*places} else items


def bare(value: Any) -> str:
    """A value as people read it in a line of them: a word as it is, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, default=str)


def bare_leaves(
    data: Mapping[str, Any], prefix: str = "", *, whole: bool = False
) -> dict[str, str]:
    """Fields by their dotted keys as people read them; lists and empty mappings are fields, and
    with `whole` all mappings besides what they hold.
    """
    found: dict[str, str] = {}
    for key, value in data.items():
        name, is_section = f"{prefix}{key}", isinstance(value, Mapping) and bool(value)
        if is_section:
            found |= bare_leaves(value, f"{name}.", whole=whole)
        if whole or not is_section:
            found[name] = bare(value)
    return found


def diff_configs(a: Mapping[str, Any], b: Mapping[str, Any]) -> tuple[Difference, ...]:
    """(path, value in a, value in b) where they differ, in the order of a, then b.

    Absent counts as null, which is what leaving a field out means. 1 and 1.0 are equal, 1 and true
    are not.
    """
    left, right = flatten(a), flatten(b)
    paths = [*left, *(path for path in right if path not in left)]
    return tuple(
        (path, left.get(path), right.get(path))
        for path in paths
        if not _same(left.get(path), right.get(path))
    )


def _same(a: Scalar, b: Scalar) -> bool:
    return a == b and isinstance(a, bool) == isinstance(b, bool)
