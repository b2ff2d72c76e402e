"""Validation loss and samples. Neither touches a random number generator."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from albor_core.data.pack.dataset import val_batches
from albor_core.data.pack.special_tokens import SpecialIds
from albor_core.data.pack.tokenizer import load_tokenizer
from albor_core.model.llama import IGNORED, Llama
from albor_core.train.build import Parts
from albor_core.train.ranks.group import Word
from albor_core.train.ranks.placement import Placement
from albor_core.train.ranks.sharding import reshard
from albor_core.train.step.choose import PlainStep
from albor_core.train.step.fused import GraphedStep

SAMPLE_TOKENS = 64
Forward = Callable[[Tensor], tuple[Tensor | None, Tensor | None]]
Score = Callable[[Tensor, Tensor], Tensor]
"""ids and labels (B, T), aligned, to the mean nats per scored token, fp32; keeps nothing."""


def scoring(parts: Parts, stepper: PlainStep | GraphedStep) -> Score:
    """By the kernels that train, where they do; fp8's would move its scales, so bf16 there."""
    if isinstance(stepper, GraphedStep) and parts.scales is None:
        return stepper.model.score

    def plainly(ids: Tensor, labels: Tensor) -> Tensor:
        with parts.placement.autocast():
            found: tuple[None, Tensor] = parts.model(ids, labels)
        reshard(parts.model)
        return found[1]

    return plainly


def batches_of(parts: Parts) -> list[NDArray[np.int64]]:
    """What is validated on, spread evenly over the split; always the same."""
    assert parts.val is not None
    config = parts.config
    return list(val_batches(parts.val, config.data.batch_size, config.training.eval_batches))


@torch.no_grad()
def validation_loss(parts: Parts, score: Score, *, go_on: Callable[[], bool]) -> float | None:
    """Mean nats per token over `batches_of`; None if `go_on` says no.

    Ranks take the batches in turn; this is rank 0, `validate_with` the others.
    """
    ranks, batches = parts.ranks, batches_of(parts)
    total, rows = 0.0, 0.0
    sums = torch.zeros((), dtype=torch.float64, device=parts.placement.device)
    parts.model.eval()
    try:
        for at in range(0, len(batches), ranks.world_size):
            if not go_on():
                return None
            ranks.send_order(Word.VALIDATE, at=at)
            found, weight = _sum_of(parts, score, batches, at)
            if ranks.is_alone:  # read once, at the end
                sums += found
                rows += weight
            else:
                both = ranks.add_up(float(found), weight)
                total, rows = total + both[0], rows + both[1]
    finally:
        parts.model.train()
    return (total + float(sums)) / rows


@torch.no_grad()
def validate_with(parts: Parts, score: Score, batches: list[NDArray[np.int64]], at: int) -> None:
    """A rank's part of the batches `at`, `at` + 1, ... of a validation."""
    parts.model.eval()
    found, weight = _sum_of(parts, score, batches, at)
    parts.ranks.add_up(float(found), weight)
    parts.model.train()


def _sum_of(
    parts: Parts, score: Score, batches: list[NDArray[np.int64]], at: int
) -> tuple[Tensor, int]:
    """(sum over the sequences of this rank's batch, fp64; how many), in micro-batches: then an
    evaluation needs less memory than a step.

    A sharded forward needs everybody, and its compiled blocks one shape: there a rank fills up what
    it lacks with sequences that are not scored.
    """
    ranks, device, size = parts.ranks, parts.placement.device, parts.share.batch_size
    mine = at + ranks.rank
    batch = batches[mine] if mine < len(batches) else batches[at][:0]
    total = torch.zeros((), dtype=torch.float64, device=device)
    for begin in range(0, len(batches[at]), size):  # of these the first is as large as any
        rows = batch[begin : begin + size]
        ids, weight = rows, len(rows)
        if ranks.is_sharded and weight < size:
            ids = np.concatenate((rows, np.repeat(batches[at][:1], size - weight, axis=0)))
        if not len(ids):
            continue
        tokens = torch.from_numpy(ids).to(device)
        labels = tokens.clone()
        labels[weight:] = IGNORED
        loss = score(tokens, labels)
        if weight:  # of nothing scored, the mean is NaN
            total += loss.double() * weight
    return total, len(batch)


def perplexity(loss: float) -> float:
    """exp of nats per token; infinite where that overflows."""
    try:
        return math.exp(loss)
    except OverflowError:
        return math.inf


def _everywhere(model: Llama, placement: Placement) -> Forward:
    """`model` on ids that rank 0 alone knows: a sharded forward needs everybody (`sample_with`)."""
    ranks = placement.ranks
    if not ranks.is_sharded:
        return model

    def forward(ids: Tensor) -> tuple[Tensor | None, Tensor | None]:
        ranks.send_order(Word.FORWARD, *ids.shape)
        ranks.hand_out(ids)
        found: tuple[Tensor | None, Tensor | None] = model(ids)
        reshard(model)
        return found

    return forward


def _uncompiled(placement: Placement) -> AbstractContextManager[Any]:
    """Prompts come in any length, each a graph of its own, and a compiler makes only so many: the
    graph that trains must not be lost for them.
    """
    return torch.compiler.set_stance("force_eager") if placement.compiles else nullcontext()


@torch.no_grad()
def sample_with(model: Llama, placement: Placement, shape: tuple[int, int]) -> None:
    """A rank's part of a forward over rank 0's ids."""
    ids = torch.zeros(shape, dtype=torch.int64, device=placement.device)
    ids = placement.ranks.hand_out(ids)
    model.eval()
    with _uncompiled(placement), placement.autocast():
        model(ids)
    reshard(model)
    model.train()


class Sampler:
    """Greedy continuations of fixed prompts: the same words for the same weights."""

    def __init__(self, tokenizer: Path, prompts: tuple[str, ...], ids: SpecialIds) -> None:
        """Raises what `load_tokenizer` raises. `ids`: of the data that the model learns from."""
        self._tokenizer, self._ids = load_tokenizer(tokenizer), ids
        self.prompts = prompts

    @torch.no_grad()
    def continue_prompt(self, model: Llama, placement: Placement, prompt: str) -> str:
        """Up to SAMPLE_TOKENS more tokens, or to the end of the text; the whole context is computed
        anew for each.
        """
        forward = _everywhere(model, placement)
        longest = model.config.max_position_embeddings
        ids = list(self._tokenizer.encode(prompt).ids) or [self._ids.first or 0]
        start = len(ids)
        model.eval()
        for _ in range(SAMPLE_TOKENS):
            context = torch.tensor([ids[-longest:]], device=placement.device)
            with _uncompiled(placement), placement.autocast():
                logits, _ = forward(context)
            assert logits is not None
            token = int(logits[0, -1].argmax())
            if token == self._ids.eos:
                break
            ids.append(token)
        model.train()
        return str(self._tokenizer.decode(ids[start:]))
