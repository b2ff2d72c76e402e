"""Validation loss and samples. Neither touches a random number generator."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import torch

from albor_core.data.dataset import PackedShards, val_batches
from albor_core.data.tokenizer import load_tokenizer
from albor_core.model.llama import Llama
from albor_core.train.placement import Placement

SAMPLE_TOKENS = 64


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
    """Mean nats per token over the first `num_batches` batches; None if `go_on` says no."""
    model.eval()
    total = torch.zeros((), dtype=torch.float64, device=placement.device)
    rows = 0
    try:
        for batch in val_batches(data, batch_size, num_batches):
            if not go_on():
                return None
            ids = torch.from_numpy(batch).to(placement.device)
            with placement.autocast():
                _, loss = model(ids, ids)
            assert loss is not None
            total += loss.double() * len(ids)
            rows += len(ids)
    finally:
        model.train()
    return float(total) / rows


def perplexity(loss: float) -> float:
    """exp of nats per token; infinite where that overflows."""
    try:
        return math.exp(loss)
    except OverflowError:
        return math.inf


class Sampler:
    """Greedy continuations of fixed prompts: the same words for the same weights."""

    def __init__(self, tokenizer: Path, prompts: tuple[str, ...]) -> None:
        """Raises what `load_tokenizer` raises."""
        self._tokenizer = load_tokenizer(tokenizer)
        self.prompts = prompts

    @torch.no_grad()
    def continue_prompt(self, model: Llama, placement: Placement, prompt: str) -> str:
        """Up to SAMPLE_TOKENS more tokens; the whole context is computed anew for each."""
        longest = model.config.max_position_embeddings
        ids = list(self._tokenizer.encode(prompt).ids) or [0]
        start = len(ids)
        model.eval()
        for _ in range(SAMPLE_TOKENS):
            context = torch.tensor([ids[-longest:]], device=placement.device)
            with placement.autocast():
                logits, _ = model(context)
            assert logits is not None
            token = int(logits[0, -1].argmax())
            if token == 0:  # end of text
                break
            ids.append(token)
        model.train()
        return str(self._tokenizer.decode(ids[start:]))
