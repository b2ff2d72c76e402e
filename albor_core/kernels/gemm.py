"""The matrix products of a decoder's step, each beside the quickest way that the libraries have.

"Ours" is what the fused step runs for a product (model/fused.py, model/mlp.py): torch.mm, to where
the result belongs, or a kernel that does SwiGLU beside it. The ceiling is the fastest of what
libraries reach with the same numbers in any layout: torch.mm into a buffer and into new memory, all
four ways in which two factors may lie, F.linear; on a GPU each by cuBLAS and by cuBLASLt. All take
turns in every round, so that a drifting clock hits all alike.

What is wrong on a sample of rows and columns, against fp64, is listed and not timed. The clock is
that of a stream of launches that the device has not caught up with.

Letters  N rows, D hidden, I intermediate, V vocab. A layout has a letter for each factor of
         (M, K) @ (K, N): N where it lies so, row by row, T where its transpose does.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from albor_core.kernels.bench import CYCLED_BYTES, MOST_SETS, ROUND_S, Sizes, Timer, seconds
from albor_core.kernels.dispatch import use_triton
from albor_core.kernels.ops.mlp import swiglu_down, swiglu_up

LAYOUTS = ("NN", "NT", "TN", "TT")
LIBRARIES = ("cublas", "cublaslt")  # of a GPU; a CPU has what torch was built with
SAMPLED = 64  # rows and columns that are compared
HEAD_START_CYCLES = 1_000_000  # 0.5 ms of a GPU, in which a host launches a round
SQUARE = {"cuda": 8192, "cpu": 768}  # sides of the product that shows the sustained peak
SQUARE_ROUND_S = {"cuda": 0.02, "cpu": ROUND_S}  # a GPU comes to its power limit

Call = Callable[[Tensor, Tensor, Tensor], Tensor]
Operands = list[Tensor]
"""a (M, K), a as its transpose lies, b (K, N), b as its transpose lies, c (M, N); then what ours
reads instead of a and b, and where it writes.
"""

CALLS: dict[str, Call] = {
    "mm fresh": lambda a, b, c: torch.mm(a, b),
    "mm out": lambda a, b, c: torch.mm(a, b, out=c),
    "linear": lambda a, b, c: F.linear(a, b.t()),
}
"""What a library is asked by; c is a buffer of the result's shape."""


@dataclass(frozen=True)
class Gemm:
    """One product, (m, k) @ (k, n)."""

    name: str
    when: str
    """The pass it belongs to, as profile/roofline.py calls it; "product" for one that is alone."""
    m: int
    n: int
    k: int
    layout: str
    per_step: int = 1
    """Instances in a micro-batch."""
    how: str = "mm out"
    """What the fused step runs: one of CALLS, "addmm", "swiglu_up" or "swiglu_down"."""
    half: str = ""
    """The factor ("a", "b") that is the right half of a buffer twice as wide."""

    @property
    def flops(self) -> int:
        return 2 * self.m * self.n * self.k

    def bytes(self, size: int) -> int:
        """About the most that timing it holds at a time, in numbers of `size` bytes."""
        results = 6 if self.how == "swiglu_down" else 3
        wide = {one: 2 + 3 * (one == self.half) for one in "ab"}  # a doubled copy, while it is made
        factors = wide["a"] * self.m * self.k + wide["b"] * self.k * self.n
        return size * (factors + results * self.m * self.n)


class RouteTime(NamedTuple):
    """One way through a library. Microseconds, or why it was not timed."""

    route: str
    us: float | None
    why: str = ""


@dataclass(frozen=True)
class GemmTime:
    """A product, ours and by every route."""

    gemm: Gemm
    ours: RouteTime
    routes: tuple[RouteTime, ...] = field(repr=False)

    @property
    def ceiling(self) -> RouteTime | None:
        """The fastest route; None where all were wrong."""
        timed = [one for one in self.routes if one.us is not None]
        return min(timed, key=lambda one: one.us or 0.0) if timed else None

    @property
    def share(self) -> float | None:
        """The share of the ceiling's rate; above 1 if ours is faster."""
        best = self.ceiling
        return best.us / self.ours.us if best and best.us and self.ours.us else None

    @property
    def rate(self) -> float | None:
        """FLOP/s of ours."""
        return 1e6 * self.gemm.flops / self.ours.us if self.ours.us else None


def step_products(sizes: Sizes, layers: int, logits_rows: int) -> tuple[Gemm, ...]:
    """The products of the fused step, forward and both gradients; `logits_rows` are a chunk of the
    head's.
    """
    N, D, inner, V = sizes.rows, sizes.hidden, sizes.intermediate, sizes.vocab
    qkv = D + 2 * sizes.kv_heads * sizes.head_dim
    piece = min(N, logits_rows)
    linear = (
        ("attn_qkv", N, qkv, D, layers),
        ("attn_out", N, D, D, layers),
        ("ffn_gate_up", N, 2 * inner, D, layers),
        ("ffn_down", N, D, inner, layers),
        ("lm_head", piece, V, D, -(-N // piece)),
    )
    return tuple(one for sort in linear for one in _passes(*sort))


def _passes(name: str, rows: int, out: int, ins: int, count: int) -> Iterator[Gemm]:
    is_down, is_head = name == "ffn_down", name == "lm_head"
    ahead = "swiglu_up" if name == "ffn_gate_up" else "mm fresh"
    back = "swiglu_down" if is_down else "mm out" if is_head else "mm fresh"
    weight = "addmm" if is_head else "mm out"
    half = ("a", "b") if is_down else ("", "")
    yield Gemm(name, "forward", rows, out, ins, "NT", count, ahead, half[0])
    yield Gemm(name, "input gradient", rows, ins, out, "NN", count, back)
    yield Gemm(name, "weight gradient", out, ins, rows, "TN", count, weight, half[1])


def shape_products(m: int, n: int, k: int) -> tuple[Gemm, ...]:
    """One product by itself, each way its factors may lie."""
    return tuple(Gemm("shape", "product", m, n, k, layout) for layout in LAYOUTS)


def square(device: torch.device) -> Gemm:
    """The large product whose best rate is the device's sustained peak."""
    side = SQUARE.get(device.type, SQUARE["cpu"])
    return Gemm("square", "product", side, side, side, "NT")


def sustained(
    device: torch.device, dtype: torch.dtype, *, rounds: int = 7, timer: Timer | None = None
) -> float | None:
    """FLOP/s of `square` by the fastest of all ways; None where all were wrong."""
    lasts = SQUARE_ROUND_S.get(device.type, ROUND_S)
    found = time_gemm(square(device), device, dtype, rounds=rounds, timer=timer, round_s=lasts)
    times = [one.us for one in (found.ours, *found.routes) if one.us]
    return 1e6 * found.gemm.flops / min(times) if times else None


def step_share(times: list[GemmTime]) -> float | None:
    """The time of a step's products at their ceilings over ours; None if one was not timed."""
    pairs = [(t.gemm.per_step, t.ours.us, t.ceiling.us if t.ceiling else None) for t in times]
    if not pairs or any(ours is None or best is None for _, ours, best in pairs):
        return None
    return sum(n * (best or 0) for n, _, best in pairs) / sum(n * (us or 0) for n, us, _ in pairs)


def time_gemm(
    gemm: Gemm,
    device: torch.device,
    dtype: torch.dtype,
    *,
    rounds: int = 7,
    timer: Timer | None = None,
    round_s: float = ROUND_S,
) -> GemmTime:
    """Check all ways, then time them: medians over interleaved rounds."""
    sets = _operand_sets(gemm, device, dtype)
    label, ours, fault = _ours(gemm, sets[0])
    able: dict[str, tuple[Work, str]] = {}
    refused = {"": fault(sets[0])}
    if not refused[""]:
        able[""] = ours, ""
    routes = list(_routes(gemm, device))
    for name, work, library in routes:
        with _blas(library):
            refused[name] = _sampled_fault(work, sets[0], dtype)
        if not refused[name]:
            able[name] = work, library
    times = _race(able, sets, device, rounds, timer or _queued, round_s)
    return GemmTime(
        gemm,
        RouteTime(label, times.get(""), refused[""]),
        tuple(RouteTime(name, times.get(name), refused[name]) for name, _, _ in routes),
    )


# -- ways to a product -----------------------------------------------------------------------------

Work = Callable[[Operands], Tensor]
Fault = Callable[[Operands], str]


def _routes(gemm: Gemm, device: torch.device) -> Iterator[tuple[str, Work, str]]:
    """Name, work, and the library that is asked."""
    for library in LIBRARIES if device.type == "cuda" else ("",):
        for call in CALLS:
            for layout in ("NT",) if call == "linear" else LAYOUTS:
                work = partial(_through, call, layout)
                yield " ".join(filter(None, (call, layout, library))), work, library


def _through(call: str, layout: str, one: Operands) -> Tensor:
    return CALLS[call](one["NT".index(layout[0])], one[2 + "NT".index(layout[1])], one[4])


def _ours(gemm: Gemm, one: Operands) -> tuple[str, Work, Fault]:
    """Name, work, and what is wrong with its result, or ""."""
    a, b, c = one[5:]
    if gemm.how == "swiglu_up":
        w = b.t()  # (2 I, D), row by row
        if not swiglu_up.misfit(len(a), a, w) and use_triton("swiglu_up", a):
            return "swiglu_up (SwiGLU in it)", _project, _project_fault
        return "mm out, in halves", _in_halves, _fault_of(_in_halves)
    if gemm.how == "swiglu_down":
        if not swiglu_down.misfit(len(a), a, c, b) and use_triton("swiglu_down", a):
            return "swiglu_down (SwiGLU in it)", _gradients, _gradients_fault
        return "mm fresh", _fresh, _fault_of(_fresh)
    if gemm.how == "addmm":
        add = partial(_add, 1.0 if gemm.per_step > 1 else 0.0)
        return "addmm out", add, _fault_of(add)
    work = partial(_own, gemm.how)
    return gemm.how, work, _fault_of(work)


def _own(call: str, one: Operands) -> Tensor:
    return CALLS[call](*one[5:])


def _fresh(one: Operands) -> Tensor:
    return one[5] @ one[6]


def _add(beta: float, one: Operands) -> Tensor:
    a, b, c = one[5:]
    return torch.addmm(c, a, b, beta=beta, out=c)


def _in_halves(one: Operands) -> Tensor:
    """The product half of its columns at a time, as swiglu_up's passes, in new memory."""
    a, b = one[5:7]
    c = a.new_empty(a.shape[0], b.shape[1])
    middle = b.shape[1] // 2
    for part in (slice(middle), slice(middle, None)):
        torch.mm(a, b[:, part], out=c[:, part])
    return c


def _project(one: Operands) -> Tensor:
    return swiglu_up.project(one[5], one[6].t())


def _gradients(one: Operands) -> Tensor:
    """Both are written over gate and up, which later rounds read as such."""
    dy, w, gate_up = one[5:]
    swiglu_down.swiglu_down_backward(dy, w, gate_up)
    return gate_up


# -- is it right? ----------------------------------------------------------------------------------


def _fault_of(work: Work) -> Fault:
    return lambda one: _sampled_fault(work, one, one[4].dtype)


def _sampled_fault(work: Work, one: Operands, dtype: torch.dtype) -> str:
    """A fault of a product, or ""; buffers are cleared, so an older result cannot pass."""
    one[4].fill_(math.nan)
    one[7].zero_()  # what ours writes to, which one way adds to
    found = work(one)
    rows, columns = (_spread(size, found.device) for size in found.shape)
    truth = one[0][rows].double() @ one[2][:, columns].double()
    return _misses(found[rows][:, columns], truth, one[0].shape[1])


def _spread(size: int, device: torch.device) -> Tensor:
    """Evenly over all of them, first and last included; fp32 has no odd numbers from 2^24 on."""
    steps = min(size, SAMPLED)
    return torch.linspace(0, size - 1, steps, dtype=torch.float64, device=device).long()


def _misses(found: Tensor, truth: Tensor, k: int) -> str:
    """Why it is not `truth` (fp64), or "". Allowed are the rounding of a result and of parts of it,
    and eight standard deviations of sums of k numbers in fp32.
    """
    size, wide = truth.square().mean().sqrt(), truth.abs()
    unit = torch.finfo(found.dtype).eps
    allowed = unit * (wide + 4 * size) + 8 * math.sqrt(k) * 2.0**-24 * size
    error = (found.double() - truth).abs()
    if bool((error <= allowed).all()):  # NaN is not
        return ""
    worst = float((error / allowed).nan_to_num(math.inf).max())
    return f"wrong: errs {worst:.3g} times what rounding may"


def _project_fault(one: Operands) -> str:
    """Gate, and SwiGLU of it over up."""
    x, w = one[5], one[6].t()
    found = _project(one)
    rows = _spread(len(x), x.device)
    gate, up = (x[rows].double() @ w.double().t()).chunk(2, dim=-1)
    return _misses(found[rows], torch.cat((gate, F.silu(gate) * up), -1), x.shape[1])


def _gradients_fault(one: Operands) -> str:
    """Both gradients, from gate and a = silu(gate) * up."""
    dy, w, gate_up = one[5:]
    rows = _spread(len(dy), dy.device)
    gate, a = gate_up[rows].double().chunk(2, dim=-1)
    sigmoid, da = gate.sigmoid(), dy[rows].double() @ w.double()
    up = a / (gate * sigmoid)
    dgate = da * up * sigmoid * (1 + gate * (1 - sigmoid))
    return _misses(_gradients(one)[rows], torch.cat((dgate, da * gate * sigmoid), -1), w.shape[0])


# -- operands --------------------------------------------------------------------------------------


def _operand_sets(gemm: Gemm, device: torch.device, dtype: torch.dtype) -> list[Operands]:
    """So many sets of operands that no cache of a GPU holds them all."""
    source = torch.Generator(device).manual_seed(0)
    first = _operands(gemm, source, device, dtype)
    size = sum(t.numel() * t.element_size() for t in first)
    wanted = max(1, CYCLED_BYTES // size) if device.type == "cuda" else 1
    more = range(min(MOST_SETS, wanted) - 1)
    return [first, *(_operands(gemm, source, device, dtype) for _ in more)]


def _operands(
    gemm: Gemm, source: torch.Generator, device: torch.device, dtype: torch.dtype
) -> Operands:
    def random(*shape: int) -> Tensor:
        return torch.randn(shape, generator=source, device=device, dtype=dtype)

    a, b = random(gemm.m, gemm.k), random(gemm.k, gemm.n).div_(gemm.k**0.5)
    ways = [a, _turned(a), b, _turned(b)]
    own = [ways["NT".index(gemm.layout[0])], ways[2 + "NT".index(gemm.layout[1])]]
    if gemm.half:
        which = "ab".index(gemm.half)
        own[which] = torch.cat((own[which], own[which]), 1)[:, own[which].shape[1] :]
    c = torch.empty(gemm.m, gemm.n, device=device, dtype=dtype)
    if gemm.how != "swiglu_down":
        return [*ways, c, *own, torch.zeros_like(c)]
    gate, up = random(gemm.m, gemm.n), random(gemm.m, gemm.n)
    return [*ways, c, *own, torch.cat((gate, F.silu(gate) * up), 1)]


def _turned(t: Tensor) -> Tensor:
    """The same numbers, column by column."""
    return t.t().contiguous().t()


# -- the clock -------------------------------------------------------------------------------------


def _queued(
    work: Callable[[Operands], object],
    leaves: list[Operands],
    device: torch.device,
    repeats: int,
) -> float:
    """`seconds`, of a device that is busy while the host launches: its haste does not decide."""
    if device.type == "cuda":
        torch.cuda._sleep(HEAD_START_CYCLES)
    return seconds(work, leaves, device, repeats)  # type: ignore[arg-type]  # results are dropped


@contextmanager
def _blas(library: str) -> Iterator[None]:
    """torch's products by one library; "" leaves the choice to torch."""
    if not library:
        yield
        return
    before = torch.backends.cuda.preferred_blas_library()
    torch.backends.cuda.preferred_blas_library(library)
    try:
        yield
    finally:
        torch.backends.cuda.preferred_blas_library(before)


def _race(
    able: dict[str, tuple[Work, str]],
    sets: list[Operands],
    device: torch.device,
    rounds: int,
    timer: Timer,
    round_s: float,
) -> dict[str, float]:
    """Median microseconds of each. The first round warms up, the second says how often to repeat;
    every other goes backwards: none always comes after the same.
    """
    times: dict[str, list[float]] = {name: [] for name in able}
    repeats = 1
    for number in range(rounds + 2 if able else 0):
        for name in list(able)[:: -1 if number % 2 else 1]:
            work, library = able[name]
            with _blas(library):
                times[name].append(timer(work, sets, device, repeats))  # type: ignore[arg-type]
        if number == 1:
            fastest = min(found[-1] for found in times.values())
            repeats = max(1, min(50, round(round_s / fastest)))
    return {name: round(1e6 * statistics.median(found[2:]), 3) for name, found in times.items()}
