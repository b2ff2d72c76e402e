"""A model's parameters in two flat buffers, with half-precision shadows and gradients beside them.

Matrices lie in one buffer, vectors (norms, biases) in another, in named_parameters order, but norms
of heads behind those of the residual stream, whose length is another, and biases behind both; the
module's own parameters become views, so its state dict, its checkpoints and its plain forward do
not notice. q_proj, k_proj, v_proj and gate_proj, up_proj follow each other: one view over each row
of them is a fused projection.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from albor_core.model.groups import group_of
from albor_core.model.matrices import PackedMatrix, UnpackedWeight, Weight

ALIGNED = 128  # elements: a view starts on 256 bytes in bf16
_JOINED = ("k_proj", "v_proj", "up_proj")  # right behind the one before
_ROWS = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))
_OF_HEADS = ("q_norm", "k_norm")


def is_of_heads(name: str) -> bool:
    """Whether a parameter norms the heads of q or k."""
    return name.split(".")[-2] in _OF_HEADS


def is_bias(name: str) -> bool:
    return name.endswith(".bias")


class Segment:
    """Some parameters in a row: `master` fp32, `shadow` and `gradient` in `dtype`; frozen ones are
    in `dtype` alone, and their gradient has no memory to be written to.
    """

    def __init__(
        self,
        named: list[tuple[str, nn.Parameter]],
        dtype: torch.dtype,
        device: torch.device,
        *,
        is_frozen: bool = False,
        moves: bool = True,
    ) -> None:
        """Moves the parameters' data into `master`, their values stay; or copies it."""
        self.places: dict[str, tuple[int, torch.Size]] = {}
        end = 0
        for name, parameter in named:
            if name.split(".")[-2] not in _JOINED:
                end = -(-end // ALIGNED) * ALIGNED
            self.places[name] = (end, parameter.shape)
            end += parameter.numel()
        wide = dtype if is_frozen else torch.float32
        self.master = torch.zeros(end, dtype=wide, device=device)
        is_one = dtype is wide
        self.shadow = self.master if is_one else torch.zeros(end, dtype=dtype, device=device)
        self.gradient = torch.zeros(end, dtype=dtype, device="meta" if is_frozen else device)
        for name, parameter in named:
            view = self.view(self.master, name)
            view.copy_(parameter.detach())
            if moves:
                parameter.data = view

    def view(self, flat: Tensor, first: str, last: str = "") -> Tensor:
        """The parameter `first` inside a buffer laid out like this segment; with `last`, all rows
        from `first` to `last` as one.
        """
        begin, shape = self.places[first]
        end, tail = self.places[last or first]
        size = end + tail.numel() - begin
        if not last:
            return flat[begin : begin + size].view(shape)
        return flat[begin : begin + size].view(-1, *shape[1:])

    def begin_of(self, prefix: str) -> int | None:
        """The offset of the first parameter with this name prefix; None if there is none."""
        found = (at for name, (at, _) in self.places.items() if name.startswith(prefix))
        return next(found, None)

    def rows(self, flat: Tensor, names: Sequence[str]) -> Tensor:
        """Vectors of one length, two or more that lie in a row in such a buffer, as a matrix
        (n, D).
        """
        starts, lengths = zip(
            *((at, *shape) for at, shape in (self.places[n] for n in names)), strict=True
        )
        assert len(set(lengths)) == 1
        begin, step = starts[0], starts[1] - starts[0]
        return flat[begin:].as_strided((len(starts), lengths[0]), (step, 1))


class FlatParameters:
    """Every parameter of `model`; `dtype`: of matrices in a forward and their gradients.

    Norm weights and their gradients stay fp32. Matrices that are not trained lie in a segment of
    their own, in `dtype` alone, and have no gradient; a vector that is not trained lies among the
    others, and no optimizer moves it. A `PackedMatrix` keeps its own form and no segment holds it:
    `weight` gives any matrix as a forward reads it.
    """

    def __init__(
        self, model: nn.Module, dtype: torch.dtype, groups: Mapping[str, str] | None = None
    ) -> None:
        """`groups`: the optimizer's, of each trained parameter; if not `group_of`."""
        named = list(model.named_parameters())
        device = named[0][1].device
        self.dtype = dtype
        self.frozen = frozenset(name for name, p in named if not p.requires_grad)
        self.groups = groups or {n: group_of(n, p) for n, p in named if n not in self.frozen}
        matrices, vectors = _parted(named)
        trained = [(name, p) for name, p in matrices if name not in self.frozen]
        frozen = [(name, p) for name, p in matrices if name in self.frozen]
        self.matrices = Segment(trained, dtype, device)
        self.frozen_matrices = Segment(frozen, dtype, device, is_frozen=True)
        self.vectors = Segment(vectors, torch.float32, device)
        self._frozen_vectors = [name for name in self.vectors.places if name in self.frozen]
        self._find_packed(model)
        self.refresh()

    @classmethod
    def of_frozen(cls, model: nn.Module) -> FlatParameters:
        """For forwards alone, in the dtype of the model's own matrices: nothing beside them but the
        norms in fp32, which are copies. Twice the matrices while they are moved. ValueError for a
        parameter that is trained.
        """
        named = list(model.named_parameters())
        if trained := [name for name, p in named if p.requires_grad]:
            raise ValueError(f"{trained[0]} is trained; nothing would follow it")
        self = cls.__new__(cls)
        matrices, vectors = _parted(named)
        device = named[0][1].device
        self.dtype, self.groups = matrices[0][1].dtype, {}
        self.frozen = frozenset(name for name, _ in named)
        self.frozen_matrices = self.matrices = Segment(matrices, self.dtype, device, is_frozen=True)
        self.vectors = Segment(vectors, torch.float32, device, is_frozen=True, moves=False)
        self._find_packed(model)
        return self

    def _find_packed(self, model: nn.Module) -> None:
        """Packed matrices, and one scratch for whichever is read."""
        self._packed = {
            f"{name}.weight": one
            for name, one in model.named_modules()
            if isinstance(one, PackedMatrix)
        }
        self._scratch: Tensor | None = None

    def weight(self, first: str, last: str = "") -> Weight:
        """A projection, or those in a row from `first` to `last` as one. ValueError where some of
        them are trained and some are not.
        """
        names = self._between(first, last or first)
        fates = {name in self.frozen or name in self._packed for name in names}
        if len(fates) > 1:
            listed = ", ".join(names)
            raise ValueError(f"{listed} are one matrix here: train all of them or none")
        if any(name in self._packed for name in names):
            return self._unpacked_weight(names)
        segment = self.segment(names[0])
        is_frozen = segment is self.frozen_matrices
        value = segment.view(segment.shadow, first, last)
        return Weight(value, None if is_frozen else segment.view(segment.gradient, first, last))

    def _between(self, first: str, last: str) -> list[str]:
        """The names from one to the other in one module."""
        module, end = first.rpartition(".")[0].rpartition("."), last.split(".")[-2]
        row = next((row for row in _ROWS if end in row and module[2] in row), (module[2],))
        taken = row[row.index(module[2]) : row.index(end) + 1]
        return [f"{module[0]}.{one}.weight".lstrip(".") for one in taken]

    def _unpacked_weight(self, names: list[str]) -> Weight:
        """The weight of packed matrices, unpacked to the scratch buffer whenever it is read."""
        parts = [self._packed[name] for name in names if name in self._packed]
        if len(parts) < len(names):
            raise ValueError(f"{', '.join(names)} are one matrix here: pack all of them or none")
        return UnpackedWeight(parts, self)

    def scratch(self, shape: torch.Size, device: torch.device) -> Tensor:
        """Room for one matrix at a time: what was in there is gone."""
        size = shape.numel()
        if self._scratch is None or self._scratch.numel() < size:
            self._scratch = torch.empty(size, dtype=self.dtype, device=device)
        return self._scratch[:size].view(shape)

    @torch.no_grad()
    def refresh(self) -> None:
        """The shadows follow the masters, after something else wrote those (a checkpoint)."""
        self.matrices.shadow.copy_(self.matrices.master)

    def norms(self, *, of_heads: bool) -> list[str]:
        """The vectors that norm each head of q or k, or those that norm the residual stream."""
        norms = (name for name in self.vectors.places if not is_bias(name))
        return [name for name in norms if is_of_heads(name) == of_heads]

    def segment(self, name: str) -> Segment:
        """The segment that holds the parameter `name`."""
        segments = (self.vectors, self.frozen_matrices, self.matrices)
        return next(one for one in segments if name in one.places)

    def gradients(self) -> dict[str, Tensor]:
        """Gradients by the name of a trained parameter; live views."""
        return {
            name: segment.view(segment.gradient, name)
            for segment in (self.matrices, self.vectors)
            for name in segment.places
            if name not in self.frozen
        }

    def zero_frozen_gradients(self) -> None:
        """No gradient of a vector that is not trained."""
        for name in self._frozen_vectors:
            self.vectors.view(self.vectors.gradient, name).zero_()


def misfit(model: nn.Module) -> str:
    """Why the trained parameters of a decoder do not lie as the written-out step wants them, or
    "": what it reads as one matrix is trained whole.
    """
    named = dict(model.named_parameters())
    for name, p in named.items():
        module, _, mine = name.removesuffix(".weight").rpartition(".")
        row = next((row for row in _ROWS if mine in row), ())
        for other in row:
            beside = named.get(f"{module}.{other}.weight")
            if beside is None or (p.requires_grad and not beside.requires_grad):
                return f"{name} is trained or kept otherwise than {module}.{other}"
    return ""


def _parted(
    named: list[tuple[str, nn.Parameter]],
) -> tuple[list[tuple[str, nn.Parameter]], list[tuple[str, nn.Parameter]]]:
    """Matrices, and vectors: those that norm the stream, those that norm heads, biases."""
    vectors = sorted(
        ((n, p) for n, p in named if p.ndim < 2), key=lambda v: (is_bias(v[0]), is_of_heads(v[0]))
    )
    return [(n, p) for n, p in named if p.ndim >= 2], vectors
