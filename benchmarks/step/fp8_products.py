"""Which matrices are worth rounding to fp8: those of a layer and the head, both ways: one GPU.

    python benchmarks/step/fp8_products.py [--shape 350m] [--batches 4 16 64] [--rounds 15]
                                           [--json FILE]

A matrix is multiplied three times a step: forward, for the gradient of its input and for its own.
"bf16" is torch.mm; "fp8" rounds input, weight and arriving gradient in both layouts, as
kernels/ops/mlp/fp8.py does, and multiplies those; what a SwiGLU kernel of the MLP makes in fp8 is
not rounded again (MADE). Both in the shapes of train_step.py at so many rows of 1,024, each a CUDA
graph, in turns; operands take turns, too, so that none is in the cache. "saved" is of all layers,
ms a step. The head is multiplied in pieces of tokens, as the fused step does it.
The results are compared with fp64 first: an fp8 product is within 6 % of what it is to be, by norm.
Exit code 2 without a GPU of sm_89 or later.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import Any

import torch
from kernels import captured
from torch import Tensor
from train_step import SHAPES, T

from albor_core.kernels.bench import Sizes, seconds
from albor_core.kernels.gemm import Gemm, step_products
from albor_core.kernels.ops.mlp import fp8
from albor_core.model.fused import LOGITS_BYTES
from albor_core.model.llama import LlamaConfig

sys.path.append(str(Path(__file__).resolve().parents[1]))
from arguments import new_file, positive

SETS, WARM, WORST = 4, 3, 0.06
X, W, DY = range(3)
MADE = {"ffn_gate_up": (DY,), "ffn_down": (X,), "lm_head": (W,)}
"""What is not rounded at each product: a SwiGLU kernel makes it in fp8; the head's weight, once for
all pieces, is not counted."""


def forward_products(shape: LlamaConfig, tokens: int) -> list[Gemm]:
    """y (m, n) = x (m, k) @ w (n, k)^T of each weight, and how many a step has of it."""
    sizes = Sizes(
        tokens, shape.hidden_size, shape.intermediate_size, shape.vocab_size,
        shape.num_attention_heads, shape.num_key_value_heads,
    )  # fmt: skip
    pieces = LOGITS_BYTES // (shape.vocab_size * torch.bfloat16.itemsize)
    found = step_products(sizes, shape.num_hidden_layers, pieces)
    return [one for one in found if one.when == "forward"]


class Operands:
    """x, w and dy of a product in bf16, rounded, and where its three results go."""

    def __init__(self, one: Gemm) -> None:
        def normal(*size: int) -> Tensor:
            return torch.randn(size, device="cuda", dtype=torch.bfloat16)

        self.values = normal(one.m, one.k), normal(one.n, one.k), normal(one.m, one.n)
        x, w, dy = self.values
        self.results = [torch.empty_like(dy), torch.empty_like(x), torch.empty_like(w)]
        # each on 16 bytes of its own, as model/fp8.py has them
        self.scale, self.unscale = torch.ones(2, 3, 4, device="cuda")[..., 0]
        largest = torch.stack([value.abs().amax().float() for value in self.values])
        self.scale.copy_(fp8.LARGEST / largest)
        self.unscale.copy_(self.scale.reciprocal())
        self.seen = torch.zeros(3, fp8.SLOTS, device="cuda")
        self.made = {at: self._cast(at) for at in MADE.get(one.name, ())}

    def _cast(self, at: int) -> fp8.Both:
        return fp8.cast(self.values[at], self.scale[at], self.seen[at])

    def bf16(self) -> None:
        (x, w, dy), (y, dx, dw) = self.values, self.results
        torch.mm(x, w.t(), out=y)
        torch.mm(dy, w, out=dx)
        torch.mm(dy.t(), x, out=dw)

    def fp8(self) -> None:
        x, w, dy = (self.made.get(at) or self._cast(at) for at in (X, W, DY))
        (one, two, three), (y, dx, dw) = self.unscale, self.results
        fp8.product(x.rows, w.rows, one, two, y, quick=True)
        fp8.product(dy.rows, w.columns, three, two, dx)
        fp8.product(dy.columns, x.columns, three, one, dw)

    def error(self) -> float:
        """The worst of the three results, by norm, against fp64 on some of its rows."""
        x, w, dy = (value.double() for value in self.values)
        some = slice(None, None, max(1, len(x) // 256))
        part = slice(0, 64)
        truths = (
            (x[some] @ w.t(), self.results[0][some]),
            (dy[some] @ w, self.results[1][some]),
            (dy[:, part].t() @ x, self.results[2][part]),
        )
        return max(float((got - truth).norm() / truth.norm()) for truth, got in truths)


def measure(one: Gemm, rounds: int) -> dict[str, Any]:
    sets = [Operands(one) for _ in range(SETS)]
    errors = {}
    for kind in ("bf16", "fp8"):
        getattr(sets[0], kind)()
        errors[kind] = sets[0].error()
    if max(errors.values()) > WORST:
        raise SystemExit(f"{one.name}: wrong by {errors}")
    graphs = {kind: [captured(getattr(operands, kind)) for operands in sets] for kind in errors}
    found: dict[str, list[float]] = {kind: [] for kind in graphs}
    for turn in range(rounds + WARM):
        for kind in sorted(graphs, reverse=bool(turn % 2)):
            spent = seconds(lambda replay: replay(), graphs[kind], torch.device("cuda"), SETS)
            if turn >= WARM:
                found[kind].append(1000 * spent)
    bf16, in_fp8 = (statistics.median(found[kind]) for kind in ("bf16", "fp8"))
    return {
        "matrix": one.name,
        "bf16_ms": round(bf16, 4),
        "fp8_ms": round(in_fp8, 4),
        "ratio": round(in_fp8 / bf16, 3),
        "saved_ms_a_step": round(one.per_step * (bf16 - in_fp8), 3),
        "bf16_ms_a_step": round(one.per_step * bf16, 3),
        "error": {kind: round(error, 4) for kind, error in errors.items()},
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", default="350m", choices=SHAPES)
    parser.add_argument("--batches", type=positive, nargs="+", default=[4, 16, 64])
    parser.add_argument("--rounds", type=positive, default=15)
    parser.add_argument("--json", type=new_file)
    options = parser.parse_args()
    is_there = torch.cuda.is_available()
    if not is_there or torch.cuda.get_device_capability() < divmod(fp8.FIRST_ARCHITECTURE, 10):
        sys.stderr.write("benchmarks/step/fp8_products.py needs a GPU of sm_89 or later\n")
        return 2
    rows = []
    for batch in options.batches:
        for one in forward_products(SHAPES[options.shape], batch * T):
            rows.append({"batch": batch, **measure(one, options.rounds)})
            print(json.dumps(rows[-1]), flush=True)
            torch.cuda.empty_cache()
    if options.json:
        report = {"device": torch.cuda.get_device_name(), "shape": options.shape, "rows": rows}
        options.json.write_text(json.dumps(report, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
