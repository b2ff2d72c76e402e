"""Validation loss and samples. Neither touches a random number generator."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from albor_core.data.dataset import PackedShards, val_batches
from albor_core.data.tokenizer import load_tokenizer
from albor_core.model.llama import Llama
from albor_core.train.placement import Placement
from albor_core.train.ranks import Word
from albor_core.train.sharding import settle

SAMPLE_TOKENS = 64
Forward = Callable[[Tensor], tuple[Tensor | None, Tensor | None]]


@torch.no_grad()
def validation_loss(
    model: Llama,
    data: PackedShards,
    placement: Placement,
    *,
    batch_size: int,
    num_batches: int,
    go_on: Callable[[], bool],
) -> float | None:
    """Mean nats per token over the first `num_batches` batches; None if `go_on` says no.

    Ranks take the batches in turn; this is rank 0, `validate_with` the others.
    """
    model.eval()
    batches = list(val_batches(data, batch_size, num_batches))
    ranks, total, rows = placement.ranks, 0.0, 0.0
    sums = torch.zeros((), dtype=torch.float64, device=placement.device)
    try:
        for at in range(0, len(batches), ranks.world_size):
            if not go_on():
                return None
            ranks.tell(Word.VALIDATE, at=at)
            loss, weight = _loss_of(model, batches, at, placement)
            if ranks.is_alone:  # read once, at the end
                sums += loss * weight
                rows += weight
            else:
                both = ranks.add_up(float(loss) * weight, weight)
                total, rows = total + both[0], rows + both[1]
    finally:
        model.train()
    return (total + float(sums)) / rows


@torch.no_grad()
def validate_with(
    model: Llama, batches: list[NDArray[np.int64]], at: int, placement: Placement
) -> None:
    """A rank's part of the batches `at`, `at` + 1, ... of a validation."""
    model.eval()
    loss, weight = _loss_of(model, batches, at, placement)
    placement.ranks.add_up(float(loss) * weight, weight)
    model.train()


def _loss_of(
    model: Llama, batches: list[NDArray[np.int64]], at: int, placement: Placement
) -> tuple[Tensor, int]:
    """(fp64 loss, number of rows) of this rank's batch; where none is left for it, of another with
    no weight: a sharded forward needs everybody.
    """
    mine = at + placement.ranks.rank
    batch = batches[mine] if mine < len(batches) else batches[at]
    ids = torch.from_numpy(batch).to(placement.device)
    with placement.autocast():
        _, loss = model(ids, ids)
    settle(model)
    assert loss is not None
    if mine >= len(batches):
        return torch.zeros_like(loss, dtype=torch.float64), 0
    return loss.double(), len(ids)


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
        ranks.tell(Word.FORWARD, *ids.shape)
        ranks.hand_out(ids)
        found: tuple[Tensor | None, Tensor | None] = model(ids)
        settle(model)
        return found

    return forward


@torch.no_grad()
def sample_with(model: Llama, placement: Placement, shape: tuple[int, int]) -> None:
    """A rank's part of a forward over rank 0's ids."""
    ids = torch.zeros(shape, dtype=torch.int64, device=placement.device)
    ids = placement.ranks.hand_out(ids)
    model.eval()
    with placement.autocast():
        model(ids)
    settle(model)
    model.train()


class Sampler:
    """Greedy continuations of fixed prompts: the same words for the same weights."""

    def __init__(self, tokenizer: Path, prompts: tuple[str, ...]) -> None:
        """Raises what `load_tokenizer` raises."""
        self._tokenizer = load_tokenizer(tokenizer)
        self.prompts = prompts

    @torch.no_grad()
    def continue_prompt(self, model: Llama, placement: Placement, prompt: str) -> str:
        """Up to SAMPLE_TOKENS more tokens; the whole context is computed anew for each."""
        forward = _everywhere(model, placement)
        longest = model.config.max_position_embeddings
        ids = list(self._tokenizer.encode(prompt).ids) or [0]
        start = len(ids)
        model.eval()
        for _ in range(SAMPLE_TOKENS):
            context = torch.tensor([ids[-longest:]], device=placement.device)
            with placement.autocast():
                logits, _ = forward(context)
            assert logits is not None
            token = int(logits[0, -1].argmax())
            if token == 0:  # end of text
                break
            ids.append(token)
        model.train()
        return str(self._tokenizer.decode(ids[start:]))
