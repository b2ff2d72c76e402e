"""Whole training steps against their peers, interleaved in one process: one GPU.

    python benchmarks/step/train_step.py [--shape 350m] [--batches 4 16 64] [--only NAME ...]
                                         [--rounds 9] [--warm 20] [--profile] [--json FILE]

350m: 24 layers of 1024, 16 + 4 heads, 4096; 50m, 125m: those of configs/train; h128: 350m with 8 +
2 heads of 128; qwen0.5b, llama1b: sizes of Qwen2.5-0.5B and Llama-3.2-1B; all tied, T = 1024, bf16
arithmetic over fp32 master weights, random tokens; forward, backward, clip at 1.0 and AdamW
("ours-muon": Muon for the hidden matrices; "ours-6-segments": blocks computed again in so many;
"bf16-residual": as by training.residual_in_fp32: false). Peers start from the same weights: the
plain model of this repository under torch.compile ("hand+compile"), transformers' Llama under
torch.compile, transformers with Liger's kernels, the plain model with torchao's float8 training and
torch.compile ("hand-torchao-fp8+compile": all linear layers of its blocks, the head stays in bf16;
"-large": those that torchao's own filter finds large enough; --only ours-fp8 and one of them
compares these). Whoever is not installed is "not measured".
All peers are in memory at once. Who does not fit beside the others, as it is built or later, is put
off and its memory freed; afterwards it is raced beside the first peer alone, with a load and rounds
of their own. That contest prints the first anew: a ratio is to the first of the same contest.
After 20 s of load that all share, every round times each for about 0.7 s; the ratio is the median
over rounds of a round's ratio. Loss and gradients of the first step are compared with those of fp32
without TF32 ("worst gradient": the largest relative error of any parameter's). Peak memory is what
building and first steps of one peer added to the process. Exit code 2 without a GPU.
"""

from __future__ import annotations

import argparse
import copy
import dataclasses
import gc
import importlib.util
import json
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from albor_core.kernels import dispatch
from albor_core.model.flat import FlatParameters
from albor_core.model.fp8 import Scales
from albor_core.model.fused import FusedLlama
from albor_core.model.llama import Llama, LlamaConfig, init_weights, param_groups
from albor_core.recipes.batch import Batch
from albor_core.train.optim.adamw import FlatAdamW
from albor_core.train.optim.clipping import Clip
from albor_core.train.optim.muon import FlatMuon
from albor_core.train.step.fused import GraphedStep

sys.path.append(str(Path(__file__).resolve().parents[1]))
from arguments import new_file, not_negative, positive

SHAPES = {
    "350m": LlamaConfig(1024, 24, 16, 4, 4096, 32768, 1024),
    "50m": LlamaConfig(512, 12, 8, 2, 2048, 32768, 1024),
    "125m": LlamaConfig(768, 12, 12, 4, 3072, 32768, 1024),
    "h128": LlamaConfig(1024, 24, 8, 2, 4096, 32768, 1024),
    "qwen0.5b": LlamaConfig(896, 24, 14, 2, 4864, 151936, 1024),
    "llama1b": LlamaConfig(2048, 16, 32, 8, 8192, 128256, 1024),
}
T = 1024
HYPER: dict[str, Any] = {"lr": 3e-4, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1}
WARM_LOAD_S, ROUND_S = 20.0, 0.7
REFERENCE_ROWS = 4  # of a batch at a time: fp32 attention is not frugal


@dataclass
class Peer:
    """One way to take a step, and how that went."""

    name: str
    step: Any = None
    """A function of tokens, while it is built and races."""
    steps: int = 0
    """Of a round."""
    problem: str = ""
    """Why it is not measured."""
    does_not_fit: bool = False
    peak_gib: float = 0.0
    build_s: float = 0.0
    loss_error: float = 0.0
    gradient_error: float = 0.0
    ms: list[float] = field(default_factory=list)
    clock_mhz: list[int] = field(default_factory=list)
    kernels: list[tuple[str, float, int]] = field(default_factory=list)
    """Name, ms a step, launches a step."""


def rounded(start: Llama) -> Llama:
    """The same weights with a residual stream in bf16."""
    model = Llama(dataclasses.replace(start.config, residual_in_fp32=False))
    model.load_state_dict(start.state_dict())
    return model.cuda()


def ours(
    start: Llama, B: int, *, in_fp8: bool = False, muon: bool = False, segments: int = 0
) -> tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Any]]:
    """(step, loss and gradients without an update) of the trainer's fused step."""
    model = copy.deepcopy(start)
    flat = FlatParameters(model, torch.bfloat16)
    optimizer = (
        FlatMuon(flat, muon_lr=None, momentum=0.95, **HYPER) if muon else FlatAdamW(flat, **HYPER)
    )
    scales = Scales.of(model.config, torch.device("cuda")) if in_fp8 else None
    fused = FusedLlama(model, flat, scales, segments=segments)
    graphed = GraphedStep(fused, optimizer, batch=(B, T), accumulation=1, clip=Clip(1.0))
    fused.calibrate(torch.randint(0, start.config.vocab_size, (2, T), device="cuda"))

    def step(ids: Tensor) -> Tensor:
        optimizer.set_lr(HYPER["lr"])
        loss = graphed.forward(Batch(ids))
        graphed.backward(0)
        graphed.update(loss)
        return loss

    def look(ids: Tensor) -> Any:
        loss = graphed.forward(Batch(ids)).clone()
        graphed.backward(0)
        return loss, flat.gradients()

    return step, look


def torch_step(
    model: nn.Module, forward: Callable[[Tensor], Tensor]
) -> tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Any]]:
    """The same with autograd, clip_grad_norm_ and torch's fused AdamW under autocast."""
    groups = param_groups(model, HYPER["weight_decay"])
    optimizer = torch.optim.AdamW(groups, **HYPER, fused=True)
    parameters = list(model.parameters())

    def half(ids: Tensor) -> Tensor:
        with torch.autocast("cuda", torch.bfloat16):
            loss = forward(ids)
        loss.backward()
        return loss

    def step(ids: Tensor) -> Tensor:
        loss = half(ids)
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    def look(ids: Tensor) -> Any:
        loss = half(ids).detach().clone()
        gradients = {name: p.grad for name, p in model.named_parameters()}
        optimizer.zero_grad(set_to_none=True)
        return loss, gradients

    return step, look


def hand(start: Llama, B: int) -> Any:
    model = copy.deepcopy(start)
    compiled = torch.compile(model, dynamic=False)
    return torch_step(model, lambda ids: compiled(ids, ids)[1])


def in_torchao_fp8(start: Llama, *, only_large: bool = False) -> Llama:
    """The same weights, with linear layers that multiply in fp8; their names stay."""
    from torchao.float8 import _auto_filter_for_recipe, convert_to_float8_training

    large = _auto_filter_for_recipe("tensorwise", ["lm_head"])  # torchao's default scaling
    chosen = large if only_large else lambda _, name: name != "lm_head"
    model: Llama = convert_to_float8_training(copy.deepcopy(start), module_filter_fn=chosen)
    return model


def own_copy(module: str, name: str) -> Any:
    """`module` loaded anew beside itself: what patches the one does not reach the other."""
    found = importlib.util.find_spec(module)
    assert found is not None
    assert found.origin is not None
    full = f"{module.rpartition('.')[0]}.{name}"  # its relative imports go on working
    spec = importlib.util.spec_from_file_location(full, found.origin)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules[full] = made
    spec.loader.exec_module(made)
    return made


def hugging_face(start: Llama, B: int, *, liger: bool = False) -> Any:
    from transformers import LlamaConfig as Theirs

    room = own_copy("transformers.models.llama.modeling_llama", "modeling_llama_untouched")
    if liger:
        from liger_kernel.transformers import apply_liger_kernel_to_llama
        from transformers.models.llama import modeling_llama as room

        apply_liger_kernel_to_llama()
    known = Theirs(**{k: v for k, v in start.config.to_hf().items() if k != "dtype"})
    known.use_cache = False
    known._attn_implementation = "sdpa"
    with torch.device("cuda"):
        model = room.LlamaForCausalLM(known).float().train()
    model.load_state_dict(start.state_dict(), strict=False)
    run = model if liger else torch.compile(model, dynamic=False)
    return torch_step(model, lambda ids: run(input_ids=ids, labels=ids).loss)


PEERS: dict[str, Callable[[Llama, int], Any]] = {
    "ours": ours,
    "ours-muon": lambda start, B: ours(start, B, muon=True),
    "ours-fp8": lambda start, B: ours(start, B, in_fp8=True),
    "ours-bf16-residual": lambda start, B: ours(rounded(start), B),
    "ours-2-segments": lambda start, B: ours(start, B, segments=2),
    "ours-6-segments": lambda start, B: ours(start, B, segments=6),
    "hand+compile": hand,
    "hand-bf16-residual+compile": lambda start, B: hand(rounded(start), B),
    "hf+compile": hugging_face,
    "hf+liger": lambda start, B: hugging_face(start, B, liger=True),
    # last: they change how Inductor writes min and max, for the whole process
    "hand-torchao-fp8+compile": lambda start, B: hand(in_torchao_fp8(start), B),
    "hand-torchao-fp8-large+compile": lambda start, B: hand(
        in_torchao_fp8(start, only_large=True), B
    ),
}
NEEDS = {
    "hf+compile": ("transformers",),
    "hf+liger": ("transformers", "liger_kernel"),
    "hand-torchao-fp8+compile": ("torchao",),
    "hand-torchao-fp8-large+compile": ("torchao",),
}


def truth(start: Llama, ids: Tensor) -> tuple[float, dict[str, Tensor]]:
    """Loss and gradients in fp32, a few rows at a time."""
    start.zero_grad(set_to_none=True)
    pieces = ids.split(REFERENCE_ROWS)
    total = 0.0
    for piece in pieces:
        _, loss = start(piece, piece)
        (loss / len(pieces)).backward()
        total += loss.item() / len(pieces)
    found = {name: p.grad for name, p in start.named_parameters()}
    start.zero_grad(set_to_none=True)
    return total, found


def worst(found: dict[str, Tensor], wanted: dict[str, Tensor]) -> float:
    """Largest relative error of a parameter's gradient; NaN counts as infinite."""
    errors = [float((found[n].float() - g).norm() / g.norm()) for n, g in wanted.items()]
    return max(e if e == e else float("inf") for e in errors)


def free() -> None:
    gc.collect(), torch.cuda.empty_cache()


def is_out_of_memory(error: BaseException | None) -> bool:
    """Whether it is, or came of, a lack of memory: Triton and cuBLAS have errors of their own."""
    if error is None:
        return False
    words = "out of memory", "ALLOC_FAILED"
    if isinstance(error, torch.OutOfMemoryError) or any(word in str(error) for word in words):
        return True
    return is_out_of_memory(error.__cause__ or error.__context__)


def each(peers: list[Peer], work: Callable[[Peer], Any]) -> None:
    """`work` with one after the other; who fails gives its memory back and takes no more part."""
    for peer in peers:
        if peer.problem:
            continue
        try:
            work(peer)
        except Exception as error:  # a peer that cannot run is a result too
            peer.problem = f"{type(error).__name__}: {str(error)[:300]}"
            peer.does_not_fit = is_out_of_memory(error)
        if peer.problem:  # no longer above: an error holds frames, and these hold tensors
            peer.step = None
            free()


def build(peer: Peer, start: Llama, ids: Tensor, wanted: Any) -> None:
    """Made, compared with fp32, and run often enough that nothing is left to compile."""
    free(), torch.cuda.reset_peak_memory_stats()
    before, begun = torch.cuda.memory_allocated(), time.time()
    peer.step, look = PEERS[peer.name](start, len(ids))
    loss, gradients = look(ids)
    peer.loss_error = abs(loss.item() - wanted[0]) / wanted[0]
    peer.gradient_error = worst(gradients, wanted[1])
    del gradients
    for _ in range(3):
        peer.step(ids)
    torch.cuda.synchronize()
    peer.build_s = time.time() - begun
    peer.peak_gib = (torch.cuda.max_memory_allocated() - before) / 2**30
    print(f"B{len(ids)} {peer.name}: built in {peer.build_s:.0f} s", file=sys.stderr, flush=True)


def seconds(peer: Peer, batches: list[Tensor], steps: int) -> float:
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    peer.step(batches[0])  # the queue is not empty when the clock starts
    start.record()
    for i in range(steps):
        peer.step(batches[i % len(batches)])
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) / 1000


def clock_mhz() -> int:
    query = ["nvidia-smi", "--query-gpu=clocks.sm", "--format=csv,noheader,nounits", "-i", "0"]
    return int(subprocess.run(query, capture_output=True, text=True, check=True).stdout.split()[0])


def count(peer: Peer, batches: list[Tensor]) -> None:
    peer.steps = max(2, int(ROUND_S / (seconds(peer, batches, 3) / 3)))


def race(peer: Peer, batches: list[Tensor]) -> None:
    """One round."""
    peer.ms.append(1000 * seconds(peer, batches, peer.steps) / peer.steps)
    for i in range(max(2, peer.steps // 2)):
        peer.step(batches[i % 4])
    peer.clock_mhz.append(clock_mhz())  # while the queue is still full
    torch.cuda.synchronize()


def contest(
    shape: LlamaConfig, B: int, rounds: int, warm_s: float, with_kernels: bool, names: list[str]
) -> list[Peer]:
    """All of `names` side by side; what they held is free afterwards."""
    torch.manual_seed(0)
    start = Llama(shape)
    init_weights(start, 0)
    start.cuda()
    batches = [torch.randint(0, shape.vocab_size, (B, T), device="cuda") for _ in range(4)]
    peers = [Peer(name) for name in names]
    ids = batches[0]
    each(peers, partial(build, start=start, ids=ids, wanted=truth(start, ids)))
    begun = time.time()
    while time.time() - begun < warm_s:
        each(peers, partial(seconds, batches=batches, steps=2))
    each(peers, partial(count, batches=batches))
    for _ in range(rounds):
        each(peers, partial(race, batches=batches))
    if with_kernels:
        each(peers, partial(profile, ids=ids))
    for peer in peers:
        peer.step = None
    torch._dynamo.reset()
    free()
    return peers


def is_put_off(peer: Peer, names: list[str]) -> bool:
    """Whether others than the first of its contest may have had the memory it lacked."""
    return peer.does_not_fit and not {*names} <= {names[0], peer.name}


def contests(names: list[str], hold: Callable[[list[str]], list[Peer]]) -> Iterator[list[Peer]]:
    """The peers of each: of all names at once, then of the first with each that was put off."""
    together = hold(names)
    yield together
    for peer in together:
        if is_put_off(peer, names):
            yield hold(list(dict.fromkeys((names[0], peer.name))))


def told(peer: Peer, names: list[str]) -> str:
    """What became of one that was not measured."""
    if is_put_off(peer, names):
        return "put off, it does not fit beside the others"
    if not peer.does_not_fit:
        return peer.problem
    beside = "" if peer.name == names[0] else f" beside {names[0]}"
    return f"not measured, it does not fit{beside} alone: {peer.problem}"


def line(shape: LlamaConfig, peer: Peer, first: Peer, B: int) -> dict[str, Any]:
    ratios = [theirs / mine for theirs, mine in zip(peer.ms, first.ms, strict=True)]
    ms = statistics.median(peer.ms)
    return {
        "B": B,
        "peer": peer.name,
        "ms": round(ms, 2),
        "ms_range": [round(min(peer.ms), 2), round(max(peer.ms), 2)],
        "tokens_per_s": round(B * T / ms * 1000),
        "mfu": round(shape.flops_per_token(T) * B * T / ms * 1000 / 989e12, 4),
        "ratio": round(statistics.median(ratios), 4),
        "ratio_range": [round(min(ratios), 3), round(max(ratios), 3)],
        "peak_gib": round(peer.peak_gib, 1),
        "sm_mhz": int(statistics.median(peer.clock_mhz)),
        "loss_error": peer.loss_error,
        "worst_gradient": round(peer.gradient_error, 5),
        "build_s": round(peer.build_s, 1),
    }


def report(shape: LlamaConfig, peers: list[Peer], B: int) -> list[dict[str, Any]]:
    """Prints what became of the peers of one contest; ratios are to the first that was measured."""
    names = [peer.name for peer in peers]
    for peer in peers:
        if peer.problem:
            print(f"B{B} {peer.name}: {told(peer, names)}", flush=True)
    measured = [peer for peer in peers if not peer.problem]
    rows = [line(shape, peer, measured[0], B) for peer in measured]
    for row, peer in zip(rows, measured, strict=True):
        print(json.dumps(row), flush=True)
        if peer.kernels:
            row["profile"] = peer.kernels
    return rows


def profile(peer: Peer, ids: Tensor, top: int = 30) -> None:
    """Finds its kernels, the longest first."""
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as recording

    with recording(activities=[ProfilerActivity.CUDA]) as found:
        for _ in range(2):
            peer.step(ids)
        torch.cuda.synchronize()
    times: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for event in found.key_averages():
        times[event.key[:90]][0] += event.self_device_time_total / 2000
        times[event.key[:90]][1] += event.count / 2
    rows = [(name, round(ms, 3), int(n)) for name, (ms, n) in times.items()]
    peer.kernels = sorted(rows, key=lambda row: -row[1])[:top]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", default="350m", choices=SHAPES)
    parser.add_argument("--batches", type=positive, nargs="+", default=[4, 16, 64])
    parser.add_argument("--only", nargs="*", default=[], choices=PEERS)
    parser.add_argument("--rounds", type=positive, default=9)
    parser.add_argument(
        "--warm", type=not_negative, default=WARM_LOAD_S, help="seconds of load before"
    )
    parser.add_argument("--json", type=new_file, help="write all figures here, too")
    parser.add_argument("--profile", action="store_true", help="kernels of a step, by time")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.stderr.write("benchmarks/step/train_step.py needs a CUDA GPU; torch sees none here\n")
        return 2
    shape = SHAPES[options.shape]
    names = [n for n in PEERS if not options.only or n in options.only]
    for name in list(names):
        missing = [m for m in NEEDS.get(name, ()) if importlib.util.find_spec(m) is None]
        if missing:
            print(f"{name}: not measured, {missing[0]} is not installed")
            names.remove(name)
    # peers take turns with one cache of memory: blocks of fixed sizes would be freed and asked anew
    torch.cuda.memory._set_allocator_settings("expandable_segments:True")
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}", flush=True)
    rows: list[dict[str, Any]] = []
    for B in options.batches:
        hold = partial(contest, shape, B, options.rounds, options.warm, options.profile)
        for peers in contests(names, hold):
            rows += report(shape, peers, B)
            if options.json:
                options.json.write_text(json.dumps(rows, indent=1))
        print("chosen:", *(f"{c.op} {c.backend}" for c in dispatch.choices()), file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
