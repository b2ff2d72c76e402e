"""SwiGLU between its two projections, forward and backward written out, in half precision.

`Weight` is a matrix of the flat buffers as a step uses it; fused.py uses it for attention, too.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from albor_core.kernels.ops.mlp import swiglu_down, swiglu_up
from albor_core.model.matrices import Weight


class HalfMlp:
    """N tokens of width D: y (N, D) to what is added to the residual stream, and back. Of a token
    it keeps y, gates and SwiGLU's results. bf16 or fp32.
    """

    def __init__(self, gate_up: Weight, down: Weight, *, learns: bool = True) -> None:
        """`learns`: a backward comes."""
        self.gate_up, self.down = gate_up, down
        swiglu_up.decide(gate_up.value)
        if learns:
            swiglu_down.decide(down.value)

    def left_out(self, rows: int) -> dict[str, str]:
        """Ops whose kernels do not take so many rows, and why: they run in passes."""
        return {
            "swiglu_up": swiglu_up.misfit(rows, self.gate_up.value),
            "swiglu_down": swiglu_down.misfit(rows, self.down.value),
        }

    def forward(self, y: Tensor) -> tuple[Tensor, Any]:
        """(what is added, what the backward needs)."""
        gate_up = swiglu_up.project(y, self.gate_up.value)
        return self.down(gate_up[:, self.down.shape[1] :]), (y, gate_up)

    def backward(self, kept: Any, dy: Tensor) -> Tensor:
        """The gradient at y, from that of what was added; the matrices' are written."""
        y, gate_up = kept
        self.down.learn(gate_up[:, self.down.shape[1] :], dy)
        swiglu_down.swiglu_down_backward(dy, self.down.value, gate_up)
        return self.gate_up.backward(y, gate_up)
