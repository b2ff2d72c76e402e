"""Muon: momentum whose singular values are all brought to about one; for matrices inside blocks.

An update is the (Nesterov) momentum M = U S V^T replaced by about U V^T, found by five quintic
Newton-Schulz steps, which are matrix products and nothing else. Matrices of one shape go through
them as one batch: in bf16 on a GPU, where the steps cost, in fp32 on a CPU, where bits repeat. Over
flat buffers everything elementwise is two kernels (kernels/ops/optim/muon.py).

U V^T has a root-mean-square of 1 / sqrt(max(rows, columns)); times 0.2 sqrt(max(rows, columns)) it
moves weights as far as AdamW does, whose updates have about 0.2. So one learning rate, one schedule
and one weight decay serve both, which sqrt(max(1, rows / columns)), the original scale, does not
give. Embedding, head and norms stay with AdamW: their rows are looked up, not composed.

What is orthogonal as a whole may still have rows (neurons) of very different lengths. NorMuon
(`beta2`) divides each by the root of its running mean square, and gives the update the length back
that it had.

Source: Jordan et al. 2024 (kellerjordan.github.io/posts/muon: coefficients, Nesterov, bf16); Liu et
al. 2025, arXiv:2502.16982, section 2.2 (weight decay and the scale); Li et al. 2025,
arXiv:2510.05491 (NorMuon; there an update's length is set instead of kept).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from albor_core.config.sections.optimizer import OptimizerConfig
from albor_core.kernels.ops.optim import muon as kernels
from albor_core.model.flat import FlatParameters
from albor_core.model.groups import group_of, trained
from albor_core.train.optim import adamw as adamw_room
from albor_core.train.optim.adamw import FlatAdamW, Group, Optimizer, Piece
from albor_core.train.ranks.sharding import cut_like, local, num_parts, on_whole, part_of

COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # the steepest at 0 that still ends near 1
ITERATIONS = 5
EPS = 1e-7
RMS = 0.2
BATCH_ELEMENTS = 1 << 26  # of matrices that a rank orthogonalises at a time, in a few buffers


def settings(wanted: OptimizerConfig) -> dict[str, Any]:
    """The config's hyper-parameters, as both classes take them."""
    own = {"muon_lr": wanted.muon_lr, "momentum": wanted.muon_momentum, "beta2": wanted.muon_beta2}
    return {**adamw_room.settings(wanted), **own}


def expected(wanted: OptimizerConfig) -> dict[str, dict[str, float]]:
    """The config's hyper-parameters, as `groups` says them."""
    hidden = {
        "lr": wanted.muon_lr or wanted.lr,
        "muon_momentum": wanted.muon_momentum,
        "weight_decay": wanted.weight_decay,
        **_said(wanted.muon_beta2),
    }
    return {**adamw_room.expected(wanted), "hidden": hidden}


def hidden_matrices(
    model: nn.Module, groups: Mapping[str, str] | None = None
) -> dict[str, nn.Parameter]:
    """Trained matrices that map activations to activations, by name; `groups` as in `Optimizer`."""
    return {
        name: parameter
        for name, parameter in trained(model).items()
        if (group_of(name, parameter) if groups is None else groups[name]) == "hidden"
    }


def orthogonalize(stack: Tensor, dtype: torch.dtype, scale: float = 1.0) -> Tensor:
    """(n, rows, columns): each matrix with singular values of 0.7 to 1.2 times `scale`; computed in
    `dtype`.

    A zero matrix stays zero.
    """
    a, b, c = COEFFICIENTS
    is_tall = stack.shape[-2] > stack.shape[-1]
    x = stack.to(dtype)
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + EPS)
    for i in range(ITERATIONS):
        last = scale if i == ITERATIONS - 1 else 1.0  # free inside the product
        gram = x.mT @ x if is_tall else x @ x.mT  # the smaller one
        polynomial = torch.baddbmm(gram, gram, gram, beta=b, alpha=c)
        left, right = (x, polynomial) if is_tall else (polynomial, x)
        x = torch.baddbmm(x, left, right, beta=a * last, alpha=last)
    return x


def scale_of(shape: torch.Size) -> float:
    """What an orthogonalised update is multiplied with."""
    return RMS * math.sqrt(max(shape))


class EqualRows:
    """What NorMuon makes of whole matrices, in batches of one shape; without `beta2` nothing."""

    def __init__(
        self, batches: list[list[str]], moments: list[Tensor], beta2: float | None
    ) -> None:
        """`moments`: (n, rows, columns) of each batch."""
        self.beta2 = beta2
        self._squares = {
            tuple(names): moment.new_zeros(moment.shape[:2])
            for names, moment in zip(batches, moments, strict=True)
            if beta2 is not None
        }

    def of(self, names: list[str], turned: Tensor, skip: Tensor) -> Tensor:
        """(n, rows, columns): each row over the root of its mean square as it was so far, each
        matrix as long as before. That mean stays where it was if `skip` is 1.
        """
        if self.beta2 is None:
            return turned
        square = self._squares[tuple(names)]
        lengths = torch.linalg.vector_norm(turned, dim=-1, dtype=square.dtype)
        mean = square.lerp(lengths.square() / turned.shape[-1], 1 - self.beta2)
        square.copy_(torch.where(skip > 0, square, mean))
        times = 1 / (mean.sqrt() + EPS)
        longer = (lengths * times).norm(dim=-1, keepdim=True)
        times *= lengths.norm(dim=-1, keepdim=True) / (longer + EPS)
        return turned * times.to(turned.dtype).unsqueeze(-1)

    def tensors(self) -> dict[str, Tensor]:
        """The means, as `row_square.<parameter>`; live views."""
        return {
            f"row_square.{name}": mean
            for names, square in self._squares.items()
            for name, mean in zip(names, square, strict=True)
        }

    def known(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """A state without what only NorMuon reads, if this is not."""
        is_on = self.beta2 is not None
        return {n: t for n, t in tensors.items() if is_on or not n.startswith("row_square.")}


class Muon:
    """The update of some matrices, in batches of one shape. No host sync.

    Of sharded ones (FSDP2) the momentum is cut as they are; each rank orthogonalises some of a
    batch, whole, and moves its own part of all. Every rank has to take every step.
    """

    def __init__(
        self,
        parameters: Mapping[str, Tensor],
        *,
        momentum: float,
        weight_decay: float,
        beta2: float | None = None,
    ) -> None:
        """`beta2`: of NorMuon, for matrices that are whole."""
        self.parameters = dict(parameters)
        self.momentum, self.weight_decay = momentum, weight_decay
        first = next(iter(self.parameters.values()))
        shapes = {name: p.shape for name, p in self.parameters.items()}
        self._batches = batches(shapes, ranks=num_parts(first))
        here = [local(self.parameters[names[0]]) for names in self._batches]
        self._moments = [
            like.new_zeros((len(names), *like.shape))
            for names, like in zip(self._batches, here, strict=True)
        ]
        self.rows = EqualRows(self._batches, self._moments, beta2)
        self._dtype = precision_on(first.device)

    @torch.no_grad()
    def step(self, gradients: Mapping[str, Tensor], lr: Tensor, skip: Tensor) -> None:
        """Update the weights once, unless `skip` is 1.0: then nothing changes."""
        idle = skip > 0
        keeps = 1 - torch.where(idle, 0.0, lr * self.weight_decay)
        for names, moment in zip(self._batches, self._moments, strict=True):
            like = self.parameters[names[0]]
            gradient = torch.stack([local(gradients[name]) for name in names])
            averaged = moment.lerp(gradient, 1 - self.momentum)
            ahead = gradient.lerp(averaged, self.momentum)  # Nesterov
            moment.copy_(torch.where(idle, moment, averaged))
            turn = partial(orthogonalize, dtype=self._dtype, scale=scale_of(like.shape))
            update = on_whole(turn, ahead.to(self._dtype), like)
            update = self.rows.of(names, update, skip)
            update = torch.where(idle, 0.0, update.to(moment.dtype) * -lr)
            targets = [local(self.parameters[name]) for name in names]
            torch._foreach_mul_(targets, keeps)
            torch._foreach_add_(targets, list(update.unbind()))

    def tensors(self) -> dict[str, Tensor]:
        """`momentum.<parameter>`, and `row_square.<parameter>` of NorMuon; live views."""
        found = {
            f"momentum.{name}": cut_like(moment[i], self.parameters[name])
            for names, moment in zip(self._batches, self._moments, strict=True)
            for i, name in enumerate(names)
        }
        return found | self.rows.tensors()

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Take over what `tensors` gave; the rest begins at zero. KeyError for an unknown one."""
        mine = self.tensors()
        for moment in (*self._moments, *self.rows.tensors().values()):
            moment.zero_()
        for name, value in tensors.items():
            local(mine[name]).copy_(local(part_of(value, mine[name])))


def precision_on(device: torch.device) -> torch.dtype:
    """What matrices are orthogonalised in."""
    return torch.bfloat16 if device.type == "cuda" else torch.float32


def batches(shapes: Mapping[str, torch.Size], ranks: int = 1) -> list[list[str]]:
    """Names by shape, at most BATCH_ELEMENTS numbers a rank together (one matrix at least)."""
    found: list[list[str]] = []
    open_batch: dict[torch.Size, list[str]] = {}
    for name, shape in shapes.items():
        batch = open_batch.get(shape)
        if batch is None or (len(batch) + 1) * shape.numel() > BATCH_ELEMENTS * ranks:
            batch = open_batch[shape] = []
            found.append(batch)
        batch.append(name)
    return found


def _split(tensors: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """(Muon's, AdamW's) of one state."""
    mine = ("momentum.", "row_square.")
    muon = {name: t for name, t in tensors.items() if name.startswith(mine)}
    return muon, {name: t for name, t in tensors.items() if name not in muon}


class MuonOptimizer(Optimizer):
    """Muon for hidden matrices, torch's AdamW for everything else, over the model as it is."""

    def __init__(
        self,
        model: nn.Module,
        *,
        muon_lr: float | None,
        momentum: float,
        lr: float,
        weight_decay: float,
        beta2: float | None = None,
        groups: Mapping[str, str] | None = None,
        **adamw: Any,
    ) -> None:
        """`muon_lr`: peak rate of Muon where lr is AdamW's; None: the same."""
        hidden = hidden_matrices(model, groups)
        super().__init__(
            model,
            lr=lr,
            weight_decay=weight_decay,
            without=frozenset(hidden),
            groups=groups,
            **adamw,
        )
        self._muon_times = 1.0 if muon_lr is None else muon_lr / lr
        self.muon = Muon(hidden, momentum=momentum, weight_decay=weight_decay, beta2=beta2)
        device = next(iter(hidden.values())).device
        self._lr = torch.full((), lr * self._muon_times, device=device)

    def named(self) -> dict[str, Tensor]:
        return {**super().named(), **self.muon.parameters}

    def groups(self) -> list[Group]:
        muon = self.muon
        own = _group(self._lr, muon.momentum, muon.weight_decay, muon.rows.beta2)
        return [*super().groups(), own]

    def set_lr(self, lr: float) -> None:
        super().set_lr(lr)
        self._lr.fill_(lr * self._muon_times)

    def step(self, skip: Tensor) -> None:
        if self._fused or not skip.item():
            gradients = {name: p.grad for name, p in self.muon.parameters.items()}
            missing = [name for name, gradient in gradients.items() if gradient is None]
            for name in missing:  # a parameter that had no part in the loss
                gradients[name] = torch.zeros_like(self.muon.parameters[name])
            self.muon.step({n: g for n, g in gradients.items() if g is not None}, self._lr, skip)
        for parameter in self.muon.parameters.values():
            parameter.grad = None
        super().step(skip)

    def tensors(self) -> dict[str, Tensor]:
        return {**super().tensors(), **self.muon.tensors()}

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        muon, adamw = _split(self.muon.rows.known(tensors))
        super().load(adamw)
        self.muon.load(muon)


class FlatMuon(FlatAdamW):
    """The same over flat buffers with half-precision shadows: what the fused step trains with.

    Hidden matrices lie in one range of the buffer, so their momentum is one flat tensor too.
    """

    def __init__(
        self,
        flat: FlatParameters,
        *,
        muon_lr: float | None,
        momentum: float,
        lr: float,
        weight_decay: float,
        beta2: float | None = None,
        **adamw: Any,
    ) -> None:
        places = flat.matrices.places
        hidden = [name for name in places if flat.groups[name] == "hidden"]
        self._begin = places[hidden[0]][0]
        self._end = places[hidden[-1]][0] + places[hidden[-1]][1].numel()
        super().__init__(flat, lr=lr, weight_decay=weight_decay, **adamw)
        master = flat.matrices.master
        self._muon_times = 1.0 if muon_lr is None else muon_lr / lr
        self._momentum = momentum
        self._moment = torch.zeros_like(master[self._begin : self._end])
        is_wide = flat.matrices.shadow is flat.matrices.master
        dtype = master.dtype if is_wide else precision_on(master.device)
        self._update = torch.zeros_like(self._moment, dtype=dtype)
        self._views = self._split_up(self._update, hidden)
        self._moments = self._split_up(self._moment, hidden)
        self._batches = batches({name: places[name][1] for name in hidden})
        likes = [master.new_empty(()).expand(len(n), *places[n[0]][1]) for n in self._batches]
        self._rows = EqualRows(self._batches, likes, beta2)

    def _split_up(self, buffer: Tensor, names: list[str]) -> dict[str, Tensor]:
        """Views by name into a buffer laid out like the range of hidden matrices."""
        found = {}
        for name in names:
            at, shape = self.flat.matrices.places[name]
            found[name] = buffer[at - self._begin :][: shape.numel()].view(shape)
        return found

    def _cut(self) -> list[Piece]:
        """Embedding, head and norms; what lies between the first two is Muon's."""
        matrices = self.flat.matrices
        size = matrices.master.numel()
        starts = [at for at, _ in matrices.places.values() if at >= self._end]
        return [
            *self._by_kind(0, self._begin),
            *self._by_kind(min(starts, default=size), size),
            *self._vectors(),
        ]

    def groups(self) -> list[Group]:
        lr = self._lr * self._muon_times
        own = _group(lr, self._momentum, self.weight_decay, self._rows.beta2)
        return [*super().groups(), own]

    def _apply(self, scale: Tensor, skip: Tensor) -> None:
        super()._apply(scale, skip)
        matrices, here = self.flat.matrices, slice(self._begin, self._end)
        control = torch.stack((skip, scale, self._lr * self._muon_times))
        gradient = self.gradients()[0][here]
        kernels.update(self._moment, gradient, self._update, control, momentum=self._momentum)
        for names in self._batches:
            views = [self._views[name] for name in names]
            stack = torch.stack(views)
            turned = orthogonalize(stack, stack.dtype, scale_of(stack.shape[1:]))
            turned = self._rows.of(names, turned, skip)
            torch._foreach_copy_(views, list(turned.unbind()))
        shadow = None if matrices.shadow is matrices.master else matrices.shadow[here]
        master = matrices.master[here]
        kernels.move(master, self._update, shadow, control, decay=self.weight_decay)

    def tensors(self) -> dict[str, Tensor]:
        own = {f"momentum.{name}": moment for name, moment in self._moments.items()}
        return {**super().tensors(), **own, **self._rows.tensors()}

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        super().load(self._rows.known(tensors))


def _group(lr: Tensor, momentum: float, weight_decay: float, beta2: float | None) -> Group:
    values = {"lr": float(lr), "muon_momentum": momentum, "weight_decay": weight_decay}
    return Group("hidden", values | _said(beta2))


def _said(beta2: float | None) -> dict[str, float]:
    """beta2 as a value of the parameter group, if there is one."""
    return {} if beta2 is None else {"muon_beta2": beta2}
