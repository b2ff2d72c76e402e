"""Which matrices are worth rounding to fp8: those of a layer and the head, both ways: one GPU.

    python benchmarks/step/fp8_products.py [--shape 350m] [--batches 4 16 64] [--rounds 15]
                                           [--json FILE]

A matrix is multiplied three times a step: forward, for the gradient of its input and for its own.
"bf16" is torch.mm; "fp8" rounds input, weight and arriving gradient in both layouts, as
kernels/ops/fp8.py does, and multiplies those; the mlp's rounding is in its SwiGLU kernels, and so
is not counted for what these make. Both in the shapes of train_step.py at so many rows of 1,024,
each a CUDA graph, in turns; operands take turns, too, so that none is in the cache. "saved" is of
all layers, ms a step. The head is multiplied in pieces of tokens, as the fused step does it.
The results are compared with fp64 first: an fp8 product is within 6 % of what it is to be, by norm.
Exit code 2 without a GPU of sm_89 or later.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from train_step import SHAPES

from albor_core.kernels.ops import fp8

T, SETS, WARM, WORST = 1024, 4, 3, 0.06
PIECE = 16384  # tokens whose logits exist at one time


@dataclass(frozen=True)
class Matrix:
    """y = x @ w^T of one weight, and how many a step has of it."""

    name: str
    rows: int
    inside: int
    outside: int
    times: int
    is_x_made: bool = False
    is_dy_made: bool = False
    """Whether a kernel of the step makes it in fp8 at no cost."""
    is_w_made: bool = False
    """Whether the weight is rounded less often than it is multiplied."""


def matrices(shape: Any, tokens: int) -> list[Matrix]:
    D, L, F = shape.hidden_size, shape.num_hidden_layers, shape.intermediate_size
    heads = shape.num_attention_heads * shape.head_dim
    wide = heads + 2 * shape.num_key_value_heads * shape.head_dim
    piece = min(tokens, PIECE)
    return [
        Matrix("qkv", tokens, D, wide, L),
        Matrix("o", tokens, heads, D, L),
        Matrix("gate_up", tokens, D, 2 * F, L, is_dy_made=True),
        Matrix("down", tokens, F, D, L, is_x_made=True),
        Matrix("head", piece, D, shape.vocab_size, tokens // piece, is_w_made=tokens > piece),
    ]


class Operands:
    """x, w and dy of a matrix in bf16, rounded, and where results go."""

    def __init__(self, one: Matrix) -> None:
        def normal(*size: int) -> Tensor:
            return torch.randn(size, device="cuda", dtype=torch.bfloat16)

        self.one = one
        self.values = (
            normal(one.rows, one.inside),
            normal(one.outside, one.inside),
            normal(one.rows, one.outside),
        )
        x, w, dy = self.values
        self.results = [torch.empty_like(dy), torch.empty_like(x), torch.empty_like(w)]
        # each on 16 bytes of its own, as model/fp8.py has them
        self.scale, self.unscale = torch.ones(2, 3, 4, device="cuda")[..., 0]
        largest = torch.stack([value.abs().amax().float() for value in self.values])
        self.scale.copy_(fp8.LARGEST / largest)
        self.unscale.copy_(self.scale.reciprocal())
        self.seen = torch.zeros(3, fp8.SLOTS, device="cuda")
        self.made = [self._cast(at) for at in range(3)]

    def _cast(self, at: int) -> fp8.Both:
        return fp8.cast(self.values[at], self.scale[at], self.seen[at])

    def bf16(self) -> None:
        (x, w, dy), (y, dx, dw) = self.values, self.results
        torch.mm(x, w.t(), out=y)
        torch.mm(dy, w, out=dx)
        torch.mm(dy.t(), x, out=dw)

    def fp8(self) -> None:
        is_made = (self.one.is_x_made, self.one.is_w_made, self.one.is_dy_made)
        x, w, dy = (self.made[at] if is_made[at] else self._cast(at) for at in range(3))
        (one, two, three), (y, dx, dw) = self.unscale, self.results
        fp8.product(x.rows, w.rows, one, two, y, quick=True)
        fp8.product(dy.rows, w.columns, three, two, dx)
        fp8.product(dy.columns, x.columns, three, one, dw)

    def error(self) -> float:
        """The worst of the three results, by norm, against fp64 on some of its rows."""
        x, w, dy = (value.double() for value in self.values)
        some = slice(None, None, max(1, self.one.rows // 256))
        part = slice(0, 64)
        truths = (
            (x[some] @ w.t(), self.results[0][some]),
            (dy[some] @ w, self.results[1][some]),
            (dy[:, part].t() @ x, self.results[2][part]),
        )
        return max(float((got - truth).norm() / truth.norm()) for truth, got in truths)


def graph_of(work: Callable[[], None]) -> torch.cuda.CUDAGraph:
    for _ in range(WARM):
        work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph


def milliseconds(graphs: list[torch.cuda.CUDAGraph]) -> float:
    """Of one of them, on average."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for graph in graphs:
        graph.replay()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / len(graphs)


def measure(one: Matrix, rounds: int) -> dict[str, Any]:
    sets = [Operands(one) for _ in range(SETS)]
    errors = {}
    for kind in ("bf16", "fp8"):
        getattr(sets[0], kind)()
        errors[kind] = sets[0].error()
    if max(errors.values()) > WORST:
        raise SystemExit(f"{one.name}: wrong by {errors}")
    graphs = {kind: [graph_of(getattr(s, kind)) for s in sets] for kind in errors}
    found: dict[str, list[float]] = {kind: [] for kind in graphs}
    for turn in range(rounds + WARM):
        for kind in sorted(graphs, reverse=bool(turn % 2)):
            ms = milliseconds(graphs[kind])
            if turn >= WARM:
                found[kind].append(ms)
    bf16, in_fp8 = (statistics.median(found[kind]) for kind in ("bf16", "fp8"))
    return {
        "matrix": one.name,
        "bf16_ms": round(bf16, 4),
        "fp8_ms": round(in_fp8, 4),
        "ratio": round(in_fp8 / bf16, 3),
        "saved_ms_a_step": round(one.times * (bf16 - in_fp8), 3),
        "bf16_ms_a_step": round(one.times * bf16, 3),
        "error": {kind: round(error, 4) for kind, error in errors.items()},
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", default="350m", choices=SHAPES)
    parser.add_argument("--batches", type=int, nargs="+", default=[4, 16, 64])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    is_there = torch.cuda.is_available()
    if not is_there or torch.cuda.get_device_capability() < divmod(fp8.FIRST_ARCHITECTURE, 10):
        sys.stderr.write("benchmarks/step/fp8_products.py needs a GPU of sm_89 or later\n")
        return 2
    rows = []
    for batch in options.batches:
        for one in matrices(SHAPES[options.shape], batch * T):
            rows.append({"batch": batch, **measure(one, options.rounds)})
            print(json.dumps(rows[-1]), flush=True)
            torch.cuda.empty_cache()
    if options.json:
        report = {"device": torch.cuda.get_device_name(), "shape": options.shape, "rows": rows}
        options.json.write_text(json.dumps(report, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
