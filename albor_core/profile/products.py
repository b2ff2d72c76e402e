"""Finds the matrix products of a decoder among the operators of a trace. Pure.

Sizes alone do not identify all of them: q and the output of attention are alike in many models, and
so are a product of the forward pass and the input gradient of another. Their order does, since each
needs the result of an earlier one: if a trace has exactly the products that the model launches, one
micro-batch after the other, each is identified by its position. Otherwise (recomputed layers, a
compiled model, a second model, a fused part) products of equal sizes share their mean.

M is the tokens of a micro-batch, D hidden_size, F intermediate_size, V vocab_size.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from statistics import fmean

from albor_core.andon.bricks.names import parts_of
from albor_core.profile.trace import BRICK, StepTrace, TraceEvent
from albor_core.profile.workload import Workload

Sizes = tuple[int, int, int]
"""M, N, K of a product."""
FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT = "forward", "input gradient", "weight gradient"
PASSES = (FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT)
GEMM_OPS = ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "aten::_scaled_mm")
GEMM_KERNEL = re.compile(r"gemm|nvjet|cutlass.*(?:mm|tensorop)|cublas", re.IGNORECASE)
_OPERATORS = ("aten::mm", "aten::addmm", "aten::_scaled_mm", "aten::bmm")  # that a decoder calls
_BLOCK, _HEAD = ("attn_qkv", "attn_out", "ffn_gate_up", "ffn_down"), "lm_head"
_OF_MODEL = {"forward", "loss", "backward"}
"""Bricks with products of the model; an optimizer may have some of the same sizes."""
_Key = tuple[int, int, int]


@dataclass(frozen=True)
class ModelProduct:
    """One product of a micro-batch."""

    name: str
    when: str
    """One of PASSES."""
    sizes: Sizes
    parts: tuple[Sizes, ...]
    """Those that it may be computed in; where there is but one, `sizes` again."""
    per_step: int
    """Instances in a step of one rank."""

    def __str__(self) -> str:
        return f"{self.name} {self.when}"


@dataclass(frozen=True)
class Measured:
    """Mean microseconds of a product, with its parts added up; and the names of products that the
    trace cannot tell apart from it, whose times are included.
    """

    us: float
    shares_with: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Timed:
    """A matrix product of a trace; time None is an operator without a kernel. Microseconds."""

    key: _Key
    us: float | None


_Group = Sequence[tuple[_Key, ModelProduct]]
"""What is launched before or behind anything else: the parts of a product, or of both gradients."""


def model_products(workload: Workload) -> tuple[ModelProduct, ...]:
    """The products of a decoder with a known shape, in the order of the forward pass."""
    shape = workload.shape
    assert shape is not None
    tokens, width = workload.batch_size * workload.seq_len, shape.hidden_size
    blocks = workload.accumulation * shape.num_hidden_layers
    wide, narrow, inner = shape.query_width, shape.key_width, shape.intermediate_size
    linear = [
        ("attn_qkv", [wide, narrow, narrow], width, blocks),
        ("attn_out", [width], wide, blocks),
        ("ffn_gate_up", [inner, inner], width, blocks),
        ("ffn_down", [width], inner, blocks),
        (_HEAD, [shape.vocab_size], width, workload.accumulation),
    ]
    return tuple(
        ModelProduct(
            name,
            when,
            _sizes(when, tokens, sum(outs), ins),
            tuple(_sizes(when, tokens, out, ins) for out in outs),
            count,
        )
        for name, outs, ins, count in linear
        for when in PASSES
    )


def _sizes(when: str, tokens: int, out: int, ins: int) -> Sizes:
    """M, N, K of one pass of a linear layer from `ins` to `out`."""
    by_pass = {
        FORWARD: (tokens, out, ins),
        INPUT_GRADIENT: (tokens, ins, out),
        WEIGHT_GRADIENT: (out, ins, tokens),
    }
    return by_pass[when]


def measured(
    wanted: Sequence[ModelProduct], layers: int, trace: StepTrace
) -> Mapping[ModelProduct, Measured]:
    """The measured times of those of `wanted`, products of a model with this number of layers, that
    `trace` has."""
    keys = {_key(sizes) for one in wanted for sizes in (one.sizes, *one.parts)}
    launched = [one for one in _launched(trace) if one.key in keys]
    fits = [
        found
        for groups in _orders(wanted, layers)
        if (found := _by_place(launched, groups)) is not None
    ]
    return fits[0] if len(fits) == 1 else _by_sizes(wanted, launched)


def _key(sizes: Sizes) -> _Key:
    """The key under which a product and its transpose are the same."""
    m, n, k = sizes
    return (min(m, n), max(m, n), k)


def _launched(trace: StepTrace) -> Iterator[_Timed]:
    """The products of a trace in the order in which the host launched them, timed by their kernels
    if there are any, else by the operators.
    """
    kernels: dict[int, float] = defaultdict(float)
    for event in trace.device:
        if event.op is not None and event.kind == "kernel":
            kernels[event.op] += event.end - event.begin
    others = [
        event
        for event in trace.ranges
        if event.name.startswith(BRICK)
        and _OF_MODEL.isdisjoint(parts_of(event.name.removeprefix(BRICK)))
    ]
    begins = [event.begin for event in others]
    for op in trace.operators:
        sizes = _product_of(op) if op.name in _OPERATORS else None
        place = bisect_right(begins, op.begin) - 1
        if sizes is None or (place >= 0 and op.begin < others[place].end):
            continue
        by_kernel = None if op.op is None else kernels.get(op.op)
        yield _Timed(_key(sizes), by_kernel if trace.device else op.end - op.begin)


def _product_of(op: TraceEvent) -> Sizes | None:
    """The sizes of an operator's last two matrices; bmm's may have a batch of one."""
    matrices: Sequence[tuple[int, ...]] = [
        dims[-2:] for dims in op.dims if len(dims) == 2 or (len(dims) == 3 and dims[0] == 1)
    ]
    if len(matrices) < 2:
        return None
    if op.name in ("aten::mm", "aten::bmm", "aten::_scaled_mm"):
        (m, k), (inner, n) = matrices[0], matrices[1]
    else:
        (m, k), (inner, n) = matrices[-2], matrices[-1]
    return (m, n, k) if inner == k else None


def _orders(wanted: Sequence[ModelProduct], layers: int) -> Iterator[list[_Group]]:
    """Possible orders in which a micro-batch launches its products: with combined or separate
    parts, and with or without the head, which a loss may compute in chunks of other sizes.
    """
    found = {(one.name, one.when): one for one in wanted}
    in_parts = [name for name in _BLOCK if len(found[name, FORWARD].parts) > 1]
    for has_head, *are_whole in product((True, False), repeat=1 + len(in_parts)):
        whole = {name for name, is_whole in zip(in_parts, are_whole, strict=True) if is_whole}
        order = [*_BLOCK * layers, *([_HEAD] if has_head else [])]
        forward = [_group([found[name, FORWARD]], name in whole) for name in order]
        back = [
            _group([found[name, when] for when in PASSES[1:]], name in whole)
            for name in reversed(order)
        ]
        yield forward + back


def _group(products: Sequence[ModelProduct], is_whole: bool) -> _Group:
    return [
        (_key(sizes), one) for one in products for sizes in ([one.sizes] if is_whole else one.parts)
    ]


def _by_place(
    launched: Sequence[_Timed], groups: Sequence[_Group]
) -> dict[ModelProduct, Measured] | None:
    """Times by position; None unless `launched` is `groups` repeated. Order within a group is free,
    as autograd goes through the parts backwards.
    """
    length = sum(map(len, groups))
    if not launched or len(launched) % length:
        return None
    times: dict[ModelProduct, list[float]] = defaultdict(list)
    alike: dict[ModelProduct, tuple[str, ...]] = {}
    at = 0
    while at < len(launched):
        for group in groups:
            here = launched[at : at + len(group)]
            at += len(group)
            if sorted(one.key for one in here) != sorted(key for key, _ in group):
                return None
            for one in dict.fromkeys(one for _, one in group):
                keys = [key for key, other in group if other is one]
                alike[one] = tuple(
                    str(other)
                    for other in dict.fromkeys(other for key, other in group if key in keys)
                    if other is not one
                )
                if (us := _time_of(keys, here)) is not None:
                    times[one].append(us)
    return {one: Measured(fmean(found), alike[one]) for one, found in times.items()}


def _time_of(keys: Sequence[_Key], here: Sequence[_Timed]) -> float | None:
    """The time of the parts `keys` of one product among those `here`; None if one has no time."""
    found = [[one.us for one in here if one.key == key] for key in keys]
    if any(us is None for one in found for us in one):
        return None
    return sum(fmean(us for us in one if us is not None) for one in found)


def _by_sizes(
    wanted: Sequence[ModelProduct], launched: Sequence[_Timed]
) -> dict[ModelProduct, Measured]:
    """The mean over all operators with the sizes of a product, or of its parts. If both were
    launched, the one with a size unique to this product is used; if neither or both have such a
    size, none.
    """
    times: dict[_Key, list[float]] = defaultdict(list)
    for one in launched:
        if one.us is not None:
            times[one.key].append(one.us)
    means = {key: fmean(found) for key, found in times.items()}
    used: dict[ModelProduct, tuple[_Key, ...]] = {}
    for made in wanted:
        others = {
            _key(sizes)
            for other in wanted
            if other is not made
            for sizes in (other.sizes, *other.parts)
        }
        ways = {tuple(map(_key, sizes)) for sizes in ((made.sizes,), made.parts)}
        there = [way for way in ways if all(key in means for key in way)]
        if len(there) > 1:
            there = [way for way in there if not others.issuperset(way)]
        if len(there) == 1:
            used[made] = there[0]
    return {
        made: Measured(
            sum(means[key] for key in keys),
            tuple(
                str(other)
                for other, theirs in used.items()
                if other is not made and not {*keys}.isdisjoint(theirs)
            ),
        )
        for made, keys in used.items()
    }
