"""`albor model weights` for people: a table of layers by parts, and one tensor's histogram."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from albor_core.cli.common.output import clean, table
from albor_core.run.errors import NotFoundError
from albor_core.run.values.quantity import percent

_EIGHTHS = " \u2581\u2582\u2583\u2584\u2585\u2586\u2587\u2588"
Tensor = Mapping[str, Any]


def by_layer(tensors: Sequence[Tensor]) -> Iterator[str]:
    """Root mean squares, a row a layer; what is of no layer below."""
    inside = [one for one in tensors if one["layer"] is not None]
    parts = [*dict.fromkeys(one["part"] for one in inside)]
    rms = {(one["layer"], one["part"]): one["rms"] for one in inside}
    layers = sorted({one["layer"] for one in inside})
    heads = ("layer", *(part.partition(".")[2] or part for part in parts))
    if layers:
        rows = [(str(n), *(_number(rms.get((n, part))) for part in parts)) for n in layers]
        yield table(heads, rows, right=heads)
    rows = [(one["part"], _number(one["rms"])) for one in tensors if one["layer"] is None]
    if rows:
        yield table(("elsewhere", "rms"), rows, right="rms")


def one_tensor(tensors: Sequence[Tensor], name: str) -> Iterator[str]:
    """The figures and the distribution of one tensor. Raises NotFoundError."""
    found = next((one for one in tensors if one["name"] == name), None)
    if found is None:
        near = next((one["name"] for one in tensors if one["name"].endswith(name)), "")
        hint = f"--tensor {near}" if near else "without --tensor all are listed"
        raise NotFoundError(f"no tensor {name!r} that holds floats", hint=hint)
    yield clean(found["name"])
    for key in ("dtype", "count", "read", "nonfinite"):
        value = found[key]
        yield f"  {key:<9} {value:,}" if isinstance(value, int) else f"  {key:<9} {value}"
    for key in ("mean", "rms", "minimum", "maximum"):
        yield f"  {key:<9} {_number(found[key])}"
    yield f"  {'zeros':<9} {percent(found['zeros'], 2)}"
    top = max(found["counts"], default=0) or 1
    bars = "".join(_EIGHTHS[-(-8 * count // top)] for count in found["counts"])
    low, high = found["edges"]
    yield f"  {bars}"
    yield f"  {_number(low)} to {_number(high)}, {len(found['counts'])} bins"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"
