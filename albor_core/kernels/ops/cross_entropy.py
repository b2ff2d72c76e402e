"""Cross-entropy in one pass over the logits, the gradient written over them in the forward.

Per counted row loss = lse - x[label] + z_loss * lse^2 with lse = log(sum(exp(x))); the result is
the mean over counted rows, and 0 with zero gradients when no row counts.

Shapes  logits (..., V) in fp32/bf16/fp16; labels (...) int64, IGNORED where nothing is scored.
        Statistics and loss in fp32, the mean by fp64.
Memory  one fp32 per row. A forward that records a gradient OVERWRITES THE LOGITS with it: whoever
        else reads them has to copy them first. Autograd knows: a second backward, or that of an
        operation which saved the logits, raises. Without a gradient nothing is written.
Limits  copies logits that are not contiguous; first derivatives only. A label outside [0, V) that
        is not IGNORED makes the loss NaN; nothing outside the row is read.
Design  up to ON_CHIP columns a row stays in registers: read once, exponentiated once, written once,
        while the next row is already on its way (one program per multiprocessor cannot
        hide its loads behind another one: 542 us with that prefetch, 640 without, 757 reading each
        row twice; 16384 x 32768 bf16, H200). Longer rows are read twice, in blocks.
Speed   the same, with the small launches around it: forward and backward 574 us (Inductor 1367,
        plain PyTorch 6488, a copy of the same bytes 513): benchmarks/step/kernels.py, torch 2.11.
Source  online softmax: Milakov & Gimelshein 2018, arXiv:1805.02867; z-loss: Chowdhery et al. 2022,
        arXiv:2204.02311, section 5; gradient derived in docs/concepts/kernels.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from albor_core.kernels.dispatch import Op, register, use_triton
from albor_core.kernels.toolchain import KernelLaunch, jit, next_power_of_2, tl

IGNORED = -100  # label of a position that is not scored, as in transformers
ON_CHIP = 32768  # columns whose exponentials fill half the registers of a multiprocessor
LOOPED_BLOCK = 2048  # columns per step of longer rows
RESCALE_BLOCK = 4096


def cross_entropy_reference(
    logits: Tensor, labels: Tensor, z_loss: float = 0.0, upstream: Tensor | None = None
) -> Tensor:
    """Plain PyTorch; overwrites nothing, and needs no `upstream`. IndexError for a wild label."""
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32)).flatten(0, -2)
    flat = labels.flatten()
    total = F.cross_entropy(wide, flat, ignore_index=IGNORED, reduction="sum")
    counted = flat != IGNORED
    if z_loss:
        total = total + z_loss * (wide.logsumexp(-1).square() * counted).sum()
    return total / counted.sum().clamp_min(1)


@jit
def _weigh(label, V: tl.constexpr, IGNORED: tl.constexpr):
    """1, 0 if ignored, NaN for a wild label."""
    known = (label >= 0) & (label < V)
    return tl.where(known, 1.0, tl.where(label == IGNORED, 0.0, float("nan")))


@jit
def _scale_of(count_ptr, upstream_ptr):
    """The scale of a counted row's gradient. The division is a call: with a row in registers, they
    spill."""
    count = tl.maximum(tl.load(count_ptr), 1).to(tl.float32)
    return tl.div_rn(1.0, count) * tl.load(upstream_ptr)


@jit
def _on_chip(
    logits_ptr, labels_ptr, loss_ptr, count_ptr, upstream_ptr, rows,
    z_loss: tl.constexpr, V: tl.constexpr, IGNORED: tl.constexpr, BLOCK: tl.constexpr,
    WRITES: tl.constexpr, EACH: tl.constexpr, PREFETCHES: tl.constexpr,
):  # fmt: skip
    """Rows pid, pid + programs, ...; loss_ptr gets each row's loss. EACH: so upstream_ptr has."""
    col = tl.arange(0, BLOCK)
    share = _scale_of(count_ptr, upstream_ptr)
    row = tl.program_id(0)
    dtype = logits_ptr.dtype.element_ty
    ahead = tl.load(logits_ptr + row.to(tl.int64) * V + col, col < V, -float("inf"))
    while row < rows:
        here = logits_ptr + row.to(tl.int64) * V  # rows * V passes 2^31
        x = ahead.to(tl.float32)
        label = tl.load(labels_ptr + row)
        is_known = (label >= 0) & (label < V)
        picked = tl.load(here + label, is_known, 0.0).to(tl.float32)
        weight = _weigh(label, V, IGNORED)
        scale = weight * share
        if EACH:
            scale = weight * tl.load(upstream_ptr + row)
        row += tl.num_programs(0)
        if PREFETCHES:
            after = logits_ptr + row.to(tl.int64) * V
            ahead = tl.load(after + col, col < tl.where(row < rows, V, 0), -float("inf"))
        top = tl.max(x, 0)
        exps = tl.exp(x - top)
        total = tl.sum(exps, 0)
        lse = top + tl.log(total)
        loss = tl.where(weight == 0.0, 0.0, weight * (lse - picked + z_loss * lse * lse))
        tl.store(loss_ptr + row - tl.num_programs(0), loss)
        if WRITES:
            pull = 2.0 * z_loss * lse
            grad = tl.where(scale == 0.0, 0.0, exps * (scale * (1.0 + pull) / total))
            tl.store(here + col, grad.to(dtype), col < V)
            tl.debug_barrier()  # the label's own column again, after everybody's stores
            p = tl.exp(picked - top) / total
            grad = scale * ((p - 1.0) + pull * p)  # p - 1 first: both are near 1 at the end
            tl.store(here + label, grad.to(dtype), is_known)
        if not PREFETCHES:
            after = logits_ptr + row.to(tl.int64) * V
            ahead = tl.load(after + col, col < tl.where(row < rows, V, 0), -float("inf"))


@jit
def _looped(
    logits_ptr, labels_ptr, loss_ptr, count_ptr, upstream_ptr,
    z_loss: tl.constexpr, V: tl.constexpr, IGNORED: tl.constexpr, BLOCK: tl.constexpr,
    WRITES: tl.constexpr, EACH: tl.constexpr,
):  # fmt: skip
    """One row: an online softmax per lane, then the gradient from a second, cached, reading."""
    row = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, BLOCK)
    here = logits_ptr + row * V
    label = tl.load(labels_ptr + row)
    picked = tl.load(here + label, (label >= 0) & (label < V), 0.0).to(tl.float32)
    weight = _weigh(label, V, IGNORED)
    if EACH:
        scale = weight * tl.load(upstream_ptr + row)
    else:
        scale = weight * _scale_of(count_ptr, upstream_ptr)
    top = tl.full((BLOCK,), -3.0e38, tl.float32)  # finite: -inf - -inf would be NaN
    total = tl.zeros((BLOCK,), tl.float32)
    for start in tl.range(0, V, BLOCK, num_stages=3):
        x = tl.load(here + start + lane, start + lane < V, -float("inf")).to(tl.float32)
        smaller = tl.exp(-tl.abs(x - top))  # one of old and new maximum has weight one
        total = tl.where(x > top, total * smaller + 1.0, total + smaller)
        top = tl.maximum(top, x)
    highest = tl.max(top, 0)
    lse = highest + tl.log(tl.sum(total * tl.exp(top - highest), 0))
    loss = tl.where(weight == 0.0, 0.0, weight * (lse - picked + z_loss * lse * lse))
    tl.store(loss_ptr + row, loss)
    if WRITES:
        pull = 2.0 * z_loss * lse
        for start in tl.range(0, V, BLOCK):
            col = start + lane
            x = tl.load(here + col, col < V, -float("inf")).to(tl.float32)
            p = tl.exp(x - lse)
            grad = scale * ((p - tl.where(col == label, 1.0, 0.0)) + pull * p)
            grad = tl.where(scale == 0.0, 0.0, grad)
            tl.store(here + col, grad.to(logits_ptr.dtype.element_ty), col < V)


@jit
def _rescale(
    grad_ptr, upstream_ptr, expected_ptr, numel, BLOCK: tl.constexpr,
):  # fmt: skip
    """grad *= upstream / expected, which costs nothing when they are equal; no host sync to ask."""
    upstream, expected = tl.load(upstream_ptr), tl.load(expected_ptr)
    if upstream != expected:
        ratio = upstream / expected
        start = tl.program_id(0).to(tl.int64) * BLOCK
        while start < numel:
            at = start + tl.arange(0, BLOCK)
            grad = tl.load(grad_ptr + at, at < numel, 0.0).to(tl.float32) * ratio
            tl.store(grad_ptr + at, grad.to(grad_ptr.dtype.element_ty), at < numel)
            start += tl.num_programs(0).to(tl.int64) * BLOCK


def _multiprocessors(device: torch.device) -> int:
    if device.type != "cuda":
        return 4  # interpreted: few enough that a program meets several rows
    return torch.cuda.get_device_properties(device).multi_processor_count


def _on_chip_meta(V: int, itemsize: int) -> dict[str, Any]:
    """64 numbers per thread, at most 16 warps. fp32 rows leave no registers to prefetch into."""
    block = max(128, next_power_of_2(V))
    return {
        "BLOCK": block,
        "PREFETCHES": itemsize == 2,
        "num_warps": max(4, min(16, block // 2048)),
    }


def score(
    logits: Tensor,
    labels: Tensor,
    z_loss: float,
    upstream: Tensor,
    *,
    writes: bool,
    count: Tensor | None = None,
) -> Tensor:
    """The loss, and if `writes` its gradient over contiguous logits; autograd sees nothing.

    `count` (int64 scalar) where these rows are part of a larger mean: then the sum over such parts
    is the loss.
    """
    count = (labels != IGNORED).sum() if count is None else count
    loss = _row_losses(logits, labels, z_loss, upstream, count, writes=writes)
    # In fp64: of a few rows, fp32 partial sums alone can cost twice what torch's rounding does.
    return (loss.sum(dtype=torch.float64) / count.clamp_min(1)).to(torch.float32)


def nats(logits: Tensor, labels: Tensor, upstream: Tensor | None = None) -> Tensor:
    """-ln p of each label (rows,), fp32, 0 where it is IGNORED; with an `upstream` (rows,) fp32 for
    each of them the gradient is written over the logits (rows, V), which are contiguous.
    """
    one = torch.ones((), dtype=torch.int64, device=logits.device)
    if upstream is None:
        return _row_losses(logits, labels, 0.0, one.float(), one, writes=False)
    return _row_losses(logits, labels, 0.0, upstream, one, writes=True, each=True)


def _row_losses(
    logits: Tensor,
    labels: Tensor,
    z_loss: float,
    upstream: Tensor,
    count: Tensor,
    *,
    writes: bool,
    each: bool = False,
) -> Tensor:
    """(rows,) fp32; if `writes`, the gradient of their sum over `count` is over the logits, or that
    of `each` by its own upstream.
    """
    V, rows = logits.shape[-1], labels.numel()
    # 0 is a loss; what a kernel that never ran leaves is not
    loss = torch.full((rows,), torch.nan, dtype=torch.float32, device=logits.device)
    same = {"z_loss": z_loss, "V": V, "IGNORED": IGNORED, "WRITES": writes, "EACH": each}
    if V <= ON_CHIP:
        meta = _on_chip_meta(V, logits.element_size())
        programs = min(rows, _multiprocessors(logits.device) * max(1, ON_CHIP // meta["BLOCK"]))
        _on_chip[(programs,)](logits, labels, loss, count, upstream, rows, **same, **meta)
    else:
        _looped[(rows,)](
            logits, labels, loss, count, upstream, **same, BLOCK=LOOPED_BLOCK, num_warps=4
        )
    return loss


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, labels: Tensor, z_loss: float, upstream: Tensor, writes: bool
    ) -> Tensor:
        logits, labels = logits.contiguous(), labels.contiguous()
        loss = score(logits, labels, z_loss, upstream, writes=writes)
        if writes:
            torch.autograd.graph.increment_version(logits)
        ctx.save_for_backward(logits, upstream)
        return loss

    @staticmethod
    def backward(ctx: Any, dloss: Tensor) -> tuple[Tensor, None, None, None, None]:
        grad, expected = ctx.saved_tensors
        programs = min(-(-grad.numel() // RESCALE_BLOCK), _multiprocessors(grad.device) * 8)
        _rescale[(programs,)](grad, dloss, expected, grad.numel(), BLOCK=RESCALE_BLOCK, num_warps=8)
        torch.autograd.graph.increment_version(grad)
        return grad.detach(), None, None, None, None


def cross_entropy_triton(
    logits: Tensor, labels: Tensor, z_loss: float = 0.0, upstream: Tensor | None = None
) -> Tensor:
    """The fused kernels, wherever Triton can launch them (a GPU, or its interpreter)."""
    if upstream is None:
        upstream = torch.ones((), dtype=torch.float32, device=logits.device)
    writes = logits.requires_grad and torch.is_grad_enabled()  # forward() cannot see the latter
    loss: Tensor = _CrossEntropy.apply(logits, labels, z_loss, upstream, writes)
    return loss


def cross_entropy(
    logits: Tensor, labels: Tensor, z_loss: float = 0.0, upstream: Tensor | None = None
) -> Tensor:
    """Mean cross-entropy in nats per counted label, fp32; differentiable in logits, consumes them.

    `upstream` (fp32 scalar on the logits' device, not 0) is the gradient that the loss is going to
    receive: a loss scale, or one over the accumulated micro-batches. Then the gradient is written
    at that scale at once, without a second pass over the logits, and an fp16 gradient does not
    underflow before it is scaled. Any other value that arrives is corrected for.
    Off the GPU it is the reference.
    """
    if logits.numel() > 0 and use_triton("cross_entropy", logits):
        return cross_entropy_triton(logits, labels, z_loss, upstream)
    return cross_entropy_reference(logits, labels, z_loss, upstream)


def _cases(device: torch.device, dtype: torch.dtype) -> Iterator[tuple[Tensor, ...]]:
    """(rows, V), the largest first: it is timed, and its 64 MiB in bf16 exceed the 50 of an H100's
    L2; in fp64, where it is checked, each copy takes 256 MiB of the GPU that a run is to fit on.
    """
    source = torch.Generator(device).manual_seed(1805_02867)
    for rows, V in ((1024, 32768), (9, 50257), (300, 1000), (5, 123), (1, 2)):
        logits = 2 * torch.randn(rows, V, generator=source, device=device)
        labels = torch.randint(0, V, (rows,), generator=source, device=device)
        labels[1::7] = IGNORED
        yield logits.to(dtype), labels


def _launches(dtype: str) -> tuple[KernelLaunch, ...]:
    """How vocabularies of 32,768 and 131,072 are launched with logits in `dtype`."""
    types = {"logits_ptr": f"*{dtype}", "labels_ptr": "*i64", "loss_ptr": "*fp32"}
    types |= {"count_ptr": "*i64", "upstream_ptr": "*fp32"}
    same = {"z_loss": 1e-4, "IGNORED": IGNORED, "WRITES": True, "EACH": False}
    meta = _on_chip_meta(32768, 4 if dtype == "fp32" else 2)
    warps = meta.pop("num_warps")
    on_chip = {**same, "V": 32768, **meta}
    looped = {**same, "V": 131072, "BLOCK": LOOPED_BLOCK}
    rescale = {"grad_ptr": f"*{dtype}", "upstream_ptr": "*fp32", "expected_ptr": "*fp32"}
    rescale |= {"numel": "i64", "BLOCK": "constexpr"}
    constexpr = "constexpr"
    return (
        KernelLaunch(
            _on_chip, types | {"rows": "i32"} | dict.fromkeys(on_chip, constexpr), on_chip, warps
        ),
        KernelLaunch(_looped, types | dict.fromkeys(looped, constexpr), looped, 4),
        KernelLaunch(_rescale, rescale, {"BLOCK": RESCALE_BLOCK}, 8),
    )


register(Op("cross_entropy", cross_entropy_reference, cross_entropy_triton, _cases, _launches))
