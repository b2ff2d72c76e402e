"""Matrices as a step multiplies by them: trained, frozen, or frozen and packed.

`Weight.value` gives the numbers. Those of a trained matrix, or of a frozen one that is not packed,
lie in memory; a `PackedMatrix` (int8 and scales, say) is written to a scratch that all of them
share, good until the next one is asked. A frozen matrix has no gradient, and no backward writes
one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class PackedMatrix(nn.Module, ABC):
    """A frozen linear map without a bias, whose matrix its buffers hold in a form of their own; it
    takes the place of an nn.Linear in the decoder.
    """

    shape: tuple[int, int]
    """(rows, columns), as nn.Linear's weight."""

    @abstractmethod
    def write(self, out: Tensor) -> None:
        """Write the values to `out` (rows, columns), of any floating-point dtype; only launches
        kernels."""

    def values(self, dtype: torch.dtype) -> Tensor:
        device = next(self.buffers()).device
        out = torch.empty(self.shape, dtype=dtype, device=device)
        self.write(out)
        return out

    def forward(self, x: Tensor) -> Tensor:
        kind = x.device.type
        half = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype
        found: Tensor = _Through.apply(x.to(half), self)  # type: ignore[no-untyped-call]
        return found


class _Through(torch.autograd.Function):
    """Keeps nothing: the backward has the values written again."""

    @staticmethod
    def forward(ctx: object, x: Tensor, matrix: PackedMatrix) -> Tensor:
        ctx.matrix = matrix  # type: ignore[attr-defined]
        return F.linear(x, matrix.values(x.dtype))

    @staticmethod
    def backward(ctx: object, dy: Tensor) -> tuple[Tensor, None]:
        return dy @ ctx.matrix.values(dy.dtype), None  # type: ignore[attr-defined]


class Weight:
    """A matrix as the forward reads it, and where its gradient belongs, if it is trained."""

    def __init__(self, value: Tensor, gradient: Tensor | None) -> None:
        self._value, self.gradient = value, gradient
        self.shape = value.shape

    @property
    def value(self) -> Tensor:
        """The values, valid until another matrix is asked for."""
        return self._value

    def __call__(self, x: Tensor) -> Tensor:
        return x @ self.value.t()

    def backward(self, x: Tensor, dy: Tensor) -> Tensor:
        """The gradient of x; that of the matrix is written."""
        self.learn(x, dy)
        return dy @ self.value

    def learn(self, x: Tensor, dy: Tensor, beta: float | None = None) -> None:
        """Write the weight's gradient; with `beta`, add it to `beta` times the one there."""
        if self.gradient is None:
            return
        if beta is None:
            torch.mm(dy.t(), x, out=self.gradient)
        else:
            torch.addmm(self.gradient, dy.t(), x, beta=beta, out=self.gradient)


class _HasScratch(Protocol):
    def scratch(self, shape: torch.Size, device: torch.device) -> Tensor: ...


class UnpackedWeight(Weight):
    """The unpacked weight of several packed matrices, one above the other."""

    def __init__(self, parts: Sequence[PackedMatrix], room: _HasScratch) -> None:
        self._parts, self._room, self.gradient = parts, room, None
        self.shape = torch.Size((sum(one.shape[0] for one in parts), parts[0].shape[1]))
        self._device = next(parts[0].buffers()).device
        room.scratch(self.shape, self._device)  # before a graph is captured

    @property
    def value(self) -> Tensor:
        out = self._room.scratch(self.shape, self._device)
        begin = 0
        for one in self._parts:
            one.write(out[begin : begin + one.shape[0]])
            begin += one.shape[0]
        return out
