"""SwiGLU between its two projections, forward and backward written out, in half precision.

`Weight` is a matrix of the flat buffers as a step uses it; fused.py uses it for attention, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from albor_core.kernels.swiglu import swiglu_forward
from albor_core.kernels.swiglu_down import swiglu_down_backward


@dataclass
class Weight:
    """A matrix as the forward reads it, and where its gradient belongs."""

    value: Tensor
    gradient: Tensor

    def __call__(self, x: Tensor) -> Tensor:
        return x @ self.value.t()

    def by_halves(self, x: Tensor) -> Tensor:
        """The same in two products: for half of gate_up's 8,192 rows cuBLAS has a better kernel
        than for all (1.2 % of a step of 16,384 tokens, H200).
        """
        rows = self.value.shape[0]
        y = x.new_empty(x.shape[0], rows)
        for half in (slice(rows // 2), slice(rows // 2, rows)):
            torch.mm(x, self.value[half].t(), out=y[:, half])
        return y

    def backward(self, x: Tensor, dy: Tensor) -> Tensor:
        """The gradient of x; that of the matrix is written."""
        torch.mm(dy.t(), x, out=self.gradient)
        return dy @ self.value


class HalfMlp:
    """N tokens of width D: y (N, D) to what is added to the residual stream, and back."""

    def __init__(self, gate_up: Weight, down: Weight) -> None:
        self.gate_up, self.down = gate_up, down

    def forward(self, y: Tensor, *, keeps: bool) -> tuple[Tensor, Any]:
        """(what is added, what the backward needs); `keeps`: SwiGLU's result, too."""
        gate_up = self.gate_up.by_halves(y)
        activation = swiglu_forward(gate_up)
        return self.down(activation), (y, gate_up, activation if keeps else None)

    def backward(self, kept: Any, dy: Tensor) -> Tensor:
        """The gradient at y, from that of what was added; the matrices' are written."""
        y, gate_up, activation = kept
        activation = swiglu_down_backward(dy, self.down.value, gate_up, activation)
        torch.mm(dy.t(), activation, out=self.down.gradient)
        return self.gate_up.backward(y, gate_up)
