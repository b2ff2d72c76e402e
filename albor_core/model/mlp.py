"""SwiGLU between its two projections, forward and backward written out, in half precision.

`Weight` is a matrix of the flat buffers as a step uses it; fused.py uses it for attention, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from albor_core.kernels import swiglu_down
from albor_core.kernels.swiglu import swiglu_forward


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
    """N tokens of width D: y (N, D) to what is added to the residual stream, and back. Of a token
    it keeps y, gates and SwiGLU's results. bf16 or fp32.
    """

    def __init__(self, gate_up: Weight, down: Weight) -> None:
        self.gate_up, self.down = gate_up, down
        swiglu_down.decide(down.value)

    def forward(self, y: Tensor) -> tuple[Tensor, Any]:
        """(what is added, what the backward needs)."""
        gate_up = self.gate_up.by_halves(y)
        return self.down(swiglu_forward(gate_up, over=True)), (y, gate_up)

    def backward(self, kept: Any, dy: Tensor) -> Tensor:
        """The gradient at y, from that of what was added; the matrices' are written."""
        y, gate_up = kept
        torch.mm(dy.t(), gate_up[:, self.down.value.shape[1] :], out=self.down.gradient)
        swiglu_down.swiglu_down_backward(dy, self.down.value, gate_up)
        return self.gate_up.backward(y, gate_up)
