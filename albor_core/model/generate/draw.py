"""The next token of each of many sequences from their logits.

A draw is one uniform number, a function of the sequence's seed and position, put through the
inverse of the cumulated probabilities: in the order of ids, or where top-p or top-k filter, from
the likeliest down. Rows never meet, so a sequence's draws are the same in every batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from albor_core.model.generate.sampling import Sampling

NOT_FINITE = -1
"""Drawn from logits that hold a NaN or no finite maximum."""
_GOLDEN = 0x9E3779B97F4A7C15


@dataclass(frozen=True)
class Knobs:
    """How each sequence of a batch is drawn from, in order; `uniforms` in [0, 1) are the draws."""

    temperature: Tensor
    top_p: Tensor
    top_k: Tensor
    is_filtered: Tensor
    uniforms: Tensor
    some_filtered: bool
    some_free: bool


def uniforms(seeds: Sequence[int], positions: Sequence[int]) -> NDArray[np.float64]:
    """53 random bits for each pair, in [0, 1): SplitMix64's output function over both (Steele, Lea
    and Flood 2014), so that neighbours in either are unrelated.
    """
    seed = np.array([one % (1 << 64) for one in seeds], dtype=np.uint64)
    position = np.asarray(positions, dtype=np.uint64) * np.uint64(_GOLDEN)
    bits = _mixed(_mixed(seed + np.uint64(_GOLDEN)) + position)
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _mixed(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def knobs_of(
    samplings: Sequence[Sampling], positions: Sequence[int], device: torch.device
) -> Knobs | None:
    """Sampling settings per sequence as tensors; None if every sequence is greedy."""
    if all(one.is_greedy for one in samplings):
        return None
    drawn = uniforms([one.seed for one in samplings], positions)
    filtered = [one.is_filtered for one in samplings]
    numbers = torch.tensor(
        [
            [one.temperature for one in samplings],
            [one.top_p for one in samplings],
            drawn.tolist(),
        ],
        dtype=torch.float64,
    ).to(device)
    marks = torch.tensor([[one.top_k for one in samplings], filtered]).to(device)
    return Knobs(
        temperature=numbers[0],
        top_p=numbers[1],
        top_k=marks[0],
        is_filtered=marks[1].bool(),
        uniforms=numbers[2],
        some_filtered=any(filtered),
        some_free=not all(filtered),
    )


def draw(logits: Tensor, knobs: Knobs | None) -> Tensor:
    """(B,) int64 ids from logits (B, V), NOT_FINITE where those are of no use. Waits for nothing on
    the device.
    """
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
    best, chosen = wide.max(-1)
    if knobs is not None:
        drawn = _sampled(wide - best[:, None], knobs)
        chosen = torch.where(knobs.temperature > 0, drawn, chosen)
    return torch.where(best.isfinite(), chosen, NOT_FINITE)


def _sampled(below: Tensor, knobs: Knobs) -> Tensor:
    """`below` (B, V): logits minus their maximum."""
    warmth = knobs.temperature.clamp_min(torch.finfo(below.dtype).tiny)
    scores = below / warmth.to(below.dtype)[:, None]
    if not knobs.some_filtered:
        return _free(scores, knobs)
    ordered, ids = scores.sort(dim=-1, descending=True, stable=True)
    kept = kept_shares(ordered, knobs.top_p, knobs.top_k)
    filtered = ids.gather(1, _pick(kept, knobs.uniforms)[:, None])[:, 0]
    if not knobs.some_free:
        return filtered
    return torch.where(knobs.is_filtered, filtered, _free(scores, knobs))


def _free(scores: Tensor, knobs: Knobs) -> Tensor:
    return _pick(scores.double().softmax(-1), knobs.uniforms)


def kept_shares(ordered: Tensor, top_p: Tensor, top_k: Tensor) -> Tensor:
    """(B, V) fp64 weights of tokens whose scores fall from left to right; 0 for those left out:
    beyond `top_k`, then beyond the first that bring the rest's probability to `top_p`.
    """
    places = torch.arange(ordered.shape[-1], device=ordered.device)
    few = torch.where(top_k > 0, top_k, ordered.shape[-1])
    shares = ordered.double().masked_fill(places >= few[:, None], -torch.inf).softmax(-1)
    before = shares.cumsum(-1) - shares
    return shares * ((before < top_p[:, None]) | (places == 0))


def _pick(shares: Tensor, uniforms: Tensor) -> Tensor:
    """(B,) the place at which the cumulated `shares` (B, V) pass that part of their sum."""
    reached = shares.cumsum(-1)
    total = reached[:, -1:]
    below = torch.nextafter(total, torch.zeros_like(total))  # u * total may round up to it
    wanted = torch.minimum(uniforms[:, None] * total, below)
    return torch.searchsorted(reached, wanted, right=True)[:, 0]
