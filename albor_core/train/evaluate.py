"""Validation loss and samples. Neither touches a random number generator."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from albor_core.data.load.order import val_rows
from albor_core.data.pack.special_tokens import SpecialIds
from albor_core.data.pack.tokenizer import load_tokenizer
from albor_core.model.generate.engine import Completion, NotFiniteError, generate
from albor_core.model.generate.plain import generate_plainly
from albor_core.model.generate.sampling import Sampling
from albor_core.model.generate.text import text_after
from albor_core.model.llama import Llama
from albor_core.recipes.recipe import Forward, Rows
from albor_core.train.build import Parts
from albor_core.train.ranks.group import Word
from albor_core.train.ranks.placement import Placement
from albor_core.train.ranks.sharding import reshard
from albor_core.train.step.fused import GraphedStep
from albor_core.train.step.optimizer_step import Stepper

SAMPLE_TOKENS = 64


def scoring(parts: Parts, stepper: Stepper) -> Forward:
    """What the recipe evaluates with: the kernels that train, where they do; fp8's would move its
    scales, so bf16 there.
    """
    if isinstance(stepper, GraphedStep) and parts.scales is None:
        score = stepper.model.score
        return lambda *batch: (None, score(*batch))

    def plainly(*tensors: Any, **named: Any) -> object:
        with parts.placement.autocast():
            found = parts.model(*tensors, **named)
        reshard(parts.model)
        return found

    return plainly


def batches_of(parts: Parts) -> list[Rows]:
    """What is validated on, spread evenly over the split; always the same."""
    assert parts.val is not None
    config = parts.config
    return list(val_rows(len(parts.val), config.data.batch_size, config.training.eval_batches))


@torch.no_grad()
def validation(
    parts: Parts, forward: Forward, *, go_on: Callable[[], bool]
) -> dict[str, float] | None:
    """The recipe's figures over `batches_of`, each a mean; None if `go_on` says no.

    Ranks take the batches in turn; this is rank 0, `validate_with` the others.
    """
    ranks, batches = parts.ranks, batches_of(parts)
    sums = FigureSums(parts)
    parts.model.eval()
    try:
        for at in range(0, len(batches), ranks.world_size):
            if not go_on():
                return None
            ranks.send_order(Word.VALIDATE, at=at)
            sums.add(forward, batches, at)
    finally:
        parts.model.train()
    return sums.means()


@torch.no_grad()
def validate_with(parts: Parts, forward: Forward, batches: list[Rows], at: int) -> None:
    """A rank's part of the batches `at`, `at` + 1, ... of a validation."""
    parts.model.eval()
    FigureSums(parts).add(forward, batches, at)
    parts.model.train()


class FigureSums:
    """Sums and weights of a validation; read from the device once, at the end, or with each round
    of batches where ranks add theirs up.
    """

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._here: dict[str, Tensor] = {}
        self._sums: dict[str, float] = {}
        self._weights: dict[str, float] = {}

    def add(self, forward: Forward, batches: list[Rows], at: int) -> None:
        """This rank's batch of those from `at` on."""
        here, weights = self._sum_of(forward, batches, at)
        for name, weight in weights.items():
            if self._parts.ranks.is_alone:
                self._here[name] = self._here.get(name, 0) + here[name]
            else:
                both = self._parts.ranks.add_up(float(here[name]), weight)
                self._sums[name] = self._sums.get(name, 0.0) + both[0]
                weight = both[1]
            self._weights[name] = self._weights.get(name, 0.0) + weight

    def means(self) -> dict[str, float]:
        sums = {name: float(total) for name, total in self._here.items()} | self._sums
        weights = self._weights.items()
        return {name: sums[name] / weight if weight else math.nan for name, weight in weights}

    def _sum_of(
        self, forward: Forward, batches: list[Rows], at: int
    ) -> tuple[dict[str, Tensor], dict[str, float]]:
        """Over the rows of this rank's batch, in micro-batches: then an evaluation needs less
        memory than a step.

        A sharded forward needs everybody, and its compiled blocks one shape: there a rank fills up
        what it lacks with rows that are not scored. A rank without a batch takes part in adding up.
        """
        parts = self._parts
        assert parts.val is not None
        ranks, size = parts.ranks, parts.share.batch_size
        mine = at + ranks.rank
        rows = batches[mine] if mine < len(batches) else batches[at][:0]
        sums: dict[str, Tensor] = {}
        weights: dict[str, float] = {}
        for begin in range(0, len(batches[at]), size):  # of these the first is as large as any
            taken = rows[begin : begin + size]
            weight = len(taken)
            fill = size - weight if ranks.is_sharded else 0
            if not weight and not fill:
                if sums:
                    continue
                fill = 1  # for the names of the figures
            read = np.concatenate((taken, np.repeat(batches[at][:1], fill)))
            batch = parts.host_batch(parts.val, read).to(parts.placement.device)
            scored = parts.val.count(taken) if weight else 0
            found = parts.recipe.evaluate(forward, batch.scoring_first(weight), weight, scored)
            for name, (total, weighs) in found.items():
                sums[name] = sums.get(name, 0) + total
                weights[name] = weights.get(name, 0.0) + weighs
        return sums, weights


def _everywhere(model: Llama, placement: Placement) -> Forward:
    """A sharded `model` on ids that rank 0 alone knows: all take part (`sample_with`)."""
    ranks = placement.ranks

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
        """Raise what `load_tokenizer` raises. `ids`: of the data that the model learns from."""
        self._tokenizer, self._ids = load_tokenizer(tokenizer), ids
        self.prompts = prompts
        ends = frozenset() if ids.eos is None else frozenset({ids.eos})
        self._sampling = Sampling(max_new_tokens=SAMPLE_TOKENS, stop_ids=ends)

    @torch.no_grad()
    def continue_prompts(
        self, model: Llama, placement: Placement, beat: Callable[[], object] = lambda: None
    ) -> list[str]:
        """After each prompt up to SAMPLE_TOKENS more, to the end of the text or of the context;
        nothing where logits are not finite. `beat` is called with every token.
        """
        longest = model.config.max_position_embeddings
        prompts = [
            self._cut(self._tokenizer.encode(one, add_special_tokens=False).ids, longest)
            for one in self.prompts
        ]
        model.eval()
        try:
            with _uncompiled(placement), placement.autocast():
                found = self._generate(model, placement, prompts, beat)
        except NotFiniteError:
            return ["" for _ in prompts]
        finally:
            model.train()
        pairs = zip(prompts, found, strict=True)
        return [text_after(self._tokenizer, prompt, one.ids) for prompt, one in pairs]

    def _cut(self, ids: Sequence[int], longest: int) -> list[int]:
        """The end of a prompt that leaves room for a sample, or half a context; never empty."""
        kept = max(1, longest - SAMPLE_TOKENS, longest // 2)
        return [*ids[-kept:]] or [self._ids.first or 0]

    def _generate(
        self,
        model: Llama,
        placement: Placement,
        prompts: list[list[int]],
        beat: Callable[[], object],
    ) -> list[Completion]:
        """Sharded ranks take part in forwards alone and keep no cache: there each token is a
        forward over everything before it.
        """

        def goes_on(*_: int) -> bool:
            beat()
            return True

        if not placement.ranks.is_sharded:
            return generate(model, prompts, self._sampling, goes_on=goes_on)
        forward = _everywhere(model, placement)

        def logits_of(ids: Tensor) -> Tensor:
            beat()
            logits, _ = forward(ids)
            assert isinstance(logits, Tensor)
            return logits

        longest, device = model.config.max_position_embeddings, placement.device
        return [
            generate_plainly(logits_of, prompt, self._sampling, max_context=longest, device=device)
            for prompt in prompts
        ]
