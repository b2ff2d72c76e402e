"""Rotary positions (Su et al. 2021, arXiv:2104.09864), as transformers turns queries and keys."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from albor_core.config.shape import ModelShape, RopeScaling


class Rotary(nn.Module):
    """Tables (max_position_embeddings, E) of cos and sin, fp32, not saved.

    Always computed on the CPU and copied, so that every device rotates by the same bits; computed
    anew whenever the module is moved or cast, so that `model.bfloat16()` cannot round them and
    `to_empty` cannot leave them unset.
    """

    cos: Tensor
    sin: Tensor

    def __init__(self, config: ModelShape) -> None:
        super().__init__()
        self.head_dim, self.theta = config.head_dim, config.rope_theta
        self.scaling = config.rope_scaling
        self.length = config.max_position_embeddings
        self.register_buffer("cos", torch.empty(0), persistent=False)
        self.register_buffer("sin", torch.empty(0), persistent=False)
        self._fill()

    def _fill(self) -> None:
        device = self.cos.device
        if device.type == "meta":
            return
        speed, gain = frequencies(self.head_dim, self.theta, self.scaling)
        position = torch.arange(self.length, dtype=torch.float32, device="cpu")
        angle = torch.outer(position, speed).repeat(1, 2)  # fp32, as transformers
        cos, sin = angle.cos(), angle.sin()
        if gain != 1:
            cos, sin = cos * gain, sin * gain
        self.cos, self.sin = cos.to(device), sin.to(device)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Rotary:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self._fill()
        return self

    def forward(self, T: int) -> tuple[Tensor, Tensor]:
        if self.length < T:
            raise ValueError(f"{T} tokens in a row, but max_position_embeddings is {self.length}")
        return self.cos[:T], self.sin[:T]


def frequencies(E: int, theta: float, scaling: RopeScaling | None) -> tuple[Tensor, float]:
    """(radians a token for each of E / 2 pairs, fp32 on the CPU; what cos and sin are times).

    linear: all pairs slower by `factor`. llama3: those that turn less than `low_freq_factor` times
    in the first context, with a ramp to `high_freq_factor`. yarn: a ramp over the pairs, and louder
    scores (Peng et al. 2023, arXiv:2309.00071).
    """
    pair = torch.arange(0, E, 2, dtype=torch.float32, device="cpu") / E
    plain = 1.0 / theta**pair
    if scaling is None:
        return plain, 1.0
    if scaling.rope_type == "linear":
        return plain / scaling.factor, 1.0
    first = scaling.original_max_position_embeddings
    assert first is not None, "refused by RopeScaling.problems"
    if scaling.rope_type == "llama3":
        return _llama3(plain, scaling, first), 1.0
    return _yarn(plain, E, theta, scaling, first)


def _llama3(plain: Tensor, scaling: RopeScaling, first: int) -> Tensor:
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    assert low is not None
    assert high is not None
    length = 2 * math.pi / plain  # tokens of one turn
    slow = torch.where(length > first / low, plain / scaling.factor, plain)
    share = (first / length - low) / (high - low)
    ramp = (1 - share) * slow / scaling.factor + share * slow
    is_between = ~(length < first / high) * ~(length > first / low)
    return torch.where(is_between, ramp, slow)


def _yarn(
    plain: Tensor, E: int, theta: float, scaling: RopeScaling, first: int
) -> tuple[Tensor, float]:
    def pair_of(turns: float) -> float:
        return (E * math.log(first / (turns * 2 * math.pi))) / (2 * math.log(theta))

    begin, end = pair_of(scaling.beta_fast or 32), pair_of(scaling.beta_slow or 1)
    if scaling.truncate is not False:
        begin, end = math.floor(begin), math.ceil(end)
    begin, end = max(begin, 0), min(end, E - 1)
    end += 0.001 if begin == end else 0  # transformers' own guard against a division by 0
    pairs = torch.arange(E // 2, dtype=torch.float32, device="cpu")
    kept = 1 - ((pairs - begin) / (end - begin)).clamp(0, 1)
    power = theta ** (torch.arange(0, E, 2, dtype=torch.float32, device="cpu") / E)
    speed = 1.0 / (scaling.factor * power) * (1 - kept) + plain * kept
    gain = scaling.attention_factor
    return speed, 0.1 * math.log(scaling.factor) + 1 if gain is None else gain


def rotate(x_BHTE: Tensor, cos_TE: Tensor, sin_TE: Tensor) -> Tensor:
    """Rotary embedding (Su et al. 2021, arXiv:2104.09864) of halves, not pairs, as HF Llama."""
    x = x_BHTE.to(torch.promote_types(x_BHTE.dtype, torch.float32))  # fp64 is a test's truth
    low, high = x.chunk(2, dim=-1)
    return (x * cos_TE + torch.cat((-high, low), dim=-1) * sin_TE).to(x_BHTE.dtype)
