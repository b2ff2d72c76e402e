"""AdamW, in torch's form and over flat buffers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import torch
from torch import Tensor, nn

from albor_core.config.sections.optimizer import OptimizerConfig
from albor_core.kernels.ops.optim.adamw import adamw, square_sum
from albor_core.model.flat import FlatParameters, Segment
from albor_core.model.groups import group_of, trained
from albor_core.train.optim.clipping import Clip
from albor_core.train.ranks.sharding import part_of


@dataclass(frozen=True)
class Group:
    """Hyper-parameters as an optimizer uses them, named like the config's fields."""

    kind: str
    """matrices or vectors of AdamW, embedding and head where they have a rate of their own; hidden:
    Muon's matrices."""
    values: Mapping[str, float]


def settings(wanted: OptimizerConfig) -> dict[str, Any]:
    """The config's hyper-parameters, as both classes take them."""
    return {
        "lr": wanted.lr,
        "betas": (wanted.beta1, wanted.beta2),
        "eps": wanted.eps,
        "weight_decay": wanted.weight_decay,
        "own_lr": wanted.own_lr,
    }


def expected(wanted: OptimizerConfig) -> dict[str, dict[str, float]]:
    """The config's hyper-parameters, as `groups` says them."""
    matrices = {
        "lr": wanted.lr,
        "beta1": wanted.beta1,
        "beta2": wanted.beta2,
        "eps": wanted.eps,
        "weight_decay": wanted.weight_decay,
    }
    own = {
        kind: {**matrices, "lr": lr, "weight_decay": wanted.weight_decay * wanted.lr / lr}
        for kind, lr in wanted.own_lr.items()
    }
    return {"matrices": matrices, "vectors": {**matrices, "weight_decay": 0.0}, **own}


def kind_of(group: str, own_lr: Collection[str]) -> str:
    """The kind that AdamW updates a group of tensors (model/groups.py) as."""
    return group if group == "vectors" or group in own_lr else "matrices"


class Optimizer:
    """torch's AdamW, fused on a GPU and one plain loop over the tensors on a CPU (same bits every
    time), with state by parameter name, so that a checkpoint reads like the model's.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        lr: float,
        weight_decay: float,
        fused: bool,
        own_lr: Mapping[str, float] | None = None,
        without: frozenset[str] = frozenset(),
        groups: Mapping[str, str] | None = None,
        **settings: Any,
    ) -> None:
        """`own_lr`: as `OptimizerConfig.own_lr`; `without`: parameters that another optimizer
        updates; `groups`: of each trained parameter, if not `group_of`; `settings`: as `make` takes
        them.
        """
        mine = trained(model)
        self._groups = groups or {name: group_of(name, p) for name, p in mine.items()}
        self._names = {id(p): name for name, p in mine.items() if name not in without}
        parts = [
            part
            for is_vector, decay in ((False, weight_decay), (True, 0.0))
            for part in self._by_kind(
                [p for name, p in mine.items() if is_vector == (self._groups[name] == "vectors")],
                *(decay, lr, own_lr or {}),
            )
        ]
        self._fused = fused
        self.inner = self.make(parts, lr=lr, **settings)

    def _by_kind(
        self, those: list[nn.Parameter], weight_decay: float, lr: float, own_lr: Mapping[str, float]
    ) -> Iterator[dict[str, Any]]:
        """What is ours of matrices or of vectors, in parts that have one rate each."""
        kinds: dict[str, list[Tensor]] = {}
        for p in those:
            if (name := self._names.get(id(p))) is not None:
                kind = kind_of(self._groups[name], own_lr)
                kinds.setdefault(kind, []).append(p)
        for kind, mine in kinds.items():
            times = own_lr.get(kind, lr) / lr
            decay = weight_decay / times
            yield {"params": mine, "weight_decay": decay, "lr": lr * times, "times": times,
                   "kind": kind}  # fmt: skip

    def make(
        self, groups: list[dict[str, Any]], *, lr: float, betas: tuple[float, float], eps: float
    ) -> torch.optim.Optimizer:
        """torch's own over `groups`, of which each has its weight_decay. Without a fused kernel
        that reads `found_inf`, clear `_fused` here.
        """
        return torch.optim.AdamW(
            groups,
            lr=lr,
            betas=betas,
            eps=eps,
            fused=self._fused,
            foreach=None if self._fused else False,
        )

    def named(self) -> dict[str, Tensor]:
        """Every trained tensor, in the optimizer's order."""
        found = [p for group in self.inner.param_groups for p in group["params"]]
        return {self._names[id(p)]: p for p in found}

    def groups(self) -> list[Group]:
        """What torch was told, read from torch."""
        return [
            Group(
                group["kind"],
                {
                    "lr": group["lr"],
                    "beta1": group["betas"][0],
                    "beta2": group["betas"][1],
                    "eps": group["eps"],
                    "weight_decay": group["weight_decay"],
                },
            )
            for group in self.inner.param_groups
        ]

    def set_lr(self, lr: float) -> None:
        for group in self.inner.param_groups:
            group["lr"] = lr * group["times"]

    def step(self, skip: Tensor) -> None:
        """Apply the gradients unless `skip` (a float scalar on the device) is 1.

        A skipped step leaves weights, moments and step counts as they are. On a GPU the fused
        kernel reads `skip` itself; on a CPU reading it costs nothing.
        """
        if self._fused:
            self.inner.found_inf = skip  # type: ignore[attr-defined]  # torch's own protocol with GradScaler
            self.inner.step()
        elif not skip.item():
            self.inner.step()
        self.inner.zero_grad(set_to_none=True)

    def tensors(self) -> dict[str, Tensor]:
        """State as flat names, `exp_avg.<parameter>` and so on; live tensors, not copies."""
        flat = {}
        for parameter, state in self.inner.state.items():
            for key, value in state.items():
                flat[f"{key}.{self._names[id(parameter)]}"] = value
        return flat

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Take over the state that `tensors` gave. Raises KeyError for an unknown parameter."""
        named = Optimizer.named(self)
        self.inner.state.clear()
        for flat, value in tensors.items():
            key, name = flat.split(".", 1)
            parameter = named[name]
            # step counts live where torch keeps them: on the device only for the fused kernel
            device = "cpu" if key == "step" and not self._fused else parameter.device
            placed = part_of(value, parameter)  # of its own where it was cut out of the whole
            mine = value.to(device, copy=True) if placed is value else placed
            self.inner.state[parameter][key] = mine

    def reset(self) -> None:
        """Reset the state to that before the first step."""
        self.load({})


class Piece:
    """A range of a flat segment that one AdamW kernel updates, and its moments (zero at first)."""

    def __init__(
        self, segment: Segment, begin: int, end: int, decay: float, kind: str, times: float = 1.0
    ) -> None:
        """`times`: its rate, of the schedule's."""
        self.segment, self.begin, self.end, self.decay = segment, begin, end, decay
        self.kind, self.times = kind, times
        self.exp_avg = torch.zeros_like(segment.master[begin:end])
        self.exp_avg_sq = torch.zeros_like(self.exp_avg)

    def cut(self, flat: Tensor) -> Tensor:
        """This range of a buffer laid out like the segment."""
        return flat[self.begin : self.end]

    def moments(self) -> Iterator[tuple[str, Tensor, Tensor]]:
        """(parameter, first moment, second moment); views."""
        for name, (at, shape) in self.segment.places.items():
            if self.begin <= at < self.end:
                here = slice(at - self.begin, at - self.begin + shape.numel())
                yield name, self.exp_avg[here].view(shape), self.exp_avg_sq[here].view(shape)


def _stretches(
    begins: Mapping[str, int], end: int, kind: Callable[[str], Any]
) -> Iterator[tuple[Any, int, int]]:
    """(kind, begin, end) of neighbours of one kind; the last one ends at `end`."""
    for found, names in groupby(begins, kind):
        first, last = (mine := [begins[name] for name in names])[0], mine[-1]
        yield found, first, min((at for at in begins.values() if at > last), default=end)


class FlatAdamW:
    """The same update by one kernel per flat buffer: clip, moments, decay, weights and their
    half-precision shadows. Its state has the names of `Optimizer`'s, and either reads the other's.

    Nothing here waits for the device or depends on a host number, so a CUDA graph can replay it.
    """

    def __init__(
        self,
        flat: FlatParameters,
        *,
        lr: float,
        betas: tuple[float, float],
        eps: float,
        weight_decay: float,
        own_lr: Mapping[str, float] | None = None,
        accumulates: bool = False,
    ) -> None:
        """Vectors (norms) do not decay, as in `param_groups`. `own_lr` as there. `accumulates`:
        gradients come in several parts, by `accumulate`, and are added up in fp32.
        """
        self.flat, self.betas, self.eps, self.weight_decay = flat, betas, eps, weight_decay
        self._times = {kind: rate / lr for kind, rate in (own_lr or {}).items()}
        self.accumulates = accumulates
        self._segments = (flat.matrices, flat.vectors)
        self._pieces = self._cut()
        device = flat.vectors.master.device
        self._lr = torch.full((), lr, device=device)
        self._step = torch.zeros((), dtype=torch.float32, device=device)
        self._betas = torch.tensor(betas, dtype=torch.float64, device=device)
        self._sums = [torch.zeros_like(s.master) for s in self._segments] if accumulates else []
        self._gradient_views = [
            [segment.view(gradient, name) for name in segment.places]
            for segment, gradient in zip(self._segments, self.gradients(), strict=True)
        ]

    def _cut(self) -> list[Piece]:
        """What AdamW updates: everything."""
        return [*self._by_kind(0, self.flat.matrices.master.numel()), *self._vectors()]

    def _vectors(self) -> Iterator[Piece]:
        """Trained vectors, in the pieces between frozen ones."""
        vectors, frozen = self.flat.vectors, self.flat.frozen
        begins = {name: at for name, (at, _) in vectors.places.items()}
        for is_frozen, begin, end in _stretches(
            begins, vectors.master.numel(), lambda name: name in frozen
        ):
            if not is_frozen:
                yield Piece(vectors, begin, end, 0.0, "vectors")

    def _by_kind(self, begin: int, end: int) -> Iterator[Piece]:
        """What AdamW updates of the matrices between two places, in pieces that have one rate."""
        matrices, groups = self.flat.matrices, self.flat.groups
        inside = {name: at for name, (at, _) in matrices.places.items() if begin <= at < end}
        for kind, first, until in _stretches(
            inside, end, lambda name: kind_of(groups[name], self._times)
        ):
            times = self._times.get(kind, 1.0)
            decay = 0.0 if kind == "vectors" else self.weight_decay / times
            yield Piece(matrices, first, until, decay, kind, times)

    def groups(self) -> list[Group]:
        """What the kernels are told."""
        lr = float(self._lr)
        shared = {"beta1": self.betas[0], "beta2": self.betas[1], "eps": self.eps}
        return [
            Group(piece.kind, {"lr": lr * piece.times, **shared, "weight_decay": piece.decay})
            for piece in self._pieces
        ]

    def set_lr(self, lr: float) -> None:
        self._lr.fill_(lr)

    def accumulate(self, micro: int) -> None:
        """Add the gradients of micro-batch 0, 1, ... of a step to those that `step` will use."""
        for total, segment in zip(self._sums, self._segments, strict=bool(self._sums)):
            _ = total.add_(segment.gradient) if micro else total.copy_(segment.gradient)

    def gradients(self) -> list[Tensor]:
        """The gradients of the step so far: one flat buffer for matrices, one for vectors."""
        return self._sums or [segment.gradient for segment in self._segments]

    def norms(self) -> dict[str, Tensor]:
        """The L2 norm of each parameter's gradient, fp32; a few launches, no host sync."""
        found: dict[str, Tensor] = {}
        for segment, views in zip(self._segments, self._gradient_views, strict=True):
            norms = torch._foreach_norm(views, 2, torch.float32) if views else ()
            found |= dict(zip(segment.places, norms, strict=True))
        return {name: norm for name, norm in found.items() if name not in self.flat.frozen}

    def norm(self) -> Tensor:
        """The global L2 norm of `gradients`, fp32, on the device."""
        return torch.stack([square_sum(g) for g in self.gradients() if g.numel()]).sum().sqrt()

    def step(self, loss: Tensor, clip: Clip) -> tuple[Tensor, Tensor, Tensor]:
        """(norm before clipping, 1.0 if loss or norm is not finite: then nothing moved, 1.0 if
        ZClip found a spike).
        """
        norm = self.norm()
        skip = (~(torch.isfinite(norm) & torch.isfinite(loss))).float()
        factor, spike = clip.factor(norm, skip)
        self._apply(torch.ones_like(norm) if factor is None else factor, skip)
        return norm, skip, spike

    def _apply(self, scale: Tensor, skip: Tensor) -> None:
        """Move what this optimizer moves, by gradients times `scale`, unless `skip` is 1."""
        self._step += 1 - skip
        corrections = (1 - self._betas.pow(self._step.double())).float()  # fp32 powers lose 1e-4
        size, root = self._lr / corrections[0], corrections[1].rsqrt()
        controls = {
            times: torch.stack((skip, scale, self._lr * times, size * times, root))
            for times in dict.fromkeys(piece.times for piece in self._pieces)
        }
        by_segment = dict(zip(map(id, self._segments), self.gradients(), strict=True))
        for piece in self._pieces:
            segment, gradient = piece.segment, piece.cut(by_segment[id(piece.segment)])
            shadow = None if segment.shadow is segment.master else piece.cut(segment.shadow)
            state = (piece.cut(segment.master), piece.exp_avg, piece.exp_avg_sq, gradient, shadow)
            control = controls[piece.times]
            adamw(*state, control, betas=self.betas, eps=self.eps, decay=piece.decay)

    def tensors(self) -> dict[str, Tensor]:
        """The state tensors, as of `Optimizer.tensors`: live views under `exp_avg.<parameter>` and
        so on."""
        found = {}
        for piece in self._pieces:
            for name, first, second in piece.moments():
                found[f"step.{name}"] = self._step
                found[f"exp_avg.{name}"], found[f"exp_avg_sq.{name}"] = first, second
        return found

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Take over a state, and the weights' shadows. KeyError for an unknown parameter."""
        mine = self.tensors()
        for tensor in mine.values():
            tensor.zero_()
        for name, value in tensors.items():
            mine[name].copy_(value)
        self.flat.refresh()

    def reset(self) -> None:
        """Reset the state to that before the first step."""
        self.load({})
