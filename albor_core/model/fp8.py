"""The MLP's projections in fp8 (e4m3): three quarters of a 350M model's products.

Each tensor has one scale, made of the largest value of the micro-batches before: the kernel that
makes a tensor rounds it and looks at its largest value in the same pass. Headroom is a factor of
two; what is larger still saturates. Master weights, norms, attention, the head and the residual
stream stay as they are in bf16, and so does an MLP of which a matrix is frozen. `emulated` is the
same arithmetic in plain PyTorch, which says what error is fp8's own.

A new run finds its scales on its first batch (`FusedLlama.calibrate`); later they are part of a
checkpoint, so that a resumed run rounds as it would have, and one that goes back after a spike of
its gradients does not go on with a spike's scales.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from albor_core.kernels.ops.mlp import fp8
from albor_core.kernels.ops.mlp.fp8 import Both
from albor_core.model.llama import Llama, LlamaConfig, SwiGLU
from albor_core.model.matrices import Weight

HEADROOM = 2.0
FADING = 0.98  # of the largest value, a micro-batch: gradients shrink over a run
INPUT, GATE_UP, ACTIVATION, DOWN, D_OUTPUT, D_GATE_UP = range(6)
"""A layer's tensors, by their place among its scales."""
TENSORS = 6


class Scales:
    """The scales of `count` tensors, on the device."""

    def __init__(self, count: int, device: torch.device) -> None:
        self.seen = torch.zeros(count, fp8.SLOTS, device=device)
        self.largest = torch.zeros(count, device=device)
        # each on 16 bytes of its own: cuBLAS supports no other place
        self.scale, self.unscale = torch.ones(2, count, 4, device=device)[..., 0]
        self.first: list[list[str]] | None = None
        """As the run began, or this attempt of it: what `load` gave, or a calibration found."""

    @classmethod
    def of(cls, config: LlamaConfig, device: torch.device) -> Self:
        return cls(config.num_hidden_layers * TENSORS, device)

    def advance(self) -> None:
        """Update scales from this step's maxima; unused or non-finite tensors keep theirs."""
        now = self.seen.amax(1)
        known = torch.isfinite(now) & (now > 0)
        faded = torch.maximum(now, self.largest * FADING)
        self.largest.copy_(torch.where(known, faded, self.largest))
        some = self.largest > 0
        self.scale.copy_(torch.where(some, fp8.LARGEST / (HEADROOM * self.largest), 1.0))
        self.unscale.copy_(self.scale.reciprocal())
        self.seen.zero_()

    def to_json(self) -> list[list[str]]:
        """Exact, between two micro-batches. Waits for the device."""
        return [[x.hex() for x in row.tolist()] for row in (self.largest, self.seen.amax(1))]

    def load(self, saved: Sequence[Sequence[str]]) -> None:
        largest, seen = (torch.tensor([float.fromhex(x) for x in row]) for row in saved)
        self.largest.copy_(largest)
        self.seen.zero_()
        self.seen[:, 0].copy_(seen)
        self.first = [list(row) for row in saved]

    def reset(self) -> None:
        """Reset the scales to `first`, if it is known."""
        if self.first is not None:
            self.load(self.first)

    def forget(self) -> None:
        for tensor in (self.seen, self.largest):
            tensor.zero_()
        for tensor in (self.scale, self.unscale):
            tensor.fill_(1.0)


class Fp8Mlp:
    """An MLP as HalfMlp; per token it saves 2 I in bf16 and I + D in fp8."""

    def __init__(self, gate_up: Weight, down: Weight, scales: Scales, number: int) -> None:
        """`number`: of the layer."""
        assert gate_up.gradient is not None
        assert down.gradient is not None, "frozen ones stay in bf16"
        self.gate_up, self.down = gate_up, down
        self._gradients = gate_up.gradient, down.gradient
        self._scales, self._first = scales, number * TENSORS
        self._weights: dict[int, Both] = {}

    def refresh(self) -> None:
        """Round the weights anew."""
        for place, weight in ((GATE_UP, self.gate_up), (DOWN, self.down)):
            self._weights[place] = fp8.cast(weight.value, *self._at(place))

    def forward(self, y: Tensor) -> tuple[Tensor, Any]:
        """(what is added, what the backward needs)."""
        rounded = fp8.cast(y, *self._at(INPUT))
        wide = y.new_empty(y.shape[0], self.gate_up.value.shape[0])
        gate_up, down = self._weights[GATE_UP], self._weights[DOWN]
        self._product(rounded.rows, gate_up.rows, (INPUT, GATE_UP), wide, quick=True)
        a = fp8.swiglu(wide, *self._at(ACTIVATION))
        added = torch.empty_like(y)
        self._product(a.rows, down.rows, (ACTIVATION, DOWN), added, quick=True)
        return added, (rounded.columns, wide, a.columns)

    def backward(self, kept: Any, dy: Tensor) -> Tensor:
        """The gradient at y, from that of what was added; the matrices' are written."""
        y, wide, a = kept
        gate_up, down = self._weights[GATE_UP], self._weights[DOWN]
        d = fp8.cast(dy, *self._at(D_OUTPUT))
        self._product(d.columns, a, (D_OUTPUT, ACTIVATION), self._gradients[1])
        da = dy.new_empty(dy.shape[0], a.shape[0])
        self._product(d.rows, down.columns, (D_OUTPUT, DOWN), da)
        d = fp8.swiglu_backward(wide, da, *self._at(D_GATE_UP))
        self._product(d.columns, y, (D_GATE_UP, INPUT), self._gradients[0])
        return self._product(d.rows, gate_up.columns, (D_GATE_UP, GATE_UP), torch.empty_like(dy))

    def _at(self, place: int) -> tuple[Tensor, Tensor]:
        at = self._first + place
        return self._scales.scale[at], self._scales.seen[at]

    def _product(
        self, a: Tensor, b: Tensor, places: tuple[int, int], out: Tensor, *, quick: bool = False
    ) -> Tensor:
        one, other = (self._scales.unscale[self._first + place] for place in places)
        return fp8.product(a, b, one, other, out, quick=quick)


def trained_mlps(model: Llama) -> list[Any]:
    """The MLPs that fp8 applies to where it is on: all three of their matrices are trained."""
    mlps: list[Any] = [layer.mlp for layer in model.model.layers]
    return [mlp for mlp in mlps if sum(p.requires_grad for p in mlp.parameters()) == 3]


class _Linear(torch.autograd.Function):
    """x @ w^T with x, w and the arriving gradient rounded, each by its own largest value."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor) -> Tensor:
        x, w = _there_and_back(x), _there_and_back(w)
        ctx.save_for_backward(x, w)
        return F.linear(x, w)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, Tensor]:
        x, w = ctx.saved_tensors
        dy = _there_and_back(dy)
        return dy @ w, dy.flatten(0, -2).t() @ x.flatten(0, -2)


def _there_and_back(x: Tensor) -> Tensor:
    scale = fp8.LARGEST / (HEADROOM * x.abs().amax().float().clamp_min(1e-30))
    return (fp8.rounded(x, scale).float() / scale).to(x.dtype)


@contextmanager
def emulated(model: Llama) -> Iterator[None]:
    """Meanwhile the plain model's MLPs multiply what fp8 would have left of their operands."""
    mlps = trained_mlps(model)

    def forward(mlp: SwiGLU, x: Tensor) -> Tensor:
        kind = torch.bfloat16 if torch.is_autocast_enabled(x.device.type) else x.dtype

        def linear(x: Tensor, name: str) -> Tensor:
            w = mlp.get_submodule(name).weight
            found: Tensor = _Linear.apply(x.to(kind), w.to(kind))  # type: ignore[no-untyped-call]
            return found

        return linear(F.silu(linear(x, "gate_proj")) * linear(x, "up_proj"), "down_proj")

    for mlp in mlps:
        mlp.forward = forward.__get__(mlp)
    try:
        yield
    finally:
        for mlp in mlps:
            del mlp.forward
