"""How a step is taken: written-out kernels where they pass, otherwise autograd, compiled or plain.

The fused step is a candidate on a GPU in bf16, and the only one in fp8. Before the first step its
logits, its loss and each of its gradients meet the plain model's in fp32, on a batch of the run's
own data; what it may err is twice what the plain model errs in bf16, in fp8 with its MLPs' operands
rounded alike. A compiled model's loss and gradients do, too; where they do not pass, or nothing
compiles, the plain model trains as it is. Speed is not raced here: docs/performance.md has it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from albor_core.andon.bricks.names import Brick
from albor_core.kernels import dispatch
from albor_core.model.flat import FlatParameters
from albor_core.model.fp8 import emulated
from albor_core.model.fused import FusedLlama
from albor_core.model.head import HeadScore
from albor_core.model.llama import HALF_JITTER, Llama, role_of
from albor_core.recipes.batch import Batch
from albor_core.recipes.recipe import Forward
from albor_core.run.errors import AlborError
from albor_core.train.build import (
    BatchWeight,
    Parts,
    compiled,
    fp8_refused,
    plain_optimizer,
)
from albor_core.train.optim.adamw import FlatAdamW, Optimizer, kind_of
from albor_core.train.optim.gradients import Updated, gradient_norms, scale_gradients
from albor_core.train.optim.registry import wrong_groups
from albor_core.train.ranks.peer_copies import PeerCopies, peer_copies
from albor_core.train.ranks.sharding import (
    local,
    ran_eagerly,
    replicate,
    reset_ran_eagerly,
    sync_gradients,
    uncompiled,
)
from albor_core.train.step.fused import GraphedStep

GATE_ROWS = 2  # sequences of a batch that the gate compares at least
SLACK = 2.0
ROOM = 4.0  # between the loss scale of a comparison and one that overflows
UNEVEN = 0.75  # logits about 0.1 large at a width of 1,024, as those of a quiet start


class PlainStep:
    """Autograd through `parts.forward`; the reference, and the only one on a CPU."""

    clips_in = "clip"
    """As `GraphedStep.clips_in`."""

    def __init__(self, parts: Parts, event: Callable[..., None] | None = None) -> None:
        """`event` is told if the first step turns out not to be compiled, as it should be."""
        assert isinstance(parts.optimizer, Optimizer)
        self.parts, self.optimizer = parts, parts.optimizer
        self._doubted = event if parts.placement.compiles else None
        self._model = self._spread(parts)
        self._next_brick: Callable[[], None] | None = None
        self._blocks, self._trunk = parts.recipe.blocks(parts.model), None
        if not parts.placement.compiles:  # nor would a compiler see through a hook
            self._trunk = parts.recipe.trunk(parts.model)
        if self._trunk is not None:
            self._trunk.register_forward_hook(self._end_of_forward)
        self._loss: Tensor | None = None
        self._named: Mapping[str, Tensor] = {}
        self._norms: dict[str, Tensor] = {}

    @staticmethod
    def _spread(parts: Parts) -> Forward:
        """Over the other ranks, if there are any."""
        if parts.ranks.is_alone or parts.ranks.is_sharded:
            return parts.forward
        placement = parts.placement
        is_exact = parts.config.training.deterministic or not placement.is_gpu
        copies = replicate(parts.model, is_exact=is_exact)
        forward: Forward = torch.compile(copies, dynamic=False) if placement.compiles else copies
        return forward

    def forward(
        self,
        batch: Batch,
        loss_factor: float = 1.0,
        grad_factor: float = 1.0,
        *,
        weight: BatchWeight | None = None,
        is_last: bool = True,
        brick: Brick = nullcontext,
    ) -> Tensor:
        """What a micro-batch adds to the loss of its step, by its `weight` (`Parts.weights`; as
        much as each of those that are accumulated, if none is given); the factors are injected
        faults.

        `is_last`: of the step, so that its backward ends with the gradients of all ranks.
        """
        scored, whole = weight or BatchWeight(1, self.parts.share.accumulation)
        if isinstance(self._model, nn.Module):
            sync_gradients(self._model, syncs=is_last)
        if self._doubted is not None:
            reset_ran_eagerly(self._blocks)
        with self._forward_bricks(brick), self.parts.placement.autocast():
            recipe = self.parts.recipe
            loss, self._named = recipe.share_of_loss(self._model, batch, scored, whole)
            loss = loss if loss_factor == 1 else loss * loss_factor
        self._loss = loss if grad_factor == 1 else loss * grad_factor
        if self._doubted is not None:
            self._check_compiled(self._doubted)
        return loss.detach()

    @contextmanager
    def _forward_bricks(self, brick: Brick) -> Iterator[None]:
        """Forward and loss: one after the other where Python runs in between."""
        with ExitStack() as now:
            if self._trunk is None:
                now.enter_context(brick("forward+loss"))
                yield
                return

            def turn() -> None:
                now.close()
                now.enter_context(brick("loss"))

            now.enter_context(brick("forward"))
            self._next_brick = turn
            try:
                yield
            finally:
                self._next_brick = None

    def _end_of_forward(self, *_: object) -> None:
        """A forward hook of the decoder, whose other callers have no bricks."""
        if self._next_brick is not None:
            self._next_brick()

    def _check_compiled(self, event: Callable[..., None]) -> None:
        """A compiler that has used up its graphs says nothing and runs what it was given."""
        self._doubted = None
        if ran_eagerly(self._blocks):
            reason = "no compiled graph ran in the first step: it is slower and needs more memory"
            event("step.chosen", severity="warning", backend="plain", reason=reason)

    def named(self) -> Tensor:
        """(n,) what the last micro-batch adds to the recipe's own figures of the step."""
        return torch.stack([self._named[name].detach() for name in self.parts.recipe.columns])

    def backward(self, micro: int, brick: Brick = nullcontext) -> None:
        """Its gradients; they add up over a step's micro-batches."""
        loss, scale = self._loss, self.parts.scale
        assert loss is not None
        with brick("backward"):
            whole = loss if scale is None else loss * scale.scale
            whole.backward()  # type: ignore[no-untyped-call]
        self._loss = None

    def look(self, ids: Tensor, scale: float = 1.0) -> Seen:
        """Loss and gradients as a step takes them, but for accumulation; `scale` is the loss's on
        the way back, as fp16 has one, and gone from both.
        """
        if isinstance(self._model, nn.Module):
            sync_gradients(self._model, syncs=True)
        with self.parts.placement.autocast():
            _, (loss, _) = self._model(ids, score=scored_by(self.parts, Batch(ids)))
        (loss * scale).backward()
        named = self.parts.trainable.trained().items()
        found = {name: p.grad / scale for name, p in named if p.grad is not None}
        self.drop()
        return Seen(loss.detach(), None, found)

    def norm(self) -> Tensor:
        """L2, of the gradients so far, on the device."""
        norms = self._norms_of(list(self._gradients().values()))
        norm: Tensor = torch.linalg.vector_norm(norms)
        return norm if self.parts.scale is None else norm / self.parts.scale.scale

    def first_norm(self, divisor: float) -> Tensor | None:
        """Of the first micro-batch of several, by itself, on this rank; None where its gradients
        cannot be seen.
        """
        if self.parts.ranks.is_sharded:
            return None
        return self.norm() * divisor

    def _norms_of(self, gradients: list[Tensor]) -> Tensor:
        """(n,) of whole gradients; a collective where they are sharded."""
        norms = gradient_norms(gradients)
        ranks = self.parts.ranks
        return ranks.total(norms.square()).sqrt() if ranks.is_sharded else norms

    def drop(self) -> None:
        """Forget the gradients so far."""
        for parameter in self.optimizer.named().values():
            parameter.grad = None

    def norms(self) -> dict[str, Tensor]:
        """Gradient norm () of each parameter in the last update, before clipping; 0 without one."""
        if not self._norms:
            return {}
        none = torch.zeros_like(next(iter(self._norms.values())))
        return {name: self._norms.get(name, none) for name in self.optimizer.named()}

    def update(self, total: Tensor, brick: Brick = nullcontext) -> Updated:
        """Clip and apply the gradients, unless loss (`total`) or gradients are not finite: then the
        weights stay as they are, the step counts, and so does the skip.
        """
        with brick(self.clips_in):
            clipped = self._clip(total)
        with brick("optimizer"):
            self.optimizer.step(clipped.skip)
        return clipped

    def _clip(self, total: Tensor) -> Updated:
        scale, named = self.parts.scale, self._gradients()  # parts of them, where sharded
        gradients = list(named.values())
        if scale is not None:
            scale.unscale(gradients)
        norms = self._norms_of(gradients)
        self._norms = dict(zip(named, norms.unbind(), strict=True))
        norm: Tensor = torch.linalg.vector_norm(norms)
        skip = (~(torch.isfinite(norm) & torch.isfinite(total))).float()
        counts = skip
        if scale is not None:  # overflowing is how the scale is found, until it is at 1
            counts = skip * (~torch.isfinite(total) | (scale.scale <= 1.0))
            scale.update(skip)
        factor, spike = self.parts.clip.factor(norm, skip)
        scale_gradients(gradients, factor)
        return Updated(norm, skip, counts, spike)

    def _gradients(self) -> dict[str, Tensor]:
        named = self.optimizer.named()
        return {name: local(p.grad) for name, p in named.items() if p.grad is not None}


def half_batch_norm(
    step: PlainStep | GraphedStep,
    batch: Batch,
    brick: Brick = nullcontext,
    weight: BatchWeight | None = None,
) -> Tensor:
    """Gradient norm of the first half of a micro-batch, B even; nothing else changes.

    The half goes in twice: shapes stay, so nothing is compiled or captured anew. `weight`: of both.
    """
    step.forward(batch.first(len(batch) // 2).repeated(2), weight=weight, brick=brick)
    step.backward(0, brick)
    norm = step.norm()
    step.drop()
    return norm


def check_optimizer(parts: Parts, event: Callable[..., None], *, is_new: bool) -> None:
    """That hyper-parameters arrived as the config has them, and that new state is zero.

    Raises AlborError. `event` is told what arrived.
    """
    groups = parts.optimizer.groups()
    wrong = wrong_groups(groups, parts.config.optimizer, _absent_kinds(parts))
    state = parts.optimizer.tensors() if is_new else {}
    wrong += [f"{name} does not begin at zero" for name, t in state.items() if local(t).any()]
    told = [  # as many digits as fp32 holds: the rates lie on the device
        {"kind": group.kind, **{name: float(f"{x:.7g}") for name, x in group.values.items()}}
        for group in groups
    ]
    event("optimizer.ready", optimizer=parts.config.optimizer.name, groups=told)
    if wrong:
        raise AlborError(
            f"the optimizer is not the one of the config: {'; '.join(wrong[:5])}",
            hint="this is a mistake of Albor, please report it",
        )


def _absent_kinds(parts: Parts) -> frozenset[str]:
    """Kinds of groups that a model without such parameters has not."""
    wanted = parts.config.optimizer
    moved = {"hidden"} if wanted.name == "muon" else set()
    groups = {*parts.trainable.groups().values()} - moved
    there = {kind_of(group, wanted.own_lr) for group in groups}
    return frozenset({"vectors", "matrices"} - there)


def choose_step(parts: Parts, event: Callable[..., None]) -> tuple[Parts, PlainStep | GraphedStep]:
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
    """With the optimizer of a plain step, which goes on where the flat one is."""
    plain, state = plain_optimizer(parts.config, parts.trainable), parts.optimizer.tensors()
    if int(next(value for name, value in state.items() if name.startswith("step."))):
        plain.load(state)
    return replace(parts, optimizer=plain)


def has_own_arithmetic(parts: Parts, step: PlainStep | GraphedStep) -> bool:
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


def compared(fused: FusedLlama, ids: Tensor) -> Iterator[Tensor]:
    """What of a batch (B, T) the gate looks at: GATE_ROWS sequences; if some kernels take these but
    not the batch, or the other way round, also as few sequences with which it is as in the batch,
    each as long as may be.
    """
    B, T = ids.shape
    yield ids[:GATE_ROWS]
    whole = set(fused.left_out(B, T))
    unseen = whole ^ set(fused.left_out(min(B, GATE_ROWS), T))
    if unseen:
        sizes = ((rows, tokens) for rows in range(GATE_ROWS, B + 1) for tokens in range(T, 0, -1))
        alike = (at for at in sizes if unseen & whole == unseen & set(fused.left_out(*at)))
        rows, tokens = next(alike)
        yield ids[:rows, :tokens]


@dataclass(frozen=True)
class Seen:
    """What a way to compute the model gives for one batch."""

    loss: Tensor
    logits: Tensor | None
    gradients: dict[str, Tensor]

    def results(self) -> dict[str, Tensor]:
        logits = {} if self.logits is None else {"logits": self.logits}
        return {"loss": self.loss, **logits, **self.gradients}


def scored_by(parts: Parts, batch: Batch) -> HeadScore:
    """What the recipe makes of the head's output."""
    assert parts.recipe.head is not None, "neither compiled nor fused"
    return parts.recipe.head.bind(batch)


def compare(parts: Parts, fused: FusedLlama, batch: Batch) -> list[str]:
    """Every result of the fused model that errs too much, with its numbers; [] is a pass."""
    model = parts.decoder
    assert isinstance(parts.optimizer, FlatAdamW)
    assert model is not None
    with uneven(model, parts.optimizer.flat):
        fused.calibrate(batch.ids)
        truth = plain_gradients(parts, batch, half=False)
        with nullcontext() if fused.scales is None else emulated(model):
            plain = plain_gradients(parts, batch, half=True)
        found = fused_gradients(fused, parts.optimizer, batch, scored_by(parts, batch))
        return violations(found, plain, truth)


def compare_compiled(parts: Parts, step: PlainStep, ids: Tensor) -> list[str]:
    """As `compare`, of loss and gradients. One sequence fills the batch again and again, which
    changes neither, nor the shape that was compiled; but each has a smaller part in the mean, and
    what flows back to it is as small in fp16 only if the plain model's loss is scaled by less.
    """
    assert parts.decoder is not None
    with uneven(parts.decoder):
        truth = _averaged(parts, ids[:1], half=False)
        scale = _bearable_scale(parts, ids[:1])
        plain = _averaged(parts, ids[:1], half=True, scale=scale / len(ids))
        found = step.look(ids[:1].repeat(len(ids), 1), scale)
    return violations(found, plain, truth)


def _bearable_scale(parts: Parts, ids: Tensor) -> float:
    """What to multiply the loss by: in fp16 the run's scale, halved while the plain model's
    gradients overflow; with ROOM, for a compiled model adds up in another order.
    """
    if parts.scale is None:
        return 1.0
    scale = float(parts.scale.scale)
    while scale > 1 and not _are_finite(_averaged(parts, ids, half=True, scale=scale)):
        scale /= 2
    return scale / ROOM


def _are_finite(seen: Seen) -> bool:
    return all(bool(torch.isfinite(gradient).all()) for gradient in seen.gradients.values())


def _averaged(parts: Parts, ids: Tensor, *, half: bool, scale: float = 1.0) -> Seen:
    """`plain_gradients` without logits, averaged as DDP does, and out of the GPU's memory."""
    seen = plain_gradients(parts, Batch(ids), half=half, scale=scale)
    ranks = parts.ranks
    return Seen(seen.loss, None, {n: ranks.mean(g).cpu() for n, g in seen.gradients.items()})


@contextmanager
def uneven(model: Llama, flat: FlatParameters | None = None) -> Iterator[None]:
    """A start whose blocks write alike to both halves of the residual stream (`residual_scale`) has
    logits near 0 and hardly a gradient behind them: mostly rounding would be compared. In here the
    second half is written UNEVEN times as loudly; weights that have parted stay as they are.
    """
    writers = [p.data for name, p in model.named_parameters() if role_of(name) == "residual"]
    halves = [writer.chunk(2) for writer in writers]
    even = [b for a, b in halves if float((a - b).norm()) < 2 * HALF_JITTER * float(a.norm())]
    kept = [part.clone() for part in even]
    try:
        for part in even:
            part.mul_(UNEVEN)
        if flat is not None:
            flat.refresh()
        yield
    finally:
        for part, before in zip(even, kept, strict=True):
            part.copy_(before)
        if flat is not None:
            flat.refresh()


@contextmanager
def widened(model: nn.Module) -> Iterator[None]:
    """In here what is frozen in half precision is in fp32, too."""
    narrow = [(p, p.data) for p in model.parameters() if p.dtype in (torch.float16, torch.bfloat16)]
    for parameter, kept in narrow:
        parameter.data = kept.float()
    try:
        yield
    finally:
        for parameter, kept in narrow:
            parameter.data = kept


def plain_gradients(parts: Parts, batch: Batch, *, half: bool, scale: float = 1.0) -> Seen:
    """Autograd through the plain model, in fp32 or under the run's autocast; `scale` as in
    `PlainStep.look`.
    """
    model, told = parts.model, (batch.ids, None, batch.document)
    with parts.placement.autocast() if half else widened(model):
        _, (loss, _) = model(*told, score=scored_by(parts, batch))
        (loss * scale).backward()
        with torch.no_grad():
            logits, _ = model(*told)
    # in place: there is room for one of each
    named = parts.trainable.trained().items()
    found = {n: p.grad.div_(scale) for n, p in named if p.grad is not None}
    model.zero_grad(set_to_none=True)
    return Seen(loss.detach(), logits.detach(), found)


def fused_gradients(
    fused: FusedLlama, optimizer: FlatAdamW, batch: Batch, score: HeadScore | None = None
) -> Seen:
    """The same by the kernels; gradients are live views."""
    ids, document = batch.ids, batch.document
    logits = fused.logits(ids, document)
    loss = fused.forward(ids, torch.ones((), device=ids.device), None, document, score=score)
    fused.backward(ids)
    return Seen(loss, logits, optimizer.flat.gradients())


def violations(found: Seen, plain: Seen, truth: Seen) -> list[str]:
    """Results whose error is above SLACK times the plain model's, or not a number.

    An error is the norm of the difference over the norm of the truth; half a unit of bf16 is always
    allowed.
    """
    roundoff = torch.finfo(torch.bfloat16).eps / 2
    got, allowed, broken = found.results(), plain.results(), []
    for name, exact in truth.results().items():
        if name not in got:
            broken.append(f"{name}: missing")
            continue
        error, usual = _error(got[name], exact), _error(allowed[name], exact)
        if not error <= SLACK * max(usual, roundoff):
            broken.append(f"{name}: error {error:.2e}, plainly {usual:.2e}")
    return broken


def _error(value: Tensor, exact: Tensor) -> float:
    wide = exact.to(value.device).double()
    tiny = torch.finfo(torch.float64).tiny  # a loss of 0 has gradients of 0
    difference: Any = (value.double() - wide).norm() / wide.norm().clamp_min(tiny)
    return float(difference)
