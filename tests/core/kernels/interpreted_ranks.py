"""Run by test_fused_step.py under TRITON_INTERPRET=1: how far two ranks end from one, as JSON."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing
from torch import Tensor

from albor_core.kernels.ops.norms import rms_norm
from albor_core.kernels.ops.optim import adamw
from albor_core.model.flat import FlatParameters
from albor_core.model.fused import FusedLlama
from albor_core.model.llama import Llama, LlamaConfig, init_weights
from albor_core.recipes.batch import Batch
from albor_core.train.optim.adamw import FlatAdamW
from albor_core.train.optim.clipping import Clip
from albor_core.train.ranks.group import ALONE, Ranks
from albor_core.train.ranks.peer_copies import PeerCopies
from albor_core.train.step.fused import GraphedStep

TINY = LlamaConfig(64, 2, 4, 2, 128, 96, 64)
# eps: no weight moves by the sign of a rounding error
HYPER = {"lr": 0.01, "betas": (0.9, 0.95), "eps": 1e-4, "weight_decay": 0.1}
STEPS, B, T, WORLD = 2, 2, 8, 2
COURSES = {"added up": 2, "one message": 1}
"""Micro-batches a step."""
COPIED = "copied in parts"


def copies_on_cpu(ranks: Ranks, gradient: Tensor, folder: Path) -> PeerCopies:
    """Through memory that both processes map, as GPUs map each other's."""
    size, like = len(gradient), {"dtype": gradient.dtype, "shared": True}
    arrived, theirs = (
        torch.from_file(str(folder / f"arrived-{rank}"), size=size, **like)
        for rank in (ranks.rank, 1 - ranks.rank)
    )
    return PeerCopies(gradient, arrived, theirs, dist.barrier)


def course(
    ranks: Ranks, accumulation: int, folder: Path | None = None
) -> tuple[list[float], dict[str, Tensor]]:
    """Losses and gradient norms of a few steps, and the weights after them."""
    torch.set_num_threads(1)
    rms_norm.PROGRAMS, adamw.SUM_BLOCK, adamw.SUM_PROGRAMS = 8, 8192, 3
    source = torch.Generator().manual_seed(3)
    ids = torch.randint(0, 96, (STEPS, accumulation, B, T), generator=source)
    model = Llama(TINY)
    init_weights(model, 0)
    flat = FlatParameters(model, torch.float32)
    optimizer, mine = FlatAdamW(flat, **HYPER, accumulates=accumulation > 1), B // ranks.world_size
    step = GraphedStep(
        FusedLlama(model, flat),
        optimizer,
        batch=(mine, T),
        accumulation=accumulation,
        clip=Clip(1.0),
        ranks=ranks,
        copies=folder and copies_on_cpu(ranks, flat.matrices.gradient, folder),
    )
    found = []
    for batch in ids:
        total = torch.zeros(())
        for micro, rows in enumerate(batch):
            share = rows[ranks.rank * mine :][:mine]
            total = total + step.forward(Batch(share), is_last=micro == accumulation - 1)
            step.backward(micro)
        total = ranks.mean(total)
        found += [float(total), float(step.update(total).norm)]
    return found, {name: weight.detach().clone() for name, weight in model.named_parameters()}


def rank_of(rank: int, folder: str) -> None:
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=WORLD
    )
    ranks = Ranks(rank, WORLD, control=dist.group.WORLD)
    found = {name: course(ranks, accumulation) for name, accumulation in COURSES.items()}
    found[COPIED] = course(ranks, COURSES["one message"], Path(folder))
    torch.save(found, Path(folder) / f"{rank}.pt")
    dist.destroy_process_group()


def main() -> None:
    alone = {name: course(ALONE, accumulation) for name, accumulation in COURSES.items()}
    alone[COPIED] = alone["one message"]
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(rank_of, (folder,), nprocs=WORLD)
        for rank in range(WORLD):
            of_rank = torch.load(Path(folder) / f"{rank}.pt")
            for name, (values, found) in of_rank.items():
                said, weights = alone[name]
                errors = [float((found[n] - w).norm() / w.norm()) for n, w in weights.items()]
                worst = [abs(a - b) for a, b in zip(values, said, strict=True)]
                line = {"course": name, "said": max(worst), "weights": max(errors)}
                same = (torch.equal(found[n], of_rank["one message"][1][n]) for n in weights)
                line["bits of one message"] = all(same)
                sys.stdout.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
