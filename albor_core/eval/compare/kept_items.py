"""Compares the stored items of two evaluations: their figures and their texts."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import log
from pathlib import Path
from typing import Any

from albor_core.eval.compare.paired import Value
from albor_core.eval.compare.sheet import Pair
from albor_core.run.errors import DataError

Item = Mapping[str, Any]


@dataclass(frozen=True)
class KeptFigure:
    """A figure of stored items; `value` reads an item's part of it."""

    name: str
    better: str
    value: Callable[[Item], Value]


FIGURES: Mapping[str, tuple[KeptFigure, ...]] = {
    "text": (KeptFigure("bpb", "min", lambda one: (-one["logprob"] / log(2), one["bytes"])),),
    "choice": (
        KeptFigure("accuracy", "max", lambda one: (float(one["is_right"]), 1.0)),
        KeptFigure("accuracy_norm", "max", lambda one: (float(one["is_right_norm"]), 1.0)),
    ),
    "fim": (
        KeptFigure("exact_match", "max", lambda one: (float(one["is_exact"]), 1.0)),
        KeptFigure("line_match", "max", lambda one: (float(one["is_line"]), 1.0)),
    ),
    "code": (KeptFigure("pass@1", "max", lambda one: (one["passed"] / one["samples"], 1.0)),),
}
"""By kind of task, those that are a sum over items."""
_SAME = ("bytes", "answer", "middle", "prompt")  # of an item, whichever model is asked


def read_items(path: Path) -> dict[str, Item]:
    """Items by name. Raises DataError naming file and line."""
    found: dict[str, Item] = {}
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise DataError(f"{path}: cannot be read: {reason}", hint=_AGAIN) from error
    for number, line in enumerate(text.splitlines(), 1):
        try:
            item = json.loads(line)
            found[item["item"]] = item
        except (ValueError, TypeError, KeyError) as error:
            raise DataError(f"{path}:{number}: is not an item", hint=_AGAIN) from error
    return found


_AGAIN = "evaluate again: albor eval apply --force"


def check_same(a: Mapping[str, Item], b: Mapping[str, Item], task: str) -> None:
    """Raise DataError if items of one name come from different data, or if no item is in both."""
    shared = a.keys() & b.keys()
    if not shared:
        raise DataError(f"{task}: no item is in both", hint="evaluate both on the same data")
    for item in sorted(shared):
        for name in _SAME:
            if a[item].get(name) != b[item].get(name):
                what = f"{task}: item {item!r} is not the same in both: {name!r} differs"
                raise DataError(what, hint="evaluate both on the same data")


def values(items: Mapping[str, Item], figure: KeptFigure, task: str) -> dict[str, Value]:
    """The value of each item. Raises DataError for an item that lacks a field of the figure. Items
    of size 0, which have no value, are left out.
    """
    found = {}
    for name, item in items.items():
        try:
            amount, size = figure.value(item)
        except (KeyError, TypeError, ZeroDivisionError) as error:
            what = f"{task}: item {name!r} has no {figure.name}"
            raise DataError(what, hint=_AGAIN) from error
        if size:
            found[name] = amount, size
    return found


def pairs(a: Mapping[str, Item], b: Mapping[str, Item]) -> list[Pair]:
    """Pairs of completions, first with first, that differ between the two evaluations."""
    found = []
    for item in a:
        if item in b and (of_a := _text(a[item])) != (of_b := _text(b[item])):
            found.append(Pair(item, str(a[item].get("prompt", "")), of_a, of_b))
    return found


def _text(item: Item) -> str:
    written = item.get("completions") or [""]
    return str(written[0])
