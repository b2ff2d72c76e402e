"""Clipping and AdamW of a whole model, beside torch's: one GPU.

    python benchmarks/step/optimizer.py [--rounds 15] [--updates 8] [--json]

432,063,488 fp32 parameters: the tensors of the 350M shape with a head of its own. "ours" takes bf16
gradients and "ours, fp32 gradients" what several micro-batches add up to; both also write the bf16
weights that the next forward reads. "torch" is clip_grad_norm_ and AdamW(fused=True), fp32
gradients, no bf16 weights. A time is the median over rounds of --updates updates in a row; random
gradients are drawn anew before each round, outside the clock, and candidates take turns. "GB/s"
counts what an update must move once: weights and moments read and written, gradients read twice,
in torch's also written by the clip, and bf16 weights written. "error" is the largest difference of
a weight's first update from the same in fp64, in units of the rate. Exit code 2 without a GPU.
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from albor_core.model.flat import FlatParameters
from albor_core.model.llama import Llama, LlamaConfig, init_weights, param_groups
from albor_core.train.optim.adamw import FlatAdamW
from albor_core.train.optim.clipping import Clip

sys.path.append(str(Path(__file__).resolve().parents[1]))
from arguments import positive

SHAPE = LlamaConfig(1024, 24, 16, 4, 4096, 32768, 1024, tie_word_embeddings=False)
HYPER: dict[str, Any] = {"lr": 3e-4, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1}
CLIP = 1.0


@dataclass
class Candidate:
    """One way to clip and update a model."""

    name: str
    model: nn.Module
    gradients: dict[str, Tensor]
    """By parameter; drawn anew by whoever measures."""
    update: Callable[[], object]
    bytes_per_parameter: int
    ms: list[float] = field(default_factory=list)


def ours(start: Llama, *, accumulates: bool) -> Candidate:
    model = copy.deepcopy(start)
    flat = FlatParameters(model, torch.bfloat16)
    optimizer = FlatAdamW(flat, **HYPER, accumulates=accumulates)
    loss, clip = torch.ones((), device=flat.matrices.master.device), Clip(CLIP)
    sums = zip((flat.matrices, flat.vectors), optimizer.gradients(), strict=True)
    gradients = {name: part.view(total, name) for part, total in sums for name in part.places}
    name, width = ("ours, fp32 gradients", 4) if accumulates else ("ours", 2)
    moved = 6 * 4 + 2 * width + 2
    return Candidate(name, model, gradients, lambda: optimizer.step(loss, clip), moved)


def torchs(start: Llama) -> Candidate:
    model = copy.deepcopy(start)
    on_gpu = next(model.parameters()).is_cuda
    optimizer = torch.optim.AdamW(param_groups(model, HYPER["weight_decay"]), **HYPER, fused=on_gpu)
    parameters = list(model.parameters())
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}

    def update() -> None:
        nn.utils.clip_grad_norm_(parameters, CLIP)
        optimizer.step()

    return Candidate("torch", model, gradients, update, 6 * 4 + 3 * 4)


def draw(candidate: Candidate, seed: int) -> None:
    """The same random gradients for every candidate, rounded to what it takes."""
    source = torch.Generator(next(candidate.model.parameters()).device).manual_seed(seed)
    for _, gradient in sorted(candidate.gradients.items()):
        fresh = torch.empty_like(gradient, dtype=torch.float32)
        gradient.copy_(fresh.normal_(0, 1e-3, generator=source))


@torch.no_grad()
def first_error(candidate: Candidate) -> float:
    """Takes the candidate's first update."""
    draw(candidate, seed=0)
    named = dict(candidate.model.named_parameters())
    before = {name: p.double() for name, p in named.items()}
    exact = {name: g.double() for name, g in candidate.gradients.items()}
    norm = torch.stack([g.square().sum() for g in exact.values()]).sum().sqrt()
    candidate.update()
    lr, worst = HYPER["lr"], 0.0
    for name, p in named.items():
        g = exact[name] * (CLIP / norm).clamp(max=1.0)
        decay = HYPER["weight_decay"] if p.ndim > 1 else 0.0
        wanted = before[name] * (1 - lr * decay) - lr * g / (g.abs() + HYPER["eps"])
        worst = max(worst, float((p - wanted).abs().max()) / lr)
    return worst


def milliseconds(work: Callable[[], object], times: int) -> float:
    """Of one call, out of several in a row."""
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(times):
        work()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) / times


def compare(start: Llama, rounds: int, updates: int) -> dict[str, Any]:
    makers = (lambda: ours(start, accumulates=False), lambda: ours(start, accumulates=True))
    candidates = [*(make() for make in makers), torchs(start)]
    errors = {candidate.name: first_error(candidate) for candidate in candidates}
    for turn in range(rounds + 2):  # the first two warm up
        for candidate in candidates:
            draw(candidate, seed=1 + turn)
            candidate.ms.append(milliseconds(candidate.update, updates))
    size = sum(p.numel() for p in start.parameters())
    found = {}
    for candidate in candidates:
        ms = statistics.median(candidate.ms[2:])
        found[candidate.name] = {
            "ms": round(ms, 3),
            "range": [round(min(candidate.ms[2:]), 3), round(max(candidate.ms[2:]), 3)],
            "GB/s": round(candidate.bytes_per_parameter * size / ms / 1e6),
            "error": float(f"{errors[candidate.name]:.2g}"),
        }
    return {"parameters": size, "candidates": found}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=positive, default=15)
    parser.add_argument("--updates", type=positive, default=8, help="in a row")
    parser.add_argument("--json", action="store_true", help="one JSON document instead of a table")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.stderr.write("benchmarks/step/optimizer.py needs a CUDA GPU; torch sees none here\n")
        return 2
    start = Llama(SHAPE)
    init_weights(start, 0)
    found = compare(start.cuda(), options.rounds, options.updates)
    found |= {"device": torch.cuda.get_device_name(), "torch": torch.__version__}
    if options.json:
        print(json.dumps(found))
        return 0
    print(f"{found['device']}, torch {found['torch']}, {found['parameters']:,} parameters")
    print(f"{'':22} {'ms':>7} {'range':>15} {'GB/s':>6} {'error':>9}")
    for name, one in found["candidates"].items():
        low, high = one["range"]
        spread = f"{low:.3f}-{high:.3f}"
        print(f"{name:22} {one['ms']:7.3f} {spread:>15} {one['GB/s']:6d} {one['error']:9.1e}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
