"""Runs by the value of a param, a metric or a column: one group a value, as one row. Pure."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from albor_core.run.light_dataclass import dataclass
from albor_core.run.status import worst_status
from albor_core.run.values.clean import natural_place
from albor_core.store.query.group import Band, band

MISSING = "missing"
"""The group of the runs that have no value."""
_NUMBER = re.compile(r"[+-]?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_EXPONENT = re.compile(r"e([+-]?)0*(?=[0-9])")
_DIGITS = 15  # decimals of so many digits each have a float of their own
_LONGEST = 22  # digits of a whole number that came as a float; a longer one has an exponent


@dataclass(frozen=True)
class RunGroup:
    """Runs of one value. `band` is of their figures, `state` the worst of their statuses."""

    label: str
    runs: tuple[str, ...]
    band: Band
    state: str


def group_label(value: Any) -> str:
    """The name of a value's group. Numbers are the same however they were written, also as text
    (YAML reads `1e-3` as one); lists and objects are JSON; None is "missing".
    """
    if isinstance(value, str):
        return _label_of_text(value)
    if value is None:
        return MISSING
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return _label_of_int(value)
    if isinstance(value, float):
        return _label_of_float(value)
    return _json(value)


def group_runs(
    runs: Sequence[str],
    values: Mapping[str, Any],
    figures: Mapping[str, float | None],
    states: Mapping[str, str],
) -> tuple[RunGroup, ...]:
    """The groups of runs by their values: numbers in order, then texts, the runs without a value
    last. In a group the runs stand as they were given.
    """
    members: dict[str, list[str]] = {}
    labels: dict[tuple[type, Any], str] = {}  # ten thousand runs have few values
    for run in runs:
        value = values.get(run)
        if not isinstance(value, str | float | int | None):
            label = group_label(value)
        elif (found := labels.get((type(value), value))) is not None:
            label = found
        else:
            label = labels[type(value), value] = group_label(value)
        members.setdefault(label, []).append(run)
    return tuple(
        RunGroup(
            label,
            tuple(some),
            band(figures.get(run) for run in some),
            worst_status({states[run] for run in some if run in states}),
        )
        for label, some in sorted(members.items(), key=lambda group: label_place(group[0]))
    )


def label_place(label: str) -> tuple[int, float, tuple[Any, ...]]:
    """Where a group stands among others, by its label."""
    if label == MISSING:
        return 2, 0.0, ()
    if _NUMBER.fullmatch(label) or label in ("inf", "-inf"):
        return 0, float(label), (label,)
    return 1, 0.0, natural_place(label.casefold())


def _label_of_text(text: str) -> str:
    if _NUMBER.fullmatch(text) and math.isfinite(float(text)):
        is_whole = text.lstrip("+-").isdigit()
        return _label_of_int(int(text)) if is_whole else _label_of_float(float(text))
    if text[:1] in ("[", "{"):  # as a store gives lists and objects
        try:
            return group_label(json.loads(text))
        except (ValueError, RecursionError):
            return text
    return json.dumps(text) if text in ("", MISSING) else text


def _label_of_int(value: int) -> str:
    """That of the float which is the same number, where there is one."""
    try:
        near = float(value)
    except OverflowError:
        return str(value)
    return _label_of_float(near) if value in (int(near), _written(near)) else str(value)


def _label_of_float(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isfinite(value) and value == int(value):
        whole = _written(value) or int(value)
        if len(str(abs(whole))) <= _LONGEST:
            return str(whole)
    return _EXPONENT.sub(lambda found: f"e{found[1].replace('+', '')}", repr(value))


def _written(value: float) -> int | None:
    """The whole number that a person wrote for a float, as 10**23 for 1e23, which is another one;
    None where it is nothing that a person writes.
    """
    digits = Decimal(repr(value))
    return int(digits) if len(digits.normalize().as_tuple().digits) <= _DIGITS else None


def _json(value: Any) -> str:
    """Data as JSON in which equal numbers are written alike."""
    if isinstance(value, Mapping):
        known = {str(key): one for key, one in value.items()}
        inside = (f"{_json(key)}: {_json(known[key])}" for key in sorted(known))
        return f"{{{', '.join(inside)}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_json, value))}]"
    if isinstance(value, int | float) and not isinstance(value, bool):
        return group_label(value)
    return json.dumps(value, ensure_ascii=False, default=str)
