"""What is packed: one corpus, split here by its documents' names, or a folder of splits."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from albor_core.data.pack.work.encode import SplitRule
from albor_core.data.stage.corpus import Corpus, open_corpus
from albor_core.data.stage.record import content_hash
from albor_core.data.stage.stamp import Stamp, stamp_of
from albor_core.outputs.place import WORK
from albor_core.run.checkpoints import HALF
from albor_core.run.errors import ConfigError, DataError, UsageError

SPLITS = ("train", "val", "test")
VAL_FRACTION = 0.05  # of the documents, held out for validation
NOWHERE: Mapping[str, Path] = MappingProxyType({})
_OF_A_CORPUS = ("done", "signed", "scattered")  # in the work folder of a step; a packer's has none
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


@dataclass(frozen=True)
class PackInput:
    """`corpora`: one, or one for each of `names`."""

    path: Path
    names: tuple[str, ...]
    corpora: tuple[Corpus, ...]
    rule: SplitRule | None
    """How the documents of one corpus are split into `names`; None where nothing is held out."""

    @property
    def is_split(self) -> bool:
        """Into a corpus for each name."""
        return self.path != self.corpora[0].path

    @property
    def rows(self) -> int:
        return sum(corpus.rows for corpus in self.corpora)

    @property
    def text_bytes(self) -> int:
        return sum(corpus.text_bytes for corpus in self.corpora)

    def corpus_of(self, name: str) -> Corpus:
        return self.corpora[self.names.index(name) if self.is_split else 0]

    def content(self) -> dict[str, str]:
        """The identity of each corpus' files, cheap beside reading their text."""
        keys = self.names if self.is_split else ("corpus",)
        return {key: content_hash(one) for key, one in zip(keys, self.corpora, strict=True)}

    def stamps(self) -> list[Stamp]:
        """Size and time of each file, to see whether one changes."""
        return [stamp_of(file.stat()) for corpus in self.corpora for file in corpus.files]

    def check_split(self) -> None:
        """Raise DataError where a split gets no document. Reads until each has one."""
        if self.rule is None:
            return
        missing = {False: self.names[0], True: self.names[1]}
        for key, _ in self.corpora[0].documents():
            missing.pop(self.rule.holds_out(key), None)
            if not missing:
                return
        raise DataError(
            f"{self.path}: none of its {self.rows} documents falls into {min(missing.values())} "
            f"(val_fraction {self.rule.val_fraction}, seed {self.rule.seed})",
            hint="import more files, or try another --val-fraction or --seed",
        )


def open_input(
    path: Path,
    val_fraction: float | None,
    seed: int,
    column: str | None = None,
    elsewhere: Mapping[str, Path] = NOWHERE,
) -> PackInput:
    """`elsewhere`: of a split of the folder `path`, the corpus that is taken in its stead. Raises
    NotFoundError, DataError as `open_corpus`; UsageError for a fraction of what is split already.
    """
    folders = _split_folders(path)
    if not folders:
        fraction = VAL_FRACTION if val_fraction is None else val_fraction
        rule = SplitRule(seed, fraction) if fraction else None
        return PackInput(path, SPLITS[: 2 if rule else 1], (open_corpus(path, column),), rule)
    if val_fraction is not None:
        raise UsageError(
            f"{path}: is split already ({', '.join(folder.name for folder in folders)})",
            hint="leave --val-fraction out",
        )
    for folder in folders:
        if not _NAME.fullmatch(folder.name):
            raise DataError(
                f"{folder}: not a name for a split", hint="rename it: letters, digits, - and _"
            )
    places = [elsewhere.get(folder.name, folder) for folder in folders]
    corpora = tuple(open_corpus(place, column) for place in places)
    return PackInput(path, tuple(folder.name for folder in folders), corpora, None)


def _split_folders(path: Path) -> list[Path]:
    """Folders with corpora, where `path` holds no corpus itself: train, val and test first."""
    if not path.is_dir() or any(path.glob("*.parquet")):
        return []
    folders = {one.parent for one in path.glob("[!.]*/*.parquet")}
    for begun in path.glob(f"[!.]*/{WORK}/*"):
        if begun.name in _OF_A_CORPUS:  # which is not finished, and must not be left out
            folders.add(begun.parent.parent)
    folders = {one.with_name(one.name.removesuffix(HALF)) for one in folders}
    order = {name: number for number, name in enumerate(SPLITS)}
    return sorted(folders, key=lambda one: (order.get(one.name, len(order)), one.name))


def check_arguments(seq_len: int, val_fraction: float | None, shard_sequences: int) -> None:
    """Raise ConfigError."""
    if seq_len < 2:
        raise ConfigError(f"seq_len {seq_len} leaves nothing to predict", hint="use 2 or more")
    if val_fraction is not None and not 0 <= val_fraction < 1:
        raise ConfigError(
            f"val_fraction {val_fraction} is not between 0 and 1", hint=f"{VAL_FRACTION} is usual"
        )
    if not 0 < shard_sequences * seq_len < 2**31:
        raise ConfigError(
            f"shard_sequences {shard_sequences} x seq_len {seq_len} is not below 2^31 ids",
            hint="use fewer sequences per shard",
        )
