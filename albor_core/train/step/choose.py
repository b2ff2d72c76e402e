"""Which step a run takes: written-out kernels where they pass, otherwise autograd, compiled or
plain.

The fused step is a candidate on a GPU in bf16, and the only one in fp8. Before the first step it
passes the gate (`gate.py`), and so does a compiled one; where they do not pass, or nothing
compiles, the plain model trains as it is. Speed is not raced here: docs/performance.md has it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn

from albor_core.kernels import dispatch
from albor_core.model.fused import FusedLlama
from albor_core.train.build import Parts, compiled, fp8_refused, plain_optimizer
from albor_core.train.optim.adamw import FlatAdamW
from albor_core.train.ranks.peer_copies import PeerCopies, peer_copies
from albor_core.train.ranks.sharding import uncompiled
from albor_core.train.step.fused import GraphedStep
from albor_core.train.step.gate import GATE_ROWS, compare, compare_compiled, compared
from albor_core.train.step.optimizer_step import Stepper
from albor_core.train.step.plain import PlainStep


def choose_step(parts: Parts, event: Callable[..., None]) -> tuple[Parts, Stepper]:
    """The step to train with, and parts that fit it; `event` is told what was chosen and why."""
    if not isinstance(parts.optimizer, FlatAdamW):
        return _plain(parts, event, f"not fused: {parts.obstacle}"[:500])
    model = parts.decoder
    assert model is not None
    segments = parts.config.training.segments(model.config.num_hidden_layers)
    fused = FusedLlama(model, parts.optimizer.flat, parts.scales, segments=segments)
    copies, hindrance = _copies(parts)
    step, faults = _graphed(parts, fused, copies)
    faults = parts.ranks.first(faults)  # one rank's is everybody's: they take the same step
    if step is not None and not faults:
        without = fused.left_out(parts.share.batch_size, parts.config.data.seq_len)
        told = ["logits and gradients pass parity", *(f"no {op}: {w}" for op, w in without.items())]
        told += [f"gradients in one message: {hindrance}"] if hindrance else []
        event("step.chosen", backend="fused", reason="; ".join(told)[:500])
        return parts, step
    del step
    event("kernels.rejected", severity="warning", backend="fused", reason=faults[:1000])
    if parts.scales is not None:
        raise fp8_refused(faults[:300])
    parts = replace(_unfused(parts), forward=compiled(parts.model, parts.placement))
    return _plain(parts, event, "not fused: it was rejected")


def _unfused(parts: Parts) -> Parts:
    """The parts with the optimizer of a plain step, in the state of the flat one."""
    plain, state = plain_optimizer(parts.config, parts.trainable), parts.optimizer.tensors()
    if int(next(value for name, value in state.items() if name.startswith("step."))):
        plain.load(state)
    return replace(parts, optimizer=plain)


def has_own_arithmetic(parts: Parts, step: Stepper) -> bool:
    """Whether anything of a step is computed otherwise than by the plain model without kernels."""
    if isinstance(step, GraphedStep) or parts.placement.compiles:
        return True
    return "triton" in dispatch.taken(parts.placement.device).values()


def plain_step(parts: Parts, because: str) -> tuple[Parts, PlainStep]:
    """The plain model with no kernel of ours and no compiler, whatever trained until now: weights,
    optimizer and place in the data stay. Needs the memory of a plain step.
    """
    dispatch.use_references(because)
    parts.model.zero_grad(set_to_none=True)
    if isinstance(parts.optimizer, FlatAdamW):
        parts = _unfused(parts)
    if parts.placement.compiles:
        uncompiled(parts.recipe.blocks(parts.model))
    placement = replace(parts.placement, compiles=False)
    parts = replace(parts, placement=placement, forward=parts.model)
    return parts, PlainStep(parts)


def _plain(parts: Parts, event: Callable[..., None], reason: str) -> tuple[Parts, PlainStep]:
    """Compiled where that is wanted and passes, otherwise as it stands."""
    step = PlainStep(parts, event)
    if parts.placement.compiles:
        if not (faults := _compiled_faults(parts, step)):
            event("step.chosen", backend="compiled", reason=reason)
            return parts, step
        event("kernels.rejected", severity="warning", backend="compiled", reason=faults[:1000])
        uncompiled(parts.recipe.blocks(parts.model))
        placement = replace(parts.placement, compiles=False)
        parts = replace(parts, placement=placement, forward=parts.model)
        event("step.chosen", backend="plain", reason=f"{reason}; not compiled: it was rejected")
        return parts, PlainStep(parts)
    if parts.placement.is_gpu:
        event("step.chosen", backend="plain", reason=reason)
    return parts, step


def _compiled_faults(parts: Parts, step: PlainStep) -> str:
    """What is wrong with the compiled step on any rank, or "".

    Sharded, a compiler is only tried: no rank has the gradients to compare with.
    """
    faults: list[str] = []
    try:
        if parts.ranks.is_sharded:
            probe = torch.ones(8, device=parts.placement.device, requires_grad=True)
            torch.compile(nn.functional.silu)(probe).sum().backward()  # type: ignore[no-untyped-call]
        else:
            faults = compare_compiled(parts, step, parts.batch(0, 0).ids)
            if parts.placement.is_gpu:
                torch.cuda.empty_cache()
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # whatever a compiler raises, the run goes on without it
        faults = [f"{type(error).__name__}: {str(error)[:300]}"]
    finally:
        step.drop()
    return parts.ranks.first("; ".join(faults))


def _copies(parts: Parts) -> tuple[PeerCopies | None, str]:
    """How two GPUs are to exchange gradients, or what of this machine hinders it."""
    assert isinstance(parts.optimizer, FlatAdamW)
    gradient = parts.optimizer.flat.matrices.gradient
    if parts.ranks.is_alone or parts.optimizer.accumulates or not gradient.numel():
        return None, ""
    return peer_copies(parts.ranks, gradient)


def _graphed(
    parts: Parts, fused: FusedLlama, copies: PeerCopies | None
) -> tuple[GraphedStep | None, str]:
    """The fused step, or what is wrong with it."""
    assert isinstance(parts.optimizer, FlatAdamW)
    batch = parts.batch(0, 0)
    ids = batch.ids
    cuts = [pieces for _, pieces in parts.clock.cuts]
    try:
        for shaped in (batch, *map(batch.cut, cuts)):
            for part in compared(fused, shaped.ids):
                if faults := compare(parts, fused, shaped.corner(*part.shape)):
                    return None, "; ".join(faults)
        if ids.is_cuda:
            torch.cuda.empty_cache()  # what the plain model took is of no use to the fused step
        step = GraphedStep(
            fused,
            parts.optimizer,
            batch=(ids.shape[0], ids.shape[1]),
            accumulation=parts.share.accumulation,
            clip=parts.clip,
            ranks=parts.ranks,
            copies=copies,
            like=batch,
            head=parts.recipe.head,
            cuts=cuts,
        )
        _scale(fused, ids[:GATE_ROWS])
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # whatever a driver or compiler raises, the run goes on without it
        return None, f"{type(error).__name__}: {str(error)[:300]}"
    return step, ""


def _scale(fused: FusedLlama, ids: Tensor) -> None:
    """fp8's scales: a checkpoint's, or found here. The gate's were its own, and the warm-up before
    a capture saw one token only.
    """
    if fused.scales is None:
        return
    if fused.scales.first is None:
        fused.calibrate(ids)
        fused.scales.first = fused.scales.to_json()
    else:
        fused.scales.reset()
