"""Tokens per second of training steps on 1, 2 and 4 GPUs: ours against plain DDP + torch.compile.

    python benchmarks/step/scaling.py [--sizes 1 2] [--only ours ours-one-message] [--batch 16]
                                       [--rounds 7] [--warm 10] [--json FILE]

24 layers of 1024, 16 + 4 heads, 4096, tied vocabulary of 32,768, T = 1024, bf16 arithmetic over
fp32 master weights, random tokens, --batch sequences on each GPU. One process per GPU; the first n
of them make the group of size n, the others wait. Every round times each size and peer in turn for
about 0.7 s, a step counts as long as its slowest rank took; rates are medians over rounds, the
efficiency of n GPUs is the median over rounds of rate(n) / (n rate(1)), and ours / DDP that of a
round's ratio. On one GPU the peer is the compiled model without DDP. A size that this machine does
not have is "not measured". Exit code 2 without a GPU.
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from albor_core.model.flat import FlatParameters
from albor_core.model.fused import FusedLlama
from albor_core.model.llama import Llama, LlamaConfig, init_weights, param_groups
from albor_core.recipes.batch import Batch
from albor_core.train.optim.adamw import FlatAdamW
from albor_core.train.optim.clipping import Clip
from albor_core.train.ranks.group import Ranks
from albor_core.train.ranks.peer_copies import peer_copies
from albor_core.train.step.fused import GraphedStep

sys.path.append(str(Path(__file__).resolve().parents[1]))
from arguments import new_file, not_negative, positive

SHAPE = LlamaConfig(1024, 24, 16, 4, 4096, 32768, 1024)
T = 1024
HYPER: dict[str, Any] = {"lr": 3e-4, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1}
ROUND_S = 0.7
OURS, ONE_MESSAGE, PEER = "ours", "ours-one-message", "DDP+compile"
Step = Callable[[Tensor], Any]


class Part(Ranks):
    """The first ranks as a group of their own."""

    def __init__(self, rank: int, size: int) -> None:
        members = list(range(size))
        self._device_group = dist.new_group(members)
        self._host_group = dist.new_group(members, backend="gloo")
        super().__init__(rank, size, control=self._host_group)

    @property
    def device_group(self) -> Any:
        return self._device_group

    def slowest(self, seconds: float) -> float:
        found = torch.tensor([seconds], dtype=torch.float64)
        dist.all_reduce(found, dist.ReduceOp.MAX, group=self._host_group)
        return float(found)


def ours(start: Llama, batch: int, parts: dict[int, Part], *, copies: bool) -> dict[int, Step]:
    """The trainer's step in groups of each size; they share weights."""
    model = copy.deepcopy(start)
    flat = FlatParameters(model, torch.bfloat16)
    optimizer = FlatAdamW(flat, **HYPER)
    fused = FusedLlama(model, flat)

    def step_of(part: Part) -> Step:
        copied, reason = None, "asked for"
        if copies and not part.is_alone:
            copied, reason = peer_copies(part, flat.matrices.gradient)
        if part.rank == 0 and copied is None and not part.is_alone:
            print(f"{part.world_size} GPUs: one message: {reason}", file=sys.stderr, flush=True)
        graphed = GraphedStep(
            *(fused, optimizer),
            batch=(batch, T),
            accumulation=1,
            clip=Clip(1.0),
            ranks=part,
            copies=copied,
        )

        def step(ids: Tensor) -> None:
            optimizer.set_lr(HYPER["lr"])
            loss = graphed.forward(Batch(ids))
            graphed.backward(0)
            graphed.update(part.mean(loss.clone()))

        return step

    return {size: step_of(part) for size, part in parts.items()}


def peer(start: Llama, part: Part) -> Step:
    """DDP under torch.compile, clip_grad_norm_ and torch's fused AdamW under autocast."""
    model = copy.deepcopy(start)
    wrapped: Any = model
    if not part.is_alone:
        wrapped = DistributedDataParallel(
            model, process_group=part.device_group, gradient_as_bucket_view=True
        )
    forward = torch.compile(wrapped, dynamic=False)
    groups = param_groups(model, HYPER["weight_decay"])
    optimizer = torch.optim.AdamW(groups, **HYPER, fused=True)

    def step(ids: Tensor) -> None:
        with torch.autocast("cuda", torch.bfloat16):
            loss = forward(ids, ids)[1]
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def seconds_of(step: Step, ids: Tensor, part: Part, count: int) -> float:
    """Wall time of `count` steps on the slowest rank."""
    torch.cuda.synchronize()
    part.slowest(0.0)  # everybody is here
    began = time.perf_counter()
    for _ in range(count):
        step(ids)
    torch.cuda.synchronize()
    return part.slowest(time.perf_counter() - began)


def work(rank: int, options: argparse.Namespace, sizes: list[int], folder: str) -> None:
    """One GPU's process; rank 0 prints."""
    torch.cuda.set_device(rank)
    device = torch.device("cuda", rank)
    # Without device_id: with it torch lets ranks outside a gloo group wait for those in it.
    dist.init_process_group(
        "nccl", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=max(sizes)
    )
    everybody = dist.new_group(backend="gloo")
    began = time.perf_counter()

    def say(words: str) -> None:
        if rank == 0:
            spent = time.perf_counter() - began
            print(f"{spent:5.0f} s: {words}", file=sys.stderr, flush=True)

    say(f"{max(sizes)} ranks have met")
    parts = {size: Part(rank, size) for size in sizes}  # every rank makes every group
    parts = {size: part for size, part in parts.items() if rank < size}
    start = Llama(SHAPE)
    init_weights(start, 1)
    start.to(device)
    torch.manual_seed(rank)
    ids = torch.randint(0, SHAPE.vocab_size, (options.batch, T), device=device)
    say("the model is there")
    mine = {
        name: ours(start, options.batch, parts, copies=name == OURS)
        for name in (OURS, ONE_MESSAGE)
        if name in options.only
    }
    steps: dict[tuple[int, str], Step] = {}
    order = [(size, name) for size in sizes for name in options.only]
    for size, name in order:
        if size in parts:
            steps[size, name] = peer(start, parts[size]) if name == PEER else mine[name][size]
    counts = {}
    for key in order:  # compile, then find how many steps fill a round
        if key in steps:
            seconds_of(steps[key], ids, parts[key[0]], 3)
            one = seconds_of(steps[key], ids, parts[key[0]], 3) / 3
            counts[key] = max(3, round(ROUND_S / one))
            say(f"{key[1]} on {key[0]} is ready: {1e3 * one:.1f} ms a step")
        dist.barrier(group=everybody)
    warm_until = time.monotonic() + options.warm
    while True:
        for _ in range(5):
            steps[max(sizes), options.only[0]](ids)
        torch.cuda.synchronize()
        enough = torch.tensor([time.monotonic() >= warm_until])  # one says so for all
        dist.all_reduce(enough, dist.ReduceOp.MAX, group=everybody)
        if bool(enough):
            break
    rates: dict[tuple[int, str], list[float]] = {key: [] for key in order}
    for _ in range(options.rounds):
        for key in order:
            if key in steps:
                size, count = key[0], counts[key]
                spent = seconds_of(steps[key], ids, parts[size], count)
                rates[key].append(size * options.batch * T * count / spent)
            dist.barrier(group=everybody)
    if rank == 0:
        report(rates, sizes, options)
    dist.barrier(group=everybody)
    dist.destroy_process_group()


def report(
    rates: dict[tuple[int, str], list[float]], sizes: list[int], options: argparse.Namespace
) -> None:
    """A line for each size, and JSON if asked for."""
    print(f"{torch.cuda.get_device_name()}, B {options.batch} x {T} on each GPU, torch "
          f"{torch.__version__}, NCCL {'.'.join(map(str, torch.cuda.nccl.version()))}")  # fmt: skip
    print(f"{'GPUs':>4}  {'step':<17}{'tokens/s':>12}{'efficiency':>12}{'ours / DDP':>12}")
    document = []
    for size in options.sizes:
        for name in options.only:
            if size not in sizes:
                print(f"{size:>4}  {name:<17}{'not measured':>12}")
                document.append({"gpus": size, "peer": name, "tokens_per_s": None})
                continue
            found = rates[size, name]
            alone = rates[1, name] if 1 in sizes else None
            efficiency = None
            if alone is not None:
                pairs = zip(found, alone, strict=True)
                efficiency = statistics.median(many / (size * one) for many, one in pairs)
            ratio = None
            if name != PEER and PEER in options.only:
                against = zip(found, rates[size, PEER], strict=True)
                ratio = statistics.median(a / b for a, b in against)
            shown = ["" if value is None else f"{value:.3f}" for value in (efficiency, ratio)]
            rate = statistics.median(found)
            print(f"{size:>4}  {name:<17}{rate:>12,.0f}{shown[0]:>12}{shown[1]:>12}")
            document.append(
                {"gpus": size, "peer": name, "tokens_per_s": rate,
                 "efficiency": efficiency, "ratio": ratio, "rounds": found}
            )  # fmt: skip
    if options.json is not None:
        options.json.write_text(json.dumps(document, indent=1))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=positive, nargs="+", default=[1, 2, 4])
    parser.add_argument("--only", nargs="+", default=[OURS, PEER],
                        choices=[OURS, ONE_MESSAGE, PEER])  # fmt: skip
    parser.add_argument("--batch", type=positive, default=16, help="sequences on each GPU")
    parser.add_argument("--rounds", type=positive, default=7)
    parser.add_argument("--warm", type=not_negative, default=10.0, help="seconds of load first")
    parser.add_argument("--json", type=new_file)
    options = parser.parse_args()
    there = torch.cuda.device_count()
    sizes = sorted(size for size in options.sizes if size <= there)
    if not sizes:
        print(f"needs a GPU; torch sees {there}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(work, (options, sizes, folder), nprocs=max(sizes))
    return 0


if __name__ == "__main__":
    sys.exit(main())
