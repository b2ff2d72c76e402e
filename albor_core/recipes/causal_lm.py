"""Next-token prediction by a decoder on packed token rows: pre-training."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from albor_core.config.config import Config
from albor_core.data.load.order import Order
from albor_core.data.load.source import TokenSource
from albor_core.data.pack.special_tokens import SpecialIds, tokenizer_file
from albor_core.data.pack.token_bytes import bytes_of_tokens
from albor_core.kernels.ops.cross_entropy import IGNORED
from albor_core.model.head import Scored
from albor_core.model.hf.tensors import load_into
from albor_core.model.llama import Llama, LlamaConfig, init_weights
from albor_core.plan.facts import tokenizer_facts
from albor_core.plan.start_weights import refuse_misfits, start_weights
from albor_core.recipes.batch import Batch
from albor_core.recipes.companions import companions, ids_of
from albor_core.recipes.head_loss import CrossEntropy, HeadLoss
from albor_core.recipes.recipe import Forward, Recipe, Rows, Source
from albor_core.run.errors import ConfigError, DataError
from albor_core.run.files.weight_files import open_weights, without_tied_head


class PackedSource(TokenSource):
    """Packed shards as rows in which every token but the first is scored; if documents are kept
    apart, every token but the first of each document.
    """

    def batch(self, rows: Rows) -> Mapping[str, NDArray[Any]]:
        found = dict(super().batch(rows))
        if (document := found.get("document")) is not None:
            labels = found["ids"].copy()
            labels[:, 1:][document[:, 1:] != document[:, :-1]] = IGNORED
            found["labels"] = labels
        return found

    def text_bytes(self, rows: Rows, tokenizer: Path | None) -> int | None:
        """Bytes of the scored text in these rows; None if `tokenizer` does not give them, or
        differs from the one the rows were packed with.
        """
        if tokenizer is None:
            return None
        packed = self.manifest.tokenizer_sha256
        if packed is not None and packed != tokenizer_facts(tokenizer_file(tokenizer)).sha256:
            return None
        table = bytes_of_tokens(tokenizer)
        found = self.batch(rows)
        ids, labels = found["ids"][:, 1:], found.get("labels", found["ids"])[:, 1:]
        if table is None or not ids.size or int(ids.max()) >= len(table):
            return None
        return int(table[ids][labels != IGNORED].sum())


class CausalLM(Recipe):
    compiles: ClassVar[bool] = True
    _measured: tuple[int, float | None] = (0, None)  # rows, and the bytes of a token in them

    def head_loss(self) -> HeadLoss:
        """The training objective; a user's class may return another one, and keeps the fused step
        if it leaves `loss` alone.
        """
        return CrossEntropy(self.config.training.stability.z_loss)

    @cached_property
    def head(self) -> HeadLoss | None:
        kept = ("loss", "share_of_loss", "model")
        is_ours = all(getattr(type(self), name) is getattr(CausalLM, name) for name in kept)
        return self.head_loss() if is_ours else None

    @property
    def columns(self) -> tuple[str, ...]:  # type: ignore[override]
        """The columns of the head loss; a user's class may name others."""
        return () if self.head is None else self.head.columns

    def sources(self) -> tuple[PackedSource, PackedSource | None]:
        self.train = PackedSource(self.config, validation=False)
        has_val = self.config.data.has_val
        self.val = PackedSource(self.config, validation=True) if has_val else None
        return self.train, self.val

    def order(self, source: Source) -> Order:
        return self.train.order()

    # -- the model -----------------------------------------------------------------------------

    @property
    def shape(self) -> LlamaConfig:
        return shape_of(self.config)

    def model(self, device: torch.device) -> Llama:
        """The model with uninitialised weights: PyTorch's own initialisation would be thrown
        away."""
        segments = self.config.training.segments(self.shape.num_hidden_layers)
        with torch.device("meta"):
            model = Llama(self.shape, segments=segments)
        model.to_empty(device=device)
        return model

    def random_weights(self, model: nn.Module) -> None:
        assert isinstance(model, Llama)
        init_weights(model, self.config.training.seed)

    def first_weights(self, model: nn.Module) -> None:
        """Load or draw the weights of step 0. Raises ConfigError if `model.path` has none that fit.
        Weights of another dtype are widened or rounded to fp32, the dtype of the master weights.
        """
        config = self.config
        folder = start_weights(config.model)
        if folder is None:
            self.random_weights(model)
            return
        refuse_misfits(config.model)
        try:
            is_tied = config.model.architecture.tie_word_embeddings
            load_into(model, without_tied_head(open_weights(folder), is_tied=is_tied))
        except DataError as error:
            raise ConfigError(f"model.path: {error.message}", hint=error.hint) from error

    def decoder(self, model: nn.Module) -> Llama | None:
        if not isinstance(model, Llama):
            return None
        if type(model) is Llama:
            return model
        from torch.distributed.fsdp import FSDPModule  # noqa: PLC0415  loaded where it is sharded

        is_sharded = type(model).__bases__ == (
            FSDPModule,
            Llama,
        )  # the class that fully_shard makes
        return model if is_sharded else None

    def blocks(self, model: nn.Module) -> Sequence[nn.Module]:
        assert isinstance(model, Llama)
        return [*model.model.layers]

    def trunk(self, model: nn.Module) -> nn.Module | None:
        assert isinstance(model, Llama)
        return model.model

    def num_parameters(self, model: nn.Module) -> int:
        return self.shape.num_parameters

    def flops_per_token(self) -> float | None:
        return self.shape.flops_per_token(self.config.data.seq_len)

    def companions(self, resumed: Path | None = None) -> dict[str, bytes]:
        source = start_weights(self.config.model)
        if source is not None and resumed is not None:
            source = resumed  # it has all of it; the first weights may be gone
        ids = ids_of(self.config, self.train.manifest, source)
        return companions(self.config, self.shape, ids, source)

    def special_ids(self) -> SpecialIds:
        """The special tokens that the data was packed with; if it has none on record, those of its
        tokenizer."""
        return ids_of(self.config, self.train.manifest)

    # -- the objective -------------------------------------------------------------------------

    def loss(self, model: Forward, batch: Batch) -> tuple[Tensor, Mapping[str, Tensor]]:
        mean, means = self._scored(model, batch)
        count = self._loss.count(batch)
        return mean * count, {name: value * count for name, value in means.items()}

    def share_of_loss(
        self, model: Forward, batch: Batch, scored: int, whole: float
    ) -> tuple[Tensor, Mapping[str, Tensor]]:
        """Computed from the mean, which is what kernels give: micro-batches with equal counts are
        divided by their number, exact to the bit. A user's class may have another `loss`.
        """
        if type(self).loss is not CausalLM.loss:
            return super().share_of_loss(model, batch, scored, whole)
        mean, means = self._scored(model, batch)
        parts = whole / scored if scored else math.inf
        return mean / parts, {name: value / parts for name, value in means.items()}

    @cached_property
    def _loss(self) -> HeadLoss:
        return self.head or self.head_loss()

    def _scored(self, model: Forward, batch: Batch) -> Scored:
        _, found = model(batch.ids, None, batch.document, score=self._loss.bind(batch))
        scored: Scored = found
        return scored

    def evaluate(
        self, model: Forward, batch: Batch, rows: int, scored: int
    ) -> Mapping[str, tuple[Tensor, float]]:
        _, mean = model(batch.ids, batch.targets, batch.document)
        if not rows:  # of nothing scored, the mean is NaN
            mean = torch.zeros_like(mean)
        weight = scored / (
            batch.ids.shape[1] - 1
        )  # in rows: exactly `rows` where every token counts
        return {"val/loss": (mean.double() * weight, weight)}

    def figures(self, means: Mapping[str, float], rows: Rows) -> dict[str, float]:
        loss = means["val/loss"]
        found = {**means, "val/ppl": perplexity(loss)}
        if (ratio := self._bytes_per_token(rows)) is not None:
            found["val/bpb"] = loss / (math.log(2) * ratio)
        return found

    def _bytes_per_token(self, rows: Rows) -> float | None:
        """Bytes per token of the scored text in rows of the validation data; None if unknown."""
        if len(rows) != self._measured[0]:  # an evaluation takes the same rows every time
            assert self.val is not None
            number = self.val.text_bytes(rows, self.config.data.tokenizer)
            self._measured = (len(rows), number / self.val.count(rows) if number else None)
        return self._measured[1]


def shape_of(config: Config) -> LlamaConfig:
    """The Llama shape and initialisation of a config."""
    begin, shape = config.model.initialization, config.model.architecture.shape()
    return LlamaConfig(
        **{field.name: getattr(shape, field.name) for field in fields(shape)},
        matrix_scale=begin.matrix,
        residual_scale=begin.residual,
        mirrored=begin.mirrored,
        embedding_std=begin.embedding,
        head_std=begin.head,
        residual_in_fp32=config.training.residual_in_fp32,
    )


def perplexity(loss: float) -> float:
    """exp of nats per token; infinite where that overflows."""
    try:
        return math.exp(loss)
    except OverflowError:
        return math.inf
