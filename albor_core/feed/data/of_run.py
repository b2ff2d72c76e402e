"""What a run reads: the data that its record names, and whether that is still what lies there."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from albor_core.config.recipes.own import own_class
from albor_core.feed.data.folder import FolderView
from albor_core.feed.data.place import data_set_of, look_at, whole_path
from albor_core.run.values.lenient import (
    NOTHING,
    Document,
    finite_of,
    integer,
    mapping,
    mapping_of,
    sequence,
    text,
)
from albor_core.store.rows.rows import KeyStat

_SEEN = re.compile(r"data/(.+)_sequences")  # that training has read of a source so far
_SPLIT_NAMES = ("train", "val", "/", "..")  # say nothing of what a folder holds


@dataclass(frozen=True)
class MixedSource:
    """Shards that a part of the sequences is drawn from; `weight` is of the whole, 0..1, before a
    curriculum changes it. The rest as of RunSplit.
    """

    name: str
    path: str
    weight: float | None = None
    data_hash: str = ""
    folder: FolderView = field(default_factory=FolderView)
    is_same: bool | None = None


@dataclass(frozen=True)
class RunSplit:
    """Shards that a run reads, as it recorded them. `is_same`: whether those very shards lie there
    now; None where that is not known.
    """

    name: str  # train or val
    path: str
    data_hash: str = ""
    sequences: int | None = None
    row_len: int | None = None
    tokens: int | None = None
    folder: FolderView = field(default_factory=FolderView)
    is_same: bool | None = None


@dataclass(frozen=True)
class RunData:
    """The data of a run. `why_none` says why nothing is known; `data_set` is the folder that the
    data room knows it by, "" where there is none.
    """

    why_none: str = ""
    splits: tuple[RunSplit, ...] = ()
    data_set: str = ""
    tokenizer: str = ""
    tokenizer_sha256: str = ""
    seq_len: int | None = None
    batch_size: int | None = None
    has_document_mask: bool = False
    shuffles_documents: bool = False
    mixture: tuple[MixedSource, ...] = ()  # in the place of one folder to train on
    stages: int = 0  # of a curriculum, which changes the weights of a mixture
    has_fim: bool = False
    seen: Mapping[str, int] = field(default_factory=dict)  # sequences by source

    @property
    def train(self) -> RunSplit | None:
        return next((split for split in self.splits if split.name == "train"), None)


def figures_of(summary: Mapping[str, KeyStat]) -> dict[str, float]:
    """The newest figures that a run tells of its data."""
    newest = {key: finite_of(stat.last) for key, stat in summary.items() if _SEEN.fullmatch(key)}
    return {key: value for key, value in newest.items() if value is not None}


def run_data(
    facts: Document, resolved: Document, figures: Mapping[str, float], folder: str
) -> RunData:
    """The data of a run, from its run.json (or the store's copy), its resolved config, its newest
    figures and its folder. Looks into the folders of its data; raises nothing.
    """
    if not facts:
        return RunData("What it recorded is gone.")
    if text(facts, "kind") != "train":
        return RunData("Albor knows the data of its own trainer only (train apply).")
    mode = text(mapping(resolved, "training"), "mode")
    data, config = mapping(facts, "data"), mapping(resolved, "data")
    mixture = _mixture(config, sequence(mapping(data, "train"), "sources"), folder)
    names = ("val",) if mixture else ("train", "val")
    splits = tuple(
        _split(name, mapping_of(part), folder)
        for name in names
        if data.get(name)
        for part in sequence(mapping(data, name), "sources") or [data[name]]
    )
    trained = [split for split in splits if split.name == "train"]
    if not splits and not mixture:
        own = own_class(mode)
        why = "It recorded no data." if own is None else f"A class of yours reads it: {mode}"
        return RunData(why)
    return RunData(
        splits=splits,
        data_set=data_set_of(trained[0].path) if len(trained) == 1 else "",
        tokenizer=whole_path(text(mapping(data, "tokenizer"), "path"), folder),
        tokenizer_sha256=text(mapping(data, "tokenizer"), "sha256"),
        seq_len=integer(config, "seq_len"),
        batch_size=integer(config, "batch_size"),
        has_document_mask=config.get("document_mask") is True,
        shuffles_documents=config.get("shuffle") == "documents",
        mixture=mixture,
        stages=len(sequence(config, "curriculum")),
        has_fim=isinstance(config.get("fim"), Mapping),
        seen={found[1]: int(n) for key, n in figures.items() if (found := _SEEN.fullmatch(key))},
    )


def _mixture(config: Document, recorded: Sequence[Any], folder: str) -> tuple[MixedSource, ...]:
    said = [one for one in sequence(config, "mixture") if isinstance(one, Mapping)]
    whole = sum(finite_of(one.get("weight")) or 0.0 for one in said)
    by_name = {text(one, "source"): one for one in recorded if isinstance(one, Mapping)}
    found = []
    for one in said:
        name = text(one, "name") or _title(text(one, "path"))
        weight, told = finite_of(one.get("weight")), by_name.get(name, NOTHING)
        split = _split(name, {**told, "path": text(one, "path")}, folder)
        share = weight / whole if weight is not None and whole else None
        found.append(
            MixedSource(name, split.path, share, split.data_hash, split.folder, split.is_same)
        )
    return tuple(found)


def _title(path: str) -> str:
    """The name of a source without one in its config, as `MixtureSource.title` makes it."""
    parts = [part for part in Path(path).parts if part not in _SPLIT_NAMES]
    return re.sub(r"[^A-Za-z0-9._-]", "_", (parts or ["source"])[-1])[:40]


def _split(name: str, said: Document, folder: str) -> RunSplit:
    path, seal = whole_path(text(said, "path"), folder), text(said, "data_hash")
    found = look_at(path)
    return RunSplit(
        name,
        path,
        seal,
        integer(said, "sequences"),
        integer(said, "row_len"),
        integer(said, "tokens"),
        found,
        found.has_sealed(seal),
    )
