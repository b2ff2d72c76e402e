"""Each op's candidates timed here, at the sizes of a model: plain PyTorch, torch.compile, Triton.

A time is the median over interleaved rounds, so that a drifting clock hits all alike; forward alone
and forward with backward, with inputs drawn once and cycled (on a GPU through more than its L2
holds; values do not change a time, and some ops write over them). A candidate that fails parity is
listed with its number and not timed: the speed of a wrong result is irrelevant.
`benchmarks/step/kernels.py` also knows peers, bytes and graphs.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import cycle, islice

import torch
from torch import Tensor

from albor_core.kernels import dispatch
from albor_core.kernels.ops.attention.rope import tables
from albor_core.kernels.parity import Outputs, deviations

CYCLED_BYTES = 1 << 28  # several times any L2 so far
MOST_SETS = 16
ROUND_S = 0.002  # a shorter round is mostly the clock's own noise
PARITY_ELEMENTS = 1 << 22  # compiled candidates are held to parity on cases up to this size

Fn = Callable[..., Outputs]
Inputs = tuple[Tensor, ...]
Work = Callable[[list[Tensor]], None]
Timer = Callable[[Work, list[list[Tensor]], torch.device, int], float]
"""Seconds of one call of some work that is repeated over sets of leaves."""


@dataclass(frozen=True)
class Sizes:
    """A model as its kernels see it. `rows` are the tokens of a micro-batch."""

    rows: int
    hidden: int
    intermediate: int
    vocab: int
    heads: int
    kv_heads: int

    @property
    def head_dim(self) -> int:
        return self.hidden // self.heads

    def of_op(self, name: str) -> Sizes:
        """The same sizes with heads of 128, for an op that supports no others."""
        if name != "attention_128":
            return self
        kv_heads = max(1, self.kv_heads * self.head_dim // 128)
        return replace(self, heads=max(1, self.hidden // 128), kv_heads=kv_heads)

    def problem(self, ops: Iterable[str]) -> str:
        """A size that one of these ops does not support, or ""."""
        if not {"rope", *OF_HEADS}.intersection(ops):
            return ""
        if self.hidden % self.heads or self.head_dim % 2:
            return f"{self.hidden} numbers do not make {self.heads} heads of an even size"
        if self.heads % self.kv_heads:
            return f"{self.kv_heads} key/value heads do not divide {self.heads} query heads"
        return ""


OF_HEADS = ("rope_qkv", "qk_norm", "attention", "attention_128")
"""Ops on a fused buffer, which are told how many heads lie in it."""
LIKE_350M = Sizes(16384, 1024, 4096, 32768, 16, 4)
FOR_A_CPU = Sizes(512, 256, 1024, 4096, 8, 2)

_BY_ROW = {
    "intermediate": ("swiglu", "swiglu_up", "swiglu_down", "fp8"),
    "vocab": ("cross_entropy",),
    "hidden": ("rms_norm", "add_rms_norm", "rope", *OF_HEADS),
}
GROWS_WITH = {name: ("rows", size) for size, names in _BY_ROW.items() for name in names}
GROWS_WITH |= dict.fromkeys(("embedding", "adamw", "muon"), ("vocab", "hidden"))
"""The fields of `Sizes` that an op's memory is the product of."""


@dataclass(frozen=True)
class Timed:
    """One candidate. Microseconds; None where it was not timed, and `why` says why."""

    backend: str
    forward_us: float | None
    step_us: float | None
    """Forward and backward; None also for an op without gradients."""
    why: str = ""


@dataclass(frozen=True)
class Result:
    """One op on one device in one dtype."""

    op: str
    dtype: str
    shape: tuple[int, ...]
    chosen: str
    """What dispatch runs here, at such sizes."""
    candidates: tuple[Timed, ...]


def seconds(work: Work, leaves: list[list[Tensor]], device: torch.device, repeats: int) -> float:
    """The `Timer` of a device's own clock."""
    if device.type != "cuda":
        begun = time.perf_counter()
        for one in islice(cycle(leaves), repeats):
            work(one)
        return (time.perf_counter() - begun) / repeats
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for one in islice(cycle(leaves), repeats):
        work(one)
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) / 1000 / repeats


def bench(
    name: str,
    sizes: Sizes,
    device: torch.device,
    dtype: torch.dtype,
    *,
    rounds: int = 7,
    compiled: bool = False,
    timer: Timer = seconds,
) -> Result:
    """Time op `name`; KeyError for an unknown one. `compiled` adds torch.compile: seconds more."""
    op, sizes = dispatch.op(name), sizes.of_op(name)
    sets = _input_sets(name, sizes, device, dtype)
    able: dict[str, Fn] = {"reference": _sized(op, op.reference, sizes)}
    refused: list[Timed] = []
    if compiled:
        inductor = torch.compile(able["reference"], dynamic=False)
        _admit("inductor", inductor, _compiled_fault(op, device, dtype), able, refused)
    triton, fault = _sized(op, op.triton, sizes), dispatch.obstacle(name, device, dtype)
    _admit("triton", triton, fault or _misfit(triton, sets[0]), able, refused)
    times = _race(able, sets, device, rounds, timer)
    kind = str(dtype).removeprefix("torch.")
    best = dispatch.choose(name, device, dtype).backend
    chosen = best if best in able else "reference"
    return Result(name, kind, tuple(sets[0][0].shape), chosen, (*times, *refused))


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an allocator gave up: torch's on a CPU is known by its words alone."""
    words = ("can't allocate memory", "not enough memory", "Storage size calculation overflowed")
    is_told = isinstance(error, RuntimeError) and any(word in str(error) for word in words)
    return is_told or isinstance(error, MemoryError | torch.OutOfMemoryError)


def _admit(backend: str, fn: Fn, fault: str, able: dict[str, Fn], refused: list[Timed]) -> None:
    if fault:
        refused.append(Timed(backend, None, None, fault))
    else:
        able[backend] = fn


def _misfit(fn: Fn, inputs: Inputs) -> str:
    """Why a kernel does not take inputs of such shapes, or ""."""
    try:
        with torch.no_grad():
            fn(*inputs)
    except ValueError as error:
        return str(error)
    return ""


def _compiled_fault(op: dispatch.Op, device: torch.device, dtype: torch.dtype) -> str:
    """Why torch.compile's version of the reference may not be used, or ""."""
    try:
        for case in op.cases(device, dtype):
            if sum(t.numel() for t in case) > PARITY_ELEMENTS:
                continue
            fn = torch.compile(op.reference, dynamic=False)
            broken = [d for d in deviations(fn, op.reference, *case) if not d.is_accurate()]
            if broken:
                return "; ".join(map(str, broken))
    except Exception as error:  # no C++ compiler, no Triton, a bug: it is out of the race
        return f"{type(error).__name__}: {str(error)[:300]}"
    return ""


# -- inputs ----------------------------------------------------------------------------------------


def _sized(op: dispatch.Op, fn: Fn, sizes: Sizes) -> Fn:
    return partial(fn, H=sizes.heads, K=sizes.kv_heads) if op.name in OF_HEADS else fn


def _input_sets(name: str, sizes: Sizes, device: torch.device, dtype: torch.dtype) -> list[Inputs]:
    """Inputs of the op, so many that no cache holds them all."""
    source = torch.Generator(device).manual_seed(0)
    draws = _draws(name, sizes, device, dtype, source)
    first = next(draws)
    size = sum(t.numel() * t.element_size() for t in first)
    wanted = max(1, CYCLED_BYTES // size) if device.type == "cuda" else 1
    return [first, *islice(draws, min(MOST_SETS, wanted) - 1)]


def _beside_heads(name: str, T: int, E: int, source: torch.Generator) -> tuple[Tensor, ...]:
    """Further inputs of an op that rotates heads: norm weights if it has them, cos and sin of the
    positions.
    """
    if name not in ("rope", *OF_HEADS):
        return ()
    weights = 1 + 0.1 * torch.randn(2, E, generator=source, device=source.device)
    angles = (table.to(source.device) for table in tables(T, E))
    return (*(weights if name == "qk_norm" else ()), *angles)


def _draws(
    name: str, sizes: Sizes, device: torch.device, dtype: torch.dtype, source: torch.Generator
) -> Iterator[Inputs]:
    """One set of inputs after the other; weights and optimizer state in fp32, as in training."""
    T = min(sizes.rows, 1024)
    B, heads, kv, E = -(-sizes.rows // T), sizes.heads, sizes.kv_heads, sizes.head_dim

    def random(*shape: int, kind: torch.dtype = dtype) -> Tensor:
        return torch.randn(shape, generator=source, device=device).to(kind)

    def labels(high: int) -> Tensor:
        return torch.randint(0, high, (sizes.rows,), generator=source, device=device)

    constant = _beside_heads(name, T, E, source)
    weight = 1 + 0.1 * random(sizes.hidden, kind=torch.float32)
    while True:
        match name:
            case "rms_norm":
                yield random(sizes.rows, sizes.hidden), weight
            case "add_rms_norm":
                yield random(sizes.rows, sizes.hidden), random(sizes.rows, sizes.hidden), weight
            case "rope":
                q, k = (random(B, T, n, E).transpose(1, 2) for n in (heads, kv))
                yield q, k, *constant
            case "rope_qkv" | "qk_norm" | "attention" | "attention_128":
                yield random(B, T, (heads + 2 * kv) * E), *constant
            case "swiglu":
                yield (random(sizes.rows, 2 * sizes.intermediate),)
            case "swiglu_up":
                w = random(2 * sizes.intermediate, sizes.hidden) / sizes.hidden**0.5
                yield random(sizes.rows, sizes.hidden), w
            case "swiglu_down":
                w = random(sizes.hidden, sizes.intermediate) / sizes.intermediate**0.5
                yield random(sizes.rows, 2 * sizes.intermediate), w
            case "cross_entropy":
                yield random(sizes.rows, sizes.vocab), labels(sizes.vocab)
            case "embedding":
                yield labels(sizes.vocab), random(sizes.vocab, sizes.hidden)
            case "adamw":
                size = sizes.vocab * sizes.hidden
                p, m = (random(size, kind=torch.float32) for _ in range(2))
                control = torch.tensor([0.0, 0.5, 3e-4, 1e-3, 2.0], device=device)
                yield p, m, m.square(), random(size), control
            case "muon":
                size = sizes.vocab * sizes.hidden
                p, m = (random(size, kind=torch.float32) for _ in range(2))
                control = torch.tensor([0.0, 0.5, 0.02], device=device)
                yield p, m, random(size), random(size), control
            case "fp8":
                gate_up = random(sizes.rows, 2 * sizes.intermediate)
                da = random(sizes.rows, sizes.intermediate)
                yield gate_up, da, torch.tensor(100.0, device=device)
            case _:
                raise KeyError(f"no inputs are known for op {name!r}")


# -- the clock -------------------------------------------------------------------------------------


def _race(
    able: dict[str, Fn], sets: list[Inputs], device: torch.device, rounds: int, timer: Timer
) -> list[Timed]:
    """Every candidate in every round; the first warms up, the second says how often to repeat."""
    forward: dict[str, list[float]] = {name: [] for name in able}
    step: dict[str, list[float]] = {name: [] for name in able}
    has_backward = _has_gradient(able["reference"], sets[0])
    repeats = 1

    def fresh() -> list[list[Tensor]]:
        return [_leaves(inputs) for inputs in sets]

    for number in range(rounds + 2):
        for name, fn in able.items():
            forward[name].append(timer(partial(_forward, fn), fresh(), device, repeats))
            if has_backward:
                step[name].append(timer(partial(_both, fn), fresh(), device, repeats))
        if number == 1:
            fastest = min(times[-1] for times in forward.values())
            repeats = max(1, min(50, round(ROUND_S / fastest)))
    return [
        Timed(name, _median_us(forward[name]), _median_us(step[name]) if has_backward else None)
        for name in able
    ]


def _median_us(seconds: list[float]) -> float:
    return round(1e6 * statistics.median(seconds[2:]), 3)


def _has_gradient(fn: Fn, inputs: Inputs) -> bool:
    out = fn(*_leaves(inputs))
    return any(o.requires_grad for o in (out if isinstance(out, tuple) else (out,)))


def _leaves(inputs: Inputs) -> list[Tensor]:
    return [t.detach().requires_grad_(t.is_floating_point()) for t in inputs]


def _forward(fn: Fn, leaves: list[Tensor]) -> None:
    with torch.no_grad():
        fn(*leaves)


def _both(fn: Fn, leaves: list[Tensor]) -> None:
    out = fn(*leaves)
    outs = out if isinstance(out, tuple) else (out,)
    wanted = [leaf for leaf in leaves if leaf.requires_grad]
    torch.autograd.grad(outs, wanted, [o.detach() for o in outs], allow_unused=True)
