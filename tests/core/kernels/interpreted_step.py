"""Run by test_fused_step.py under TRITON_INTERPRET=1: one JSON line per claim."""

from __future__ import annotations

import copy
import json
import math
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from tiny_run import tiny_config

from albor_core.config.load import parse_config
from albor_core.config.sections.optimizer import OptimizerConfig
from albor_core.config.shape import RopeScaling
from albor_core.kernels import dispatch
from albor_core.kernels.ops.mlp import fp8
from albor_core.kernels.ops.norms import qk_norm, rms_norm
from albor_core.kernels.ops.optim import adamw, muon
from albor_core.kernels.parity import deviations
from albor_core.model import fused as fused_module
from albor_core.model.flat import FlatParameters
from albor_core.model.fp8 import Scales, emulated
from albor_core.model.fused import FusedLlama
from albor_core.model.head import HeadScore, NextTokens, Scored
from albor_core.model.llama import Llama, LlamaConfig, init_weights
from albor_core.model.matrices import PackedMatrix
from albor_core.recipes.batch import Batch
from albor_core.recipes.head_loss import CrossEntropy, LogLoss
from albor_core.train.build import build
from albor_core.train.optim.adamw import FlatAdamW, Optimizer, settings
from albor_core.train.optim.clipping import Clip, ZClip
from albor_core.train.optim.gradients import gradient_norms, scale_gradients
from albor_core.train.optim.muon import FlatMuon, MuonOptimizer
from albor_core.train.optim.registry import wrong_groups
from albor_core.train.ranks.group import Ranks
from albor_core.train.ranks.placement import Placement
from albor_core.train.step.choose import plain_step
from albor_core.train.step.fused import GraphedStep
from albor_core.train.step.gate import Seen, compare, fused_gradients, violations
from albor_core.train.step.optimizer_step import half_batch_norm
from albor_core.train.step.plain import PlainStep

HYPER = {"lr": 0.01, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1}
TINY = LlamaConfig(64, 2, 4, 2, 128, 96, 64)
WIDE_HEADS = LlamaConfig(128, 1, 2, 1, 128, 96, 64)  # which attention's kernels take
SWITCHED: dict[str, dict[str, Any]] = {
    "heads wider than D / H": {"head_dim": 32},
    "heads narrower than D / H": {"head_dim": 8},
    "rope as in Llama 3.1": {"rope_scaling": RopeScaling("llama3", 8.0, 16, 1.0, 4.0)},
    "yarn, whose rotation is longer than 1": {"rope_scaling": RopeScaling("yarn", 4.0, 16)},
    "biases of q, k and v": {"model_type": "qwen2"},
    "a window that holds the row": {"model_type": "mistral", "sliding_window": 17},
}
UNTIED = LlamaConfig(64, 1, 4, 2, 128, 96, 64, tie_word_embeddings=False)
INT8 = ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj", "down_proj")
NORMED = {"model_type": "qwen3", "head_dim": 32}


def say(name: str, holds: bool, detail: object = "") -> None:
    sys.stdout.write(json.dumps({"name": name, "holds": holds, "detail": str(detail)}) + "\n")


def tokens(T: int = 17) -> torch.Tensor:
    return torch.randint(0, 96, (2, T), generator=torch.Generator().manual_seed(1))


def plain(model: Llama, ids: torch.Tensor, score: HeadScore | None = None) -> Seen:
    _, (loss, _) = model(ids, score=score or NextTokens(ids))
    loss.backward()
    found = {n: p.grad.clone() for n, p in model.named_parameters()}
    model.zero_grad(set_to_none=True)
    return Seen(loss.detach(), model(ids)[0].detach(), found)


def made(config: LlamaConfig) -> tuple[Llama, FusedLlama, FlatAdamW]:
    model = Llama(config)
    init_weights(model, 0)
    flat = FlatParameters(model, torch.float32)
    return model, FusedLlama(model, flat), FlatAdamW(flat, **HYPER)


def worst(got: Seen, wanted: Seen) -> float:
    a, b = got.results(), wanted.results()
    return max(float((a[n] - b[n]).norm() / b[n].norm()) for n in b)


def equals_autograd() -> None:
    for config, z_loss in ((TINY, 0.0), (UNTIED, 0.0), (TINY, 0.05)):
        model, fused, optimizer = made(config)
        score = NextTokens(tokens(), z_loss)
        wanted = plain(model, tokens(), score)
        whole = worst(fused_gradients(fused, optimizer, Batch(tokens()), score), wanted)
        limit, fused_module.LOGITS_BYTES = fused_module.LOGITS_BYTES, 96 * 4 * 10
        pieces = worst(fused_gradients(fused, optimizer, Batch(tokens()), score), wanted)
        fused_module.LOGITS_BYTES = limit
        name = "z-loss" if z_loss else f"tied {config.tie_word_embeddings}"
        say(f"autograd: {name}", max(whole, pieces) < 2e-6, (whole, pieces))
        scores_like_the_plain_model(model, fused) if z_loss else None
    for name, more in SWITCHED.items():
        model, fused, optimizer = made(replace(TINY, **more))
        uneven_biases(model)
        wanted = plain(model, tokens())
        error = worst(fused_gradients(fused, optimizer, Batch(tokens())), wanted)
        say(f"autograd: {name}", error < 2e-6, error)
    model, fused, optimizer = made(WIDE_HEADS)
    wanted = plain(model, tokens(64))
    error = worst(fused_gradients(fused, optimizer, Batch(tokens(64))), wanted)
    fused.hidden(tokens(64))
    by_kernels = fused.tapes[0].attended.log_sum is not None
    say("autograd: attention by kernels", by_kernels and error < 2e-6, error)


def computed_again(what: str, dtype: torch.dtype) -> None:
    """Segments change what is kept, and not a bit of any gradient."""
    is_fp8 = what == "fp8"
    config = LlamaConfig(64, 3, 4, 2, 64, 96, 64)
    if what == "qk-norm":
        config = replace(config, **NORMED)
    ids = tokens(64 if is_fp8 else 17)

    def gradients(segments: int) -> tuple[torch.Tensor, dict[str, torch.Tensor], int]:
        model = Llama(config)
        init_weights(model, 0)
        flat = FlatParameters(model, dtype)
        scales = Scales.of(config, ids.device) if is_fp8 else None
        fused = FusedLlama(model, flat, scales, segments=segments)
        fused.calibrate(ids)
        for _ in range(2):  # nothing of a step is left to the next
            loss = fused.forward(ids, torch.ones(()))
            kept = len(fused.tapes)
            fused.backward(ids)
        is_empty = not fused.tapes and not fused._borders
        return loss, flat.gradients(), kept if is_empty else -1

    loss, wanted, all_kept = gradients(0)
    for segments, kept_here in ((2, 2), (3, 1)):
        again, found, kept = gradients(segments)
        same = all(torch.equal(found[name], wanted[name]) for name in wanted)
        holds = same and torch.equal(loss, again) and (all_kept, kept) == (3, kept_here)
        say(f"computed again in {segments} segments, {what}", holds, (same, kept))


def norms_of_heads() -> None:
    """With weights that tell q from k and layers from each other."""
    for name, config, T in (
        ("tied", replace(TINY, **NORMED), 17),
        ("wide", replace(WIDE_HEADS, model_type="qwen3"), 64),
    ):
        model, fused, optimizer = made(config)
        uneven_head_norms(model)
        wanted = plain(model, tokens(T))
        error = worst(fused_gradients(fused, optimizer, Batch(tokens(T))), wanted)
        gradients = [n for n in wanted.gradients if n.endswith(("q_norm.weight", "k_norm.weight"))]
        say(f"qk-norm: {name}", error < 2e-6 and len(gradients) == 2 * len(fused.layers), error)
    resumes_to_the_same_bits()


def uneven_biases(model: Llama) -> None:
    source = torch.Generator().manual_seed(9)
    for name, bias in model.named_parameters():
        if name.endswith(".bias"):
            bias.data.add_(0.3 * torch.randn(bias.shape, generator=source))


def uneven_head_norms(model: Llama) -> None:
    source = torch.Generator().manual_seed(8)
    for name, weight in model.named_parameters():
        if name.endswith(("q_norm.weight", "k_norm.weight")):
            weight.data.add_(0.3 * torch.randn(weight.shape, generator=source))


def resumes_to_the_same_bits() -> None:
    """Two steps, and one of them from what the first one left."""
    config, finals = replace(UNTIED, **NORMED), []
    model, state = Llama(config), {}
    init_weights(model, 0)
    uneven_head_norms(model)
    for steps in (2, 1):
        flat = FlatAdamW(FlatParameters(model, torch.float32), **HYPER)
        if state:
            model.load_state_dict(state["weights"])
            flat.load(state["optimizer"])
        step = GraphedStep(
            FusedLlama(model, flat.flat), flat, batch=(2, 9), accumulation=1, clip=Clip(0.5)
        )
        for _ in range(steps):
            loss = step.forward(Batch(tokens(9)))
            step.backward(0)
            step.update(loss)
            if not state:
                parts = {"weights": model.state_dict(), "optimizer": flat.tensors()}
                state = {name: copy.deepcopy(tensors) for name, tensors in parts.items()}
        finals.append({n: t.clone() for n, t in {**model.state_dict(), **flat.tensors()}.items()})
        model = Llama(config)
    same = all(torch.equal(finals[1][name], t) for name, t in finals[0].items())
    key = "model.layers.0.self_attn.q_norm.weight"
    moved = not torch.equal(finals[0][key], state["weights"][key])
    say("qk-norm: resumed, it goes on to the same bits", same and moved)


def scores_like_the_plain_model(model: Llama, fused: FusedLlama) -> None:
    """An evaluation: no z-loss, nothing kept for a backward, some positions not counted."""
    labels = tokens().clone()
    labels[1, 5:] = -100
    limit, fused_module.SCORED_BYTES = fused_module.SCORED_BYTES, 96 * 4 * 10
    with torch.no_grad():
        wanted = model.eval()(tokens(), labels)[1]
    got = fused.score(tokens(), labels)
    fused_module.SCORED_BYTES = limit
    model.train()
    error = abs(float(got - wanted) / float(wanted))
    kept = fused.tapes or fused._last is not None
    say("scored without gradients", error < 1e-6 and not kept, error)


def updates_like_torch(config: LlamaConfig, prefix: str = "") -> None:
    model, fused, _ = made(config)
    twin = Llama(config)
    init_weights(twin, 0)
    optimizer = Optimizer(twin, **HYPER, fused=False)
    flat = FlatAdamW(FlatParameters(model, torch.float32), **HYPER, accumulates=True)
    fused = FusedLlama(model, flat.flat)
    step = GraphedStep(fused, flat, batch=(2, 9), accumulation=2, clip=Clip(0.5))
    norms = []
    for number in range(3):
        optimizer.set_lr(0.01 / (number + 1)), flat.set_lr(0.01 / (number + 1))
        total = torch.zeros(())
        for micro in range(2):
            ids = torch.randint(0, 96, (2, 9), generator=torch.Generator().manual_seed(micro))
            (twin(ids, ids)[1] / 2).backward()
            total += step.forward(Batch(ids))
            step.backward(micro)
        gradients = [p.grad for p in twin.parameters()]
        norm = torch.linalg.vector_norm(gradient_norms(gradients))
        scale_gradients(gradients, Clip(0.5).factor(norm, torch.zeros(()))[0])
        optimizer.step(torch.zeros(()))
        norms.append(float(norm / step.update(total).norm))
    pairs = zip(model.parameters(), twin.parameters(), strict=True)
    moved = max(float((a - b).norm() / b.norm()) for a, b in pairs)
    say(f"{prefix}three clipped, accumulated steps", moved < 1e-4, moved)
    say(f"{prefix}the norm before clipping", all(abs(n - 1) < 1e-5 for n in norms), norms)
    say(f"{prefix}state under the same names", set(flat.tensors()) == set(optimizer.tensors()))
    if prefix:
        return
    skips_what_is_not_sound(model, step, flat)
    takes_over_a_state(optimizer, flat)


def skips_what_is_not_sound(model: Llama, step: GraphedStep, flat: FlatAdamW) -> None:
    """Of NaN. A loss of 0 beside a gradient that is a number is one: a batch learned by heart."""
    for name, factor, wanted in (("step of NaN", math.nan, 1.0), ("loss of 0", 1.0, 0.0)):
        before = {n: t.clone() for n, t in {**model.state_dict(), **flat.tensors()}.items()}
        loss = step.forward(Batch(tokens(9)), factor)
        step.backward(0)
        updated = step.update(loss * wanted)
        after = {**model.state_dict(), **flat.tensors()}
        same = all(torch.equal(after[n], t) for n, t in before.items())
        is_sound = wanted == 0.0
        as_meant = bool(updated.norm.isfinite() & (updated.norm > 0)) == is_sound
        as_meant &= same != is_sound and float(updated.skip) == float(not is_sound)
        say(f"a {name} moves {'weights' if is_sound else 'nothing'}", as_meant)


def shadows_follow(name: str, made: Callable[[FlatParameters], FlatAdamW]) -> None:
    """A step from gradients of half precision: what the next forward reads is what was stored."""
    model = Llama(UNTIED)
    init_weights(model, 0)
    flat = FlatParameters(model, torch.float16)
    optimizer, before = made(flat), flat.matrices.master.clone()
    source = torch.Generator().manual_seed(5)
    for gradient in optimizer.gradients():
        gradient.copy_(torch.randn(gradient.shape, generator=source))
    optimizer.step(torch.ones(()), Clip(1.0))
    master, shadow = flat.matrices.master, flat.matrices.shadow
    views = [flat.matrices.view(master - before, n) for n in flat.matrices.places]
    moved = all(bool(view.any()) for view in views)
    rounded = shadow.dtype is torch.float16 and torch.equal(shadow, master.half())
    say(f"{name}the shadow is the master rounded", moved and rounded)


def takes_over_a_state(optimizer: Optimizer, flat: FlatAdamW) -> None:
    flat.load(optimizer.tensors())
    theirs = optimizer.tensors()
    same = all(torch.equal(t, theirs[n]) for n, t in flat.tensors().items())
    say("torch's state goes into flat buffers", same)


class Pairs(LogLoss):
    """Of two rows the first is to be likelier."""

    columns = ("margin",)

    def count(self, batch: Batch) -> torch.Tensor:
        return torch.tensor(len(batch) // 2)

    def total(self, values: torch.Tensor, batch: Batch) -> Scored:
        rows = -values.view(len(batch), -1).sum(1)
        margin = batch.extra["weight"][0] * (rows[::2] - rows[1::2])
        return -torch.nn.functional.logsigmoid(margin).mean(), {"margin": margin.mean()}


def sees_every_token_first() -> None:
    """A loss that is no mean, in one piece of logits and in several, with its figure."""
    ids, weight = tokens(), torch.tensor([0.3, 0.3])
    batch, sums = Batch(ids, None, None, {"weight": weight}), []
    model, fused, optimizer = made(TINY)
    score = Pairs().bind(batch)
    _, (_, wanted) = model(ids, score=score)
    seen = plain(model, ids, score)
    limit, errors = fused_module.LOGITS_BYTES, []
    for size in (limit, 96 * 4 * 10):
        fused_module.LOGITS_BYTES = size
        errors.append(worst(fused_gradients(fused, optimizer, batch, score), seen))
        sums.append(float(fused.sums["margin"] / wanted["margin"]))
    fused_module.LOGITS_BYTES = limit
    say("a loss on pairs", max(errors) < 2e-6, errors)
    step = GraphedStep(
        *(fused, optimizer),
        batch=(2, 17),
        accumulation=1,
        clip=Clip(None),
        like=batch,
        head=Pairs(),
    )
    step.forward(batch)
    sums.append(float(step.named()[0] / wanted["margin"]))
    say("its figure", all(abs(ratio - 1) < 1e-5 for ratio in sums), sums)


class Int8(PackedMatrix):
    """A row's values over its largest."""

    def __init__(self, weight: torch.Tensor) -> None:
        super().__init__()
        scale = weight.abs().amax(1, keepdim=True) / 127
        self.register_buffer("packed", (weight / scale).round().to(torch.int8))
        self.register_buffer("scale", scale)
        self.shape = (weight.shape[0], weight.shape[1])

    def write(self, out: torch.Tensor) -> None:
        torch.mul(self.packed, self.scale, out=out)


def trains_a_part(
    name: str, is_frozen: Callable[[str], bool], packed: tuple[str, ...] = ()
) -> None:
    """Gradients of what is trained, and nothing moves but that."""
    model = Llama(TINY)
    init_weights(model, 0)
    for layer in model.model.layers:
        for module in packed:
            place = layer.self_attn if module in ("q_proj", "k_proj", "v_proj") else layer.mlp
            setattr(place, module, Int8(getattr(place, module).weight.detach()))
    for one, parameter in model.named_parameters():
        parameter.requires_grad_(not is_frozen(one))
    _, (loss, _) = model(tokens(), score=NextTokens(tokens()))
    loss.backward()
    found = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
    wanted = Seen(loss.detach(), model(tokens())[0].detach(), found)
    model.zero_grad(set_to_none=True)
    optimizer = FlatAdamW(FlatParameters(model, torch.float32), **HYPER)
    fused = FusedLlama(model, optimizer.flat)
    seen = fused_gradients(fused, optimizer, Batch(tokens()))
    error = worst(seen, wanted)
    say(f"{name}: gradients", error < 2e-6 and seen.gradients.keys() == found.keys(), error)
    before = {n: t.clone() for n, t in model.state_dict().items()}
    step = GraphedStep(fused, optimizer, batch=(2, 17), accumulation=1, clip=Clip(0.5))
    loss = step.forward(Batch(tokens()))
    step.backward(0)
    norm = float(step.update(loss).norm)
    moved = {n for n, t in model.state_dict().items() if not torch.equal(t, before[n])}
    whole = math.sqrt(sum(float(g.square().sum()) for g in found.values()))
    say(f"{name}: moves", moved == found.keys() and abs(norm / whole - 1) < 1e-5, moved)


def takes_rows_that_are_cut() -> None:
    """Each as autograd has it, whichever came before."""
    model, fused, flat = made(UNTIED)
    step = GraphedStep(fused, flat, batch=(2, 16), accumulation=1, clip=Clip(None), cuts=(4, 2))
    errors = []
    for pieces in (4, 2, 1, 4):
        batch = Batch(tokens(16)).cut(pieces)
        wanted = plain(model, batch.ids)
        loss = step.forward(batch)
        step.backward(0)
        errors.append(worst(Seen(loss, None, flat.flat.gradients()), replace(wanted, logits=None)))
    say("rows cut shorter, and whole ones again", max(errors) < 2e-6, errors)


def muon_is_the_same_over_flat_buffers(name: str, **own: float) -> None:
    """Untied, so that what AdamW keeps lies on both sides of Muon's matrices."""
    model, twin = Llama(UNTIED), Llama(UNTIED)
    init_weights(model, 0), init_weights(twin, 0)
    rates = {"embedding": 0.04, "head": 0.005}
    hyper = {**HYPER, "muon_lr": 0.02, "momentum": 0.9, "own_lr": rates, **own}
    flat = FlatMuon(FlatParameters(model, torch.float32), **hyper)
    plain = MuonOptimizer(twin, **hyper, fused=False)
    fused = FusedLlama(model, flat.flat)
    step = GraphedStep(fused, flat, batch=(2, 9), accumulation=1, clip=Clip(0.5))
    for number in range(3):
        optimizer_rate = 0.01 / (number + 1)
        plain.set_lr(optimizer_rate), flat.set_lr(optimizer_rate)
        ids = torch.randint(0, 96, (2, 9), generator=torch.Generator().manual_seed(number))
        loss = step.forward(Batch(ids))
        step.backward(0)
        step.update(loss)
        twin(ids, ids)[1].backward()
        torch.nn.utils.clip_grad_norm_(twin.parameters(), 0.5)
        plain.step(torch.zeros(()))
    pairs = zip(model.parameters(), twin.parameters(), strict=True)
    moved = max(float((a - b).norm() / b.norm()) for a, b in pairs)
    say(f"{name}: three clipped steps", moved < 1e-4, moved)
    theirs, mine = plain.tensors(), flat.tensors()
    say(f"{name}: state under the same names", set(mine) == set(theirs))
    third = {"lr": 0.01, "muon_lr": 0.02, "embedding_lr": 0.04, "head_lr": 0.005}
    rates = {field: rate / 3 for field, rate in third.items()}
    wanted = OptimizerConfig(name="muon", muon_momentum=0.9, muon_beta2=own.get("beta2"), **rates)
    found = wrong_groups(flat.groups(), wanted, frozenset({"matrices"}))
    say(f"{name}: hyper-parameters", not found, flat.groups())
    flat.reset()
    zero = not any(t.any() for t in flat.tensors().values())
    flat.load(theirs)
    same = all(torch.equal(t, theirs[n]) for n, t in flat.tensors().items())
    say(f"{name}: state goes out and comes back", zero and same)


def muon_kernels_keep_the_error_rule() -> None:
    for dtype in (torch.float32, torch.float16):
        some = [c for c in muon._cases(torch.device("cpu"), dtype) if c[0].numel() < 10_000]
        found = [d for c in some for d in deviations(muon.muon_triton, muon.muon_reference, *c)]
        broken = [str(d) for d in found if not d.is_accurate()]
        say(f"muon: kernels in {dtype}", len(found) == 6 and not broken, broken)
    p, m, g, u, control = some[0]
    control[muon.SKIP] = 1.0
    made, after, still = muon.muon_triton(p, m, g * torch.nan, u, control)
    same = torch.equal(after, m) and torch.equal(still, p) and not made.any()
    say("muon: kernels skip", same)


def watches_like_the_plain_step() -> None:
    """Norms of single parameters, ZClip's statistics, half a batch: as autograd has them."""
    model, fused, flat = made(UNTIED)
    zclip = ZClip(torch.device("cpu"), threshold=2.5, decay=0.9, warmup=2)
    step = GraphedStep(fused, flat, batch=(2, 9), accumulation=1, clip=Clip(None, zclip))
    flat.set_lr(1e-4)  # so that the first three gradients are alike
    seen, spikes = [], []
    for factor in (1.0, 1.0, 1.0, 40.0):
        seen.append(plain(model, tokens(9)))
        loss = step.forward(Batch(tokens(9)), 1.0, factor)
        step.backward(0)
        before = torch.cat([p.detach().flatten() for p in model.parameters()])
        updated = step.update(loss)
        spikes.append(float(updated.spike))
    exact = {n: float(g.norm()) * 40 for n, g in seen[-1].gradients.items()}
    found = {name: float(norm) for name, norm in step.norms().items()}
    worst_norm = max(abs(found[n] / exact[n] - 1) for n in exact)
    say("norms of parameters", set(found) == set(exact) and worst_norm < 1e-4, worst_norm)
    after = torch.cat([p.detach().flatten() for p in model.parameters()])
    say("zclip sees the spike", spikes == [0.0, 0.0, 0.0, 1.0] and bool((after != before).any()))
    whole = math.sqrt(sum(n * n for n in exact.values()))
    say("zclip remembers what it allowed", float(zclip.state[0]) < whole / 10, zclip.state)
    say("the loss of a broken gradient", abs(float(loss / seen[-1].loss) - 1) < 1e-5)
    half = tokens(9)[:1]
    wanted = plain(model, half).gradients.values()
    norm = math.sqrt(sum(float(g.square().sum()) for g in wanted))
    got = float(half_batch_norm(step, Batch(tokens(9))))
    say("the norm of half a batch", abs(got / norm - 1) < 1e-5, (got, norm))


def sees_a_first_micro_batch() -> None:
    """Of the second of two ranks, before anything is added up over them."""
    model, fused, optimizer = made(UNTIED)
    wanted = plain(model, tokens(9)).gradients.values()
    flat = FlatAdamW(optimizer.flat, **HYPER, accumulates=True)
    step = GraphedStep(fused, flat, batch=(2, 9), accumulation=3, clip=Clip(0.5), ranks=Ranks(1, 2))
    step.forward(Batch(tokens(9)), is_last=False)
    step.backward(0)
    norm = math.sqrt(sum(float(g.square().sum()) for g in wanted))
    got = float(step.first_norm(3.0))
    say("the norm of a first micro-batch", abs(got / norm - 1) < 1e-5, (got, norm))


def gate_catches(name: str, sabotage: Callable[[FusedLlama], None]) -> None:
    """Whether the comparison that runs before step 1 notices, and nothing else, and changes none
    of the weights.
    """
    model, fused, optimizer = made(TINY)
    place = Placement(torch.device("cpu"), None, "bf16", compiles=False)
    trainable = SimpleNamespace(trained=lambda: dict(model.named_parameters()))
    parts: Any = SimpleNamespace(
        model=model,
        decoder=model,
        trainable=trainable,
        optimizer=optimizer,
        placement=place,
        score=CrossEntropy().bind,
    )
    weights = {name: weight.clone() for name, weight in model.state_dict().items()}
    clean = compare(parts, fused, Batch(tokens()))
    changed = [n for n, weight in model.state_dict().items() if not torch.equal(weight, weights[n])]
    sabotage(fused)
    broken = compare(parts, fused, Batch(tokens()))
    say(f"gate: {name}", not clean and not changed and bool(broken), (clean, changed, broken[:2]))


def swapped_strides(fused: FusedLlama) -> None:
    """A view of o_proj's square matrix, read along the wrong axis."""
    layer = fused.layers[0]
    layer.o._value = layer.o.value.t()


def missing_rope(fused: FusedLlama) -> None:
    """Angles of nothing, here alone: the tables are the plain model's, too."""
    fused.rotary = copy.deepcopy(fused.rotary)
    fused.rotary.cos = torch.ones_like(fused.rotary.cos)
    fused.rotary.sin = torch.zeros_like(fused.rotary.sin)


def overflow(fused: FusedLlama) -> None:
    """Activations beyond fp16's 65,504, as a half-precision accumulator would leave them."""
    gate_up = fused.layers[0].mlp.gate_up
    gate_up._value = (gate_up.value * 1e6).half().float()


def nan_backward(fused: FusedLlama) -> None:
    """A transposed product that is not a number once its operand reaches 1e5."""
    gate_up = fused.layers[0].mlp.gate_up
    honest = gate_up.backward

    def faulty(x: torch.Tensor, dy: torch.Tensor) -> torch.Tensor:
        dx = honest(x, dy)
        large = gate_up.gradient * 1e5
        gate_up.gradient.copy_(torch.where(large.abs() > 1.0, torch.nan, gate_up.gradient))
        return dx

    gate_up.backward = faulty  # type: ignore[method-assign]


def zeroed_output(fused: FusedLlama) -> None:
    """A kernel that never stored."""
    down = fused.layers[1].mlp.down
    down._value = torch.zeros_like(down.value)


def fp8_kernels_keep_the_error_rule() -> None:
    for dtype in (torch.float32, torch.float16):
        small = next(c for c in fp8._cases(torch.device("cpu"), dtype) if len(c[0]) == 128)
        found = deviations(fp8.fp8_triton, fp8.fp8_reference, *small)
        broken = [str(d) for d in found if not d.is_accurate()]
        say(f"fp8: kernels in {dtype}", len(found) == 6 and not broken, broken)


def fp8_rounds_as_torch_does() -> None:
    """Every half and whole unit, what is below the smallest, what is above the largest, no number.

    One saturates where the other gives up: torch is asked for what is left.
    """
    every = torch.arange(127).to(torch.uint8).view(fp8.E4M3).float()
    halves = (every[1:] + every[:-1]) / 2
    some = torch.cat((every, halves, halves * (1 + 1e-5), halves * (1 - 1e-5), every * 1e-9))
    some = torch.cat((some, torch.tensor([449.0, 1e30, torch.inf, torch.nan])))
    x = torch.zeros(4096)
    x[: len(some)], x[2048 : 2048 + len(some)] = some, -some
    seen = torch.zeros(fp8.SLOTS)
    got = fp8.cast(x.view(64, 64), torch.ones(()), seen)
    want = x.clamp(-448, 448).to(fp8.E4M3).view(64, 64)
    same = torch.equal(got.rows.float().nan_to_num(7e3), want.float().nan_to_num(7e3))
    turned = torch.equal(got.columns.view(torch.uint8).t(), got.rows.view(torch.uint8))
    say("fp8: rounds as torch does", same and turned)
    fp8.cast(torch.full((64, 64), -3.5), torch.ones(()), seen.zero_())
    say("fp8: sees the largest", float(seen.max()) == 3.5)


def fp8_errs_as_its_arithmetic_does() -> None:
    config = LlamaConfig(64, 1, 4, 2, 64, 96, 64)
    model = Llama(config)
    init_weights(model, 0)
    ids, flat = tokens(64), FlatParameters(model, torch.float32)
    truth = plain(model, ids)
    with emulated(model):
        allowed = plain(model, ids)
    fused = FusedLlama(model, flat, Scales.of(config, ids.device))
    fused.calibrate(ids)
    optimizer = FlatAdamW(flat, **HYPER)
    broken = violations(fused_gradients(fused, optimizer, Batch(ids)), allowed, truth)
    say("fp8: errs as its arithmetic does", not broken, broken)
    gradient = flat.gradients()["model.layers.0.mlp.up_proj.weight"]
    error = float((gradient - truth.gradients["model.layers.0.mlp.up_proj.weight"]).norm())
    say("fp8: is in use", error > 0.01 * float(gradient.norm()), error)
    resumed = FusedLlama(model, flat, Scales.of(config, ids.device))
    resumed.scales.load(fused.scales.to_json())
    found = []
    for one in (fused, resumed):
        results = fused_gradients(one, optimizer, Batch(ids.flip(0, 1))).results()
        found.append({name: value.clone() for name, value in results.items()})
    same = all(torch.equal(value, found[1][name]) for name, value in found[0].items())
    say("fp8: resumed, it rounds as it would have", same)
    fused.scales.forget()
    fused.scales.advance = lambda: None  # type: ignore[method-assign]
    broken = violations(fused_gradients(fused, optimizer, Batch(ids)), allowed, truth)
    say("gate: fp8 without scales", bool(broken), broken[:2])


def fp8_leaves_frozen_mlps_in_half_precision() -> None:
    """One frozen, one in int8, and one in fp8 beside them."""
    config = LlamaConfig(64, 3, 4, 2, 64, 96, 64)
    model = Llama(config)
    init_weights(model, 0)
    for module in ("gate_proj", "up_proj", "down_proj"):
        mlp = model.model.layers[1].mlp
        setattr(mlp, module, Int8(getattr(mlp, module).weight.detach()))
    model.model.layers[0].mlp.requires_grad_(False)
    ids, named = tokens(64), {n: p for n, p in model.named_parameters() if p.requires_grad}

    def look() -> Seen:
        _, (loss, _) = model(ids, score=NextTokens(ids))
        loss.backward()
        found = {n: p.grad.clone() for n, p in named.items()}
        model.zero_grad(set_to_none=True)
        return Seen(loss.detach(), model(ids)[0].detach(), found)

    truth = look()
    with emulated(model):
        allowed = look()
    flat = FlatParameters(model, torch.float32)
    fused = FusedLlama(model, flat, Scales.of(config, ids.device))
    fused.calibrate(ids)
    found = fused_gradients(fused, FlatAdamW(flat, **HYPER), Batch(ids))
    broken = violations(found, allowed, truth)
    kinds = [type(layer.mlp).__name__ for layer in fused.layers]
    holds = kinds == ["HalfMlp", "HalfMlp", "Fp8Mlp"] and found.gradients.keys() == named.keys()
    say("fp8: frozen MLPs stay as they are", holds and not broken, (kinds, broken))


def goes_on_plainly() -> None:
    """Weights and moments of a fused step that was left are those that the plain one goes on with,
    step by step as a run that was plain all along.
    """
    ids, lines = Batch(tokens(9)), []
    for leaves in (False, True):
        with tempfile.TemporaryDirectory() as folder:
            raw = json.dumps(tiny_config(Path(folder), training__max_steps=5)).encode()
            parts = build(parse_config(raw, file="tiny.yaml"))
        step: Any = None
        if leaves:
            flat = FlatParameters(parts.model, torch.float32)
            parts = replace(parts, optimizer=FlatAdamW(flat, **settings(parts.config.optimizer)))
            fused = FusedLlama(parts.model, flat)
            step = GraphedStep(
                fused, parts.optimizer, batch=(2, 9), accumulation=1, clip=parts.clip
            )
        else:
            step = PlainStep(parts)
        ids.ids.clamp_(max=63)
        losses = []
        for number in range(6):
            if number == 3 and leaves:
                with dispatch.deciding_anew():
                    parts, step = plain_step(parts, "a test")
            step.optimizer.set_lr(0.01)
            loss = step.forward(ids)
            step.backward(0)
            step.update(loss)
            losses.append(float(loss))
        lines.append(losses)
    apart = max(abs(a - b) for a, b in zip(*lines, strict=True))
    say("a fused step that is left goes on plainly", apart < 1e-4, (apart, lines))


def main() -> None:
    rms_norm.PROGRAMS = qk_norm.PROGRAMS = 8
    adamw.SUM_BLOCK, adamw.SUM_PROGRAMS = 8192, 3
    equals_autograd()
    computed_again("fp32", torch.float32)
    computed_again("fp16, with bits beside it", torch.float16)
    computed_again("fp8", torch.float32)
    computed_again("qk-norm", torch.float16)
    norms_of_heads()
    updates_like_torch(UNTIED)
    updates_like_torch(replace(UNTIED, **NORMED), "qk-norm: ")
    takes_rows_that_are_cut()
    sees_every_token_first()
    trains_a_part("norms alone", lambda name: "norm" not in name)
    trains_a_part("attention and some norms", lambda name: "mlp" in name or "input" in name)
    trains_a_part("norms beside int8", lambda name: "norm" not in name, INT8)
    muon_is_the_same_over_flat_buffers("muon")
    muon_is_the_same_over_flat_buffers("normuon", beta2=0.9)
    muon_kernels_keep_the_error_rule()
    shadows_follow("", lambda flat: FlatAdamW(flat, **HYPER))
    shadows_follow("muon: ", lambda flat: FlatMuon(flat, **HYPER, muon_lr=0.02, momentum=0.9))
    watches_like_the_plain_step()
    sees_a_first_micro_batch()
    fp8_kernels_keep_the_error_rule()
    fp8_rounds_as_torch_does()
    fp8_errs_as_its_arithmetic_does()
    fp8_leaves_frozen_mlps_in_half_precision()
    goes_on_plainly()
    for sabotage in (swapped_strides, missing_rope, overflow, nan_backward, zeroed_output):
        gate_catches(sabotage.__name__.replace("_", " "), sabotage)


if __name__ == "__main__":
    main()
