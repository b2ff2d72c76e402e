"""The data that a run trains on and validates on: rows of token ids by their numbers.

A number identifies a row completely: which row of which source, and in which epoch. Row r of a
source that begins at b is b + r in the first epoch, and N further on in each later one, N all rows
of all sources.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from albor_core.config.config import Config
from albor_core.config.sections.data import MixtureSource
from albor_core.data.load.documents import Boundaries
from albor_core.data.load.fim import RowCutter, SentinelIds
from albor_core.data.load.mixture import DrawnSource, MixtureOrder, Stages
from albor_core.data.load.order import Order, SequenceOrder
from albor_core.data.load.packed_shards import PackedShards
from albor_core.data.load.shuffled_documents import ShuffledDocuments
from albor_core.data.pack.manifest import Manifest, combined_hash
from albor_core.data.pack.tokenizer import load_tokenizer
from albor_core.run.errors import ConfigError, DataError

Rows = NDArray[np.int64]


@dataclass(frozen=True)
class SourcePart:
    """A split that rows come from, and which of its rows are used."""

    name: str | None
    shards: PackedShards
    used: int
    """Rows; spread evenly over the split where there are more."""
    shuffled: ShuffledDocuments | None = None

    def batch(self, rows: Rows, epochs: Rows) -> NDArray[np.int64]:
        if self.shuffled is not None:
            return self.shuffled.batch(rows, epochs)
        return self.shards.batch(self.stored(rows))

    def stored(self, rows: Rows) -> Rows:
        """The indices in the split of these rows."""
        return rows if self.used == len(self.shards) else rows * len(self.shards) // self.used


class TokenSource:
    """Rows of one or several splits, with documents kept apart and filled in the middle if the
    config says so. Validation uses rows as they are stored; documents are kept apart in it too, if
    their shards name the token that ends one.
    """

    def __init__(self, config: Config, *, validation: bool) -> None:
        """Open the splits. Raises NotFoundError, ConfigError or DataError as `PackedShards`."""
        self._seed, self.seq_len = config.training.seed, config.data.seq_len
        self._mixture = () if validation else config.data.mixture
        self._stages = config.data.stages()
        self.parts = _val_parts(config) if validation else _train_parts(config)
        self._begins = np.cumsum([0, *(part.used for part in self.parts)])
        self._fim = None if validation else _fim(config, self.manifest)
        tells = all(part.shards.boundaries is not None for part in self.parts)
        self.keeps_apart = config.data.document_mask and (tells or not validation)
        if self.keeps_apart and self._fim is None and not self._shuffles:
            for part in self.parts:
                part.shards.inner_documents([])  # counted now, and not in the first step

    @property
    def manifest(self) -> Manifest:
        """The manifest of the first split: all are packed alike."""
        return self.parts[0].shards.manifest

    @property
    def _shuffles(self) -> bool:
        """Whether documents are shuffled: in every part, or in none."""
        return self.parts[0].shuffled is not None

    @property
    def data_hash(self) -> str:
        """The hash of all splits, in any order; a single split has its own."""
        return combined_hash(part.shards.manifest.data_hash for part in self.parts)

    def __len__(self) -> int:
        return int(self._begins[-1])

    def order(self) -> Order:
        """The order of the rows in training."""
        if not self._mixture:
            return SequenceOrder(self._seed, len(self), tells_epochs=True)
        sources = [
            DrawnSource(one.title, part.shards.manifest.data_hash, part.used)
            for one, part in zip(self._mixture, self.parts, strict=True)
        ]
        hashes = {one.name: one.data_hash for one in sources}
        stages: Stages = tuple(
            (first, {hashes[name]: weight for name, weight in weights.items()})
            for first, weights in self._stages
        )
        return MixtureOrder(self._seed, sources, stages)

    def count(self, rows: Rows) -> int:
        """Number of scored tokens: every token but the first of a row, and of each document if
        those are kept apart.
        """
        return len(rows) * (self.seq_len - 1) - (self._count_inner(rows) if self.keeps_apart else 0)

    def _count_inner(self, rows: Rows) -> int:
        if self._fim is not None:  # what is pushed out at the end of a row begins nowhere
            laid = self._fim.lay(self.stored(rows), rows)
            return int(self._fim.inner(laid, len(rows), self.seq_len).sum())
        if self._shuffles:
            return int(self._told_apart().inner(self.stored(rows)).sum())
        return sum(
            int(self.parts[part].shards.inner_documents(mine.rows).sum())
            for part, mine in self._by_part(rows % len(self))
        )

    def batch(self, rows: Rows) -> Mapping[str, NDArray[Any]]:
        """`ids` (B, T), and `document` (B, T) if documents are kept apart."""
        ids = self.ids(rows)
        if not self.keeps_apart:
            return {"ids": ids}
        return {"ids": ids, "document": self._told_apart().numbers(ids)}

    def _told_apart(self) -> Boundaries:
        boundaries = self.parts[0].shards.boundaries
        assert boundaries is not None
        return boundaries

    def ids(self, rows: Rows) -> NDArray[np.int64]:
        """(B, T) ids as they are trained on."""
        ids = self.stored(rows)
        return ids if self._fim is None else self._fim.apply(ids, self._fim.lay(ids, rows))

    def is_filled(self, rows: Rows) -> NDArray[np.bool_]:
        """(B,) whether a document of the row is cut for filling in the middle."""
        if self._fim is None:
            return np.zeros(len(rows), bool)
        laid = self._fim.lay(self.stored(rows), rows)
        return np.bincount(laid.row[laid.is_cut], minlength=len(rows)) > 0

    def stored(self, rows: Rows) -> NDArray[np.int64]:
        """(B, T) ids as they were packed, or as their epoch joins them."""
        epochs, rows = np.divmod(np.asarray(rows, np.int64), len(self))
        if len(self.parts) == 1:
            return self.parts[0].batch(rows, epochs)
        ids = np.empty((len(rows), self.seq_len), np.int64)
        for part, mine in self._by_part(rows):
            ids[mine.at] = self.parts[part].batch(mine.rows, epochs[mine.at])
        return ids

    def places(self, rows: Rows) -> list[tuple[str | None, int]]:
        """For each row, the name of its source and its row in it."""
        found: list[tuple[str | None, int]] = [(None, 0)] * len(rows)
        for part, mine in self._by_part(np.asarray(rows, np.int64) % len(self)):
            stored = self.parts[part].stored(mine.rows)
            for at, row in zip(np.flatnonzero(mine.at), stored, strict=True):
                found[at] = self.parts[part].name, int(row)
        return found

    def _by_part(self, rows: Rows) -> Sequence[tuple[int, _Mine]]:
        part = np.searchsorted(self._begins, rows, side="right") - 1
        found = []
        for one in np.unique(part):
            here = part == one
            found.append((int(one), _Mine(here, rows[here] - self._begins[one])))
        return found


@dataclass(frozen=True)
class _Mine:
    """The rows of one part, among given rows."""

    at: NDArray[np.bool_]
    rows: Rows
    """As that part numbers them."""


def _train_parts(config: Config) -> list[SourcePart]:
    parts: list[tuple[str | None, PackedShards]]
    if config.data.mixture:
        parts = [*_mixed(config, config.data.mixture, "data.mixture")]
    else:
        parts = [(None, _open(config, config.data.train, "data.train"))]
    return [
        SourcePart(name, shards, len(shards), _shuffled(config, shards)) for name, shards in parts
    ]


def _shuffled(config: Config, shards: PackedShards) -> ShuffledDocuments | None:
    """The shuffled documents of a split. Raises DataError if documents cannot be told apart, or
    were placed whole into rows."""
    if config.data.shuffle == "rows":
        return None
    folder = shards.manifest.directory
    if shards.boundaries is None:
        raise DataError(
            f"data.shuffle: the manifest of {folder} names no token between documents",
            hint="pack them again with `albor data pretokenize`, or leave data.shuffle out",
        )
    length = shards.manifest.seq_len
    if length % shards.seq_len:
        raise DataError(
            f"data.shuffle: data.seq_len {shards.seq_len} does not divide the {length} tokens of a "
            f"row in {folder}, and what is left of each row is missing where documents are joined",
            hint=f"use data.seq_len={length}, a divisor of it, or leave data.shuffle out",
        )
    packing = (shards.manifest.packing or {}).get("name", "concat")
    if packing != "concat":
        raise DataError(
            f"data.shuffle: {folder} was packed by {packing}, and documents are joined by concat",
            hint="pack it again with --packing concat, or leave data.shuffle out",
        )
    return ShuffledDocuments(shards, config.training.seed)


def _val_parts(config: Config) -> list[SourcePart]:
    """The parts for validation: of a mixture, as many rows of each source as its weight and the
    scarcest source allow, one after the other, so that rows spread evenly over all are spread
    evenly over each.
    """
    if config.data.val is not None:
        shards = _open(config, config.data.val, "data.val")
        return [SourcePart(None, shards, len(shards))]
    mixture = [one for one in config.data.val_mixture if one.weight > 0]
    parts = _mixed(config, mixture, "data.val_mixture")
    total = sum(one.weight for one in mixture)
    shares = [one.weight / total for one in mixture]
    most = min(len(shards) / share for share, (_, shards) in zip(shares, parts, strict=True))
    return [
        SourcePart(name, shards, min(len(shards), max(1, int(share * most))))
        for share, (name, shards) in zip(shares, parts, strict=True)
    ]


def _open(config: Config, folder: Path, field: str) -> PackedShards:
    shards = PackedShards(
        folder,
        seq_len=config.data.seq_len,
        column=config.data.input_column,
        vocab_size=config.model.architecture.vocab_size,
    )
    if config.data.document_mask and not field.startswith("data.val") and shards.boundaries is None:
        raise DataError(
            f"data.document_mask: the manifest of {field} names no token between documents",
            hint="pack them again with `albor data pretokenize`, or leave document_mask out",
        )
    return shards


def _mixed(
    config: Config, mixture: Sequence[MixtureSource], field: str
) -> list[tuple[str, PackedShards]]:
    """The sources of a mixture. Raises ConfigError if two have the same data, or are packed
    differently."""
    found: list[tuple[str, PackedShards]] = []
    for index, one in enumerate(mixture):
        where = f"{field}.{index}.path"
        shards = _open(config, one.path, where)
        for name, other in found:
            mine, theirs = shards.manifest, other.manifest
            if mine.data_hash == theirs.data_hash:
                what = f"{where}: {one.path} holds the same data as source {name}"
                raise ConfigError(what, hint="give that one the weight of both")
            for fact in ("tokenizer_sha256", "eos_token_id", "bos_token_id"):
                if getattr(mine, fact) != getattr(theirs, fact):
                    what = f"{where}: {one.path} was packed with another {_FACTS[fact]} than {name}"
                    raise ConfigError(what, hint="pack all sources with one tokenizer")
        found.append((one.title, shards))
    return found


_FACTS = {
    "tokenizer_sha256": "tokenizer",
    "eos_token_id": "end of text",
    "bos_token_id": "beginning of text",
}


def _fim(config: Config, manifest: Manifest) -> RowCutter | None:
    """The cutter for filling in the middle. Raises ConfigError if the tokenizer lacks the
    sentinels, DataError if no token ends a document.
    """
    wanted = config.data.fim
    if wanted is None:
        return None
    if manifest.eos_token_id is None:
        raise DataError(
            f"data.fim: the manifest of {manifest.directory} names no token that ends a document",
            hint="pack the corpus again with `albor data pretokenize`, or leave data.fim out",
        )
    file = config.data.tokenizer
    assert file is not None, "refused by Config.problems"
    tokenizer = load_tokenizer(file)
    ids = []
    for field in SentinelIds._fields:
        name = getattr(wanted, field)
        number = tokenizer.token_to_id(name)
        if number is None or number >= config.model.architecture.vocab_size:
            what = "not a token of" if number is None else "beyond the model's vocabulary in"
            raise ConfigError(
                f"data.fim.{field}: {name!r} is {what} {file}",
                hint="name the tokens that it has for this, or train one that has them: "
                "albor tokenizer apply CORPUS --vocab-size N --out FILE",
            )
        if number == manifest.eos_token_id:
            what = f"{name!r} ends every document in {manifest.directory}"
            raise ConfigError(f"data.fim.{field}: {what}", hint="name another token")
        ids.append(int(number))
    return RowCutter(
        wanted.rate, wanted.format, SentinelIds(*ids), manifest.eos_token_id, config.training.seed
    )
