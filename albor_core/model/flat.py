"""A model's parameters in two flat buffers, with half-precision shadows and gradients beside them.

Matrices lie in one buffer, vectors (norms) in another, in named_parameters order, but norms of
heads behind those of the residual stream, whose length is another; the module's own parameters
become views, so its state dict, its checkpoints and its plain forward do not notice. q_proj,
k_proj, v_proj and gate_proj, up_proj follow each other: one view over each row of them is a fused
projection.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

ALIGNED = 128  # elements: a view starts on 256 bytes in bf16
_JOINED = ("k_proj", "v_proj", "up_proj")  # right behind the one before
_OF_HEADS = ("q_norm", "k_norm")


def is_of_heads(name: str) -> bool:
    """Whether a parameter norms the heads of q or k."""
    return name.split(".")[-2] in _OF_HEADS


class Segment:
    """Some parameters in a row: `master` fp32, `shadow` and `gradient` in `dtype`; frozen ones are
    in `dtype` alone, and their gradient has no memory to be written to.
    """

    def __init__(
        self,
        named: list[tuple[str, nn.Parameter]],
        dtype: torch.dtype,
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
        device = named[0][1].device
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
        from `first` to `last` as one matrix.
        """
        begin, shape = self.places[first]
        end, tail = self.places[last or first]
        size = end + tail.numel() - begin
        if not last:
            return flat[begin : begin + size].view(shape)
        return flat[begin : begin + size].view(-1, shape[1])

    def begin_of(self, prefix: str) -> int:
        """Where the first parameter lies whose name begins so."""
        return next(at for name, (at, _) in self.places.items() if name.startswith(prefix))

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

    Norm weights and their gradients stay fp32. ValueError for a frozen parameter, or, where all
    are to be (`of_frozen`), for one that is not.
    """

    def __init__(self, model: nn.Module, dtype: torch.dtype) -> None:
        named = list(model.named_parameters())
        if frozen := [name for name, p in named if not p.requires_grad]:
            raise ValueError(f"{frozen[0]} is frozen; a flat model trains all of its parameters")
        self.dtype = dtype
        matrices, vectors = _parted(named)
        self.matrices = Segment(matrices, dtype)
        self.vectors = Segment(vectors, torch.float32)
        self.refresh()

    @classmethod
    def of_frozen(cls, model: nn.Module) -> FlatParameters:
        """For forwards alone, in the dtype of the model's own matrices: nothing beside them but the
        norms in fp32, which are copies. Twice the matrices while they are moved.
        """
        named = list(model.named_parameters())
        if trained := [name for name, p in named if p.requires_grad]:
            raise ValueError(f"{trained[0]} is trained; nothing would follow it")
        self = cls.__new__(cls)
        matrices, vectors = _parted(named)
        self.dtype = matrices[0][1].dtype
        self.matrices = Segment(matrices, self.dtype, is_frozen=True)
        self.vectors = Segment(vectors, torch.float32, is_frozen=True, moves=False)
        return self

    @torch.no_grad()
    def refresh(self) -> None:
        """The shadows follow the masters, after something else wrote those (a checkpoint)."""
        self.matrices.shadow.copy_(self.matrices.master)

    def norms(self, *, of_heads: bool) -> list[str]:
        """The vectors that norm each head of q or k, or those that norm the residual stream."""
        return [name for name in self.vectors.places if is_of_heads(name) == of_heads]

    def segment(self, name: str) -> Segment:
        """Where the parameter `name` lies."""
        return self.vectors if name in self.vectors.places else self.matrices

    def gradients(self) -> dict[str, Tensor]:
        """By parameter name; live views."""
        return {
            name: segment.view(segment.gradient, name)
            for segment in (self.matrices, self.vectors)
            for name in segment.places
        }


def _parted(
    named: list[tuple[str, nn.Parameter]],
) -> tuple[list[tuple[str, nn.Parameter]], list[tuple[str, nn.Parameter]]]:
    """Matrices, and vectors, of which those of heads come last."""
    vectors = sorted(((n, p) for n, p in named if p.ndim < 2), key=lambda v: is_of_heads(v[0]))
    return [(n, p) for n, p in named if p.ndim >= 2], vectors
