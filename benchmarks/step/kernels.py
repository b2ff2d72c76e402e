"""Every fused op beside torch eager, torch.compile, Liger and QuACK: one GPU.

    python benchmarks/step/kernels.py [--rows 16384] [--only NAME ...] [--places 5]
                                      [--rounds 5] [--json]

Rows x (H 1024, I 4096, V 32,768, 16 + 4 heads of 64), bf16, fp32 norm weights, random data. A time
is the median of replays of a CUDA graph that runs the op several times over rotating inputs larger
than the L2; the inputs are drawn anew before each replay, outside the clock, because some ops write
over them. Implementations are interleaved round by round: a drifting clock hits all alike. Where
tensors lie is worth up to 4 %: after --rounds all memory is given back and taken anew elsewhere, as
often as --places says; the median is over all rounds of all places.
Liger and QuACK (RMSNorm, cross-entropy) take part where they are installed.
Liger's cross-entropy waits for the host and is launched instead, host time included.
Attention by "cudnn" is RoPE's kernel there and back and cuDNN's both ways: what ours is instead of;
so are "passes" for SwiGLU with the product before it (up) and after it (down).
The forward records a gradient (ours writes that of cross-entropy in it). "%" is the least bytes the
op must move (each tensor read or written once) over the time, as a share of the copy rate measured
here at the start; "floor" is the time at 100 %. Exit code 2 without a GPU.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from albor_core.kernels.ops import cross_entropy
from albor_core.kernels.ops.attention import attention, rope
from albor_core.kernels.ops.mlp import swiglu, swiglu_down, swiglu_up
from albor_core.kernels.ops.norms import add_rms_norm, rms_norm

sys.path.append(str(Path(__file__).resolve().parents[1]))
from arguments import positive

H, I, V, HEADS, KV_HEADS, E, T = 1024, 4096, 32768, 16, 4, 64, 1024  # noqa: E741 -- the usual names
BF16 = 2  # bytes
NEEDS = {"liger": ("liger_kernel",), "quack": ("quack", "cutlass", "tvm_ffi")}
LAUNCHED = {("cross_entropy", "liger")}  # it reads counts on the host, which no graph can hold
Fn = Callable[..., Any]


@dataclass
class Contest:
    """One op: its candidates, how its inputs are drawn, and the least bytes it moves."""

    name: str
    candidates: dict[str, Fn]
    draw: Callable[[], list[Tensor]]
    forward_bytes: int
    step_bytes: int
    sets: int
    """Inputs to rotate through: together more than the L2."""
    constants: int = 0
    """Inputs at the end that take no gradient."""
    times: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Microseconds, (forward, forward and backward)."""


def random(*shape: int) -> Tensor:
    return torch.randn(shape, device="cuda", dtype=torch.bfloat16)


def weight() -> Tensor:
    return 1 + 0.1 * torch.randn(H, device="cuda")


def compiled(fn: Fn) -> Fn:
    return torch.compile(fn, dynamic=False)


def contests(rows: int) -> list[Contest]:
    """The ops at their sizes in a 350M model."""
    cos, sin = (table.cuda() for table in rope.tables(T, E))
    row, batch, turned = rows * H * BF16, rows // T, rows * (HEADS + KV_HEADS) * E * BF16

    def heads() -> list[Tensor]:
        return [random(batch, T, n, E).transpose(1, 2) for n in (HEADS, KV_HEADS)] + [cos, sin]

    def scored() -> list[Tensor]:
        return [random(rows, V), torch.randint(0, V, (rows,), device="cuda")]

    def contest(room: Any, name: str, draw: Callable[[], list[Tensor]], *rest: int) -> Contest:
        reference, ours = getattr(room, f"{name}_reference"), getattr(room, f"{name}_triton")
        peers = {"eager": reference, "compile": compiled(reference), "ours": ours}
        if passes := getattr(room, f"{name}_passes", None):
            peers["passes"] = passes
        return Contest(name, peers | others(name), draw, *rest)

    def moved(of_a_row: int, of_weights: int) -> int:
        return (rows * of_a_row + of_weights * H * I) * BF16

    eager = partial(attention.attention_reference, H=HEADS, K=KV_HEADS)
    attending = {
        "eager": eager,
        "compile": compiled(eager),
        "cudnn": partial(attention.attention_sdpa, H=HEADS, K=KV_HEADS),
        "ours": partial(attention.attention_triton, H=HEADS, K=KV_HEADS),
    }
    qkv = row + 2 * rows * KV_HEADS * E * BF16
    return [
        contest(rms_norm, "rms_norm", lambda: [random(rows, H), weight()], 2 * row, 5 * row, 6),
        contest(
            add_rms_norm,
            "add_rms_norm",
            lambda: [random(rows, H), random(rows, H), weight()],
            *(4 * row, 8 * row, 4),
        ),
        contest(rope, "rope", heads, 2 * turned, 4 * turned, 6, 2),
        contest(
            swiglu,
            "swiglu",
            lambda: [random(rows, 2 * I)],
            *(n * rows * I * BF16 for n in (3, 8)),
            3,
        ),
        contest(
            swiglu_up,
            "swiglu_up",
            lambda: [random(rows, H), random(2 * I, H) / H**0.5],
            *(moved(H + 2 * I, 2), moved(3 * H + 5 * I, 6), 2),
        ),
        contest(
            swiglu_down,
            "swiglu_down",
            lambda: [random(rows, 2 * I), random(H, I) / I**0.5],
            *(moved(H + 2 * I, 1), moved(2 * H + 6 * I, 3), 2),
        ),
        contest(cross_entropy, "cross_entropy", scored, *(n * rows * V * BF16 for n in (1, 2)), 2),
        Contest(
            "attention",
            attending,
            lambda: [random(batch, T, (HEADS + 2 * KV_HEADS) * E), cos, sin],
            *(qkv + row, 3 * qkv + 3 * row, 4, 2),
        ),
    ]


def missing(peer: str) -> str:
    """The first module that the peer needs and that is not installed."""
    return next((m for m in NEEDS[peer] if importlib.util.find_spec(m) is None), "")


def others(name: str) -> dict[str, Fn]:
    """The versions of other projects on the same arguments, where they are here and have one."""
    here = {peer: ops() for peer, ops in OTHERS.items() if not missing(peer)}
    return {peer: ops[name] for peer, ops in here.items() if name in ops}


def liger() -> dict[str, Fn]:
    from liger_kernel.ops import cross_entropy as ce
    from liger_kernel.ops import rms_norm as norm
    from liger_kernel.ops import rope as rotary
    from liger_kernel.ops import swiglu as gated
    from liger_kernel.ops.fused_add_rms_norm import LigerFusedAddRMSNormFunction as Added

    return {
        "rms_norm": lambda x, w: norm.LigerRMSNormFunction.apply(x, w, 1e-5),
        "add_rms_norm": lambda x, r, w: Added.apply(x, r, w, 1e-5),
        "rope": lambda q, k, c, s: rotary.LigerRopeFunction.apply(q, k, c[None], s[None]),
        "swiglu": lambda x: gated.LigerSiLUMulFunction.apply(*x.chunk(2, -1)),
        "cross_entropy": lambda x, y: ce.LigerCrossEntropyFunction.apply(x, y, None)[0],
    }


def quack() -> dict[str, Fn]:
    from quack import cross_entropy as scored
    from quack import rmsnorm

    return {
        "rms_norm": lambda x, w: rmsnorm(x, w, eps=1e-5),
        "add_rms_norm": lambda x, r, w: rmsnorm(x, w, residual=r, eps=1e-5, prenorm=True),
        # over its logits, as ours and Liger's
        "cross_entropy": lambda x, y: scored(x, y, inplace_backward=True),
    }


OTHERS: dict[str, Callable[[], dict[str, Fn]]] = {"liger": liger, "quack": quack}


def runner(
    fn: Fn, inputs: list[list[Tensor]], constants: int, backward: bool
) -> Callable[[int], None]:
    """Runs input set i and records a gradient; a fixed random upstream arrives in the backward."""
    wanted = [[t for t in s[: len(s) - constants] if t.is_floating_point()] for s in inputs]
    for leaf in (leaf for leaves in wanted for leaf in leaves):
        leaf.requires_grad_()
    upstream: list[Tensor] = []

    def run(i: int) -> None:
        out = fn(*inputs[i])
        outs = out if isinstance(out, tuple) else (out,)
        if not upstream:
            upstream.extend(torch.randn_like(o) if o.ndim else torch.ones_like(o) for o in outs)
        if backward:
            torch.autograd.grad(outs, wanted[i], upstream)

    return run


def repeated(run: Callable[[int], None], sets: int, repeats: int) -> Callable[[], None]:
    def launch() -> None:
        for i in range(repeats):
            run(i % sets)

    return launch


def captured(launch: Callable[[], None]) -> Callable[[], None]:
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        launch()  # compiles, and lets the allocator settle
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        launch()
    return graph.replay


def milliseconds(work: Callable[[], None]) -> float:
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    work()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end))


def measure(contest: Contest, places: int, rounds: int, backward: bool) -> dict[str, float]:
    """Median microseconds of one call of each candidate."""
    found: dict[str, list[float]] = {name: [] for name in contest.candidates}
    for place in range(places):
        shift = torch.empty(place * 37 << 20, device="cuda", dtype=torch.uint8)
        for name, times in measure_here(contest, rounds, backward).items():
            found[name].extend(times)
        del shift
        torch.cuda.empty_cache()
    return {name: statistics.median(times) for name, times in found.items()}


def measure_here(contest: Contest, rounds: int, backward: bool) -> dict[str, list[float]]:
    """Microseconds of one call of each candidate, by round; two rounds before them warm up."""
    inputs = [contest.draw() for _ in range(contest.sets)]
    fresh = [[t.clone() for t in tensors] for tensors in inputs]
    repeats = max(contest.sets, 2)
    runs = {  # kept: a graph reads their upstream gradients by address
        name: runner(fn, inputs, contest.constants, backward)
        for name, fn in contest.candidates.items()
    }
    launches = {name: repeated(run, contest.sets, repeats) for name, run in runs.items()}
    works = {
        name: launch if (contest.name, name) in LAUNCHED else captured(launch)
        for name, launch in launches.items()
    }
    found: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds + 2):
        for name, work in works.items():
            with torch.no_grad():
                for old, new in zip(inputs, fresh, strict=True):
                    for a, b in zip(old, new, strict=True):
                        a.copy_(b)
            found[name].append(milliseconds(work) * 1000 / repeats)
    return {name: times[2:] for name, times in found.items()}


def copy_rate() -> float:
    """Bytes per second, read and written together, of a large copy through the multiprocessors."""
    source = torch.randn(1 << 29, device="cuda", dtype=torch.bfloat16)
    target = torch.empty_like(source)
    times = [milliseconds(lambda: torch.add(source, 1, out=target)) for _ in range(12)]
    return 2 * source.numel() * BF16 / statistics.median(times[2:]) * 1000


def lines(contest: Contest, rate: float) -> list[str]:
    """One per implementation; ratio: how many times ours it takes, forward and backward."""
    ours, out = contest.times["ours"], []
    for name, (forward, step) in contest.times.items():
        share = [
            f"{100 * n / rate / us * 1e6:4.0f} %"
            for n, us in ((contest.forward_bytes, forward), (contest.step_bytes, step))
        ]
        cells = f"{forward:9.1f} {share[0]} {step:9.1f} {share[1]} {step / ours[1]:7.2f}x"
        out.append(f"{contest.name:14} {name:8} {cells}")
    floor = [n / rate * 1e6 for n in (contest.forward_bytes, contest.step_bytes)]
    return [*out, f"{contest.name:14} {'floor':8} {floor[0]:9.1f}        {floor[1]:9.1f}"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=positive, default=16384, help=f"a multiple of {T}")
    parser.add_argument("--places", type=positive, default=5, help="of the tensors in memory")
    parser.add_argument("--rounds", type=positive, default=5, help="at each place")
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--json", action="store_true", help="one JSON document instead of a table")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.stderr.write("benchmarks/step/kernels.py needs a CUDA GPU; torch sees none here\n")
        return 2
    if options.rows < T or options.rows % T:
        parser.error(f"--rows must be a multiple of {T}")
    torch.manual_seed(0)
    rate = copy_rate()
    every = contests(options.rows)
    names = [contest.name for contest in every]
    if unknown := set(options.only) - set(names):
        parser.error(f"--only: no {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    chosen = [contest for contest in every if not options.only or contest.name in options.only]
    device = torch.cuda.get_device_name()
    if not options.json:
        print(
            f"{device}, torch {torch.__version__}, copy {rate / 1e12:.2f} TB/s, {options.rows} rows"
        )
        for peer in OTHERS:
            if module := missing(peer):
                print(f"{peer}: not compared, {module} is not installed")
        print(
            f"{'op':14} {'':8} {'fwd us':>9} {'copy':>6} {'f+b us':>9} {'copy':>6} {'vs ours':>8}"
        )
    for contest in chosen:
        forward = measure(contest, options.places, options.rounds, backward=False)
        step = measure(contest, options.places, options.rounds, backward=True)
        contest.times = {name: (forward[name], step[name]) for name in contest.candidates}
        if not options.json:
            print("\n".join(lines(contest, rate)), flush=True)
    if options.json:
        times = {c.name: c.times for c in chosen}
        head = {"device": device, "torch": torch.__version__, "rows": options.rows}
        print(json.dumps({**head, "copy_bytes_per_s": rate, "microseconds": times}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
