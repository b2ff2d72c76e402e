"""All that packed shards depend on, and whether a folder holds what a recipe would give."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from albor_core.config.choices import PackingName
from albor_core.data.mix.fim import sentinels_of
from albor_core.data.pack.manifest import MANIFEST_NAME, Manifest, load_manifest
from albor_core.data.pack.shard_check import verify_shards
from albor_core.data.pack.special_tokens import end_of_text, special_ids, tokenizer_file
from albor_core.data.pack.tokenizer import load_tokenizer, vocabulary_size
from albor_core.data.pack.work.inputs import PackInput
from albor_core.data.pack.work.pieces import CONCAT
from albor_core.data.stage.corpus import CorpusHash
from albor_core.data.stage.record import read_record
from albor_core.run.errors import AlborError, DataError
from albor_core.run.files.publish import sha256_file

_REPLACE_HINT = "choose another output directory, or --force to replace it"


@dataclass(frozen=True)
class PackRecipe:
    """Equal recipes and equal documents make equal bytes."""

    tokenizer_sha256: str
    vocab_size: int
    end_of_text: int
    seq_len: int
    val_fraction: float | None
    """None where the corpus came as splits, as is the seed."""
    seed: int | None
    shard_sequences: int
    sentinels: Mapping[str, int] | None = None
    """Word -> id, where documents were cut for fill-in-the-middle."""
    packing: PackingName | None = None
    """None where documents follow each other, as they all did once."""

    def settings(self) -> dict[str, Any]:
        """The settings for a record. Unused ones are left out: shards without sentinels do not
        mention them."""
        found = asdict(self)
        for name in ("sentinels", "packing"):
            if found[name] is None:
                del found[name]
        return found

    def fields(self, documents: str | dict[str, str]) -> dict[str, Any]:
        """The fields for a data set's manifest; `documents`: the hash of the corpus, or of each
        split.
        """
        return {**self.settings(), "corpus_sha256": documents}


@dataclass(frozen=True)
class PackTokenizer:
    """The tokenizer of a recipe."""

    path: Path
    encoder: Tokenizer
    sha256: str
    vocab_size: int
    end: int
    begin: int | None


def open_tokenizer(path: Path, eos: str | None) -> PackTokenizer:
    """The tokenizer with its end token. Raises as `load_tokenizer` and `end_of_text`."""
    encoder = load_tokenizer(path)
    end = end_of_text(encoder, path, eos)
    sha256, begin = sha256_file(tokenizer_file(path)), special_ids(encoder, path).bos
    return PackTokenizer(path, encoder, sha256, vocabulary_size(encoder), end, begin)


def recipe_of(
    source: PackInput,
    tokenizer: PackTokenizer,
    seq_len: int,
    seed: int,
    shard_sequences: int,
    packing: PackingName = CONCAT,
) -> PackRecipe:
    fraction = None if source.is_split else source.rule.val_fraction if source.rule else 0.0
    return PackRecipe(
        tokenizer.sha256,
        tokenizer.vocab_size,
        tokenizer.end,
        seq_len,
        fraction,
        None if source.is_split else seed,
        shard_sequences,
        _sentinels(source, tokenizer),
        None if packing == CONCAT else packing,
    )


def _sentinels(source: PackInput, tokenizer: PackTokenizer) -> dict[str, int] | None:
    """As the corpora's records say that documents were cut with. Raises DataError for one that the
    tokenizer does not have.
    """
    records = [read_record(corpus.path) for corpus in source.corpora]
    words = {word for record in records if record for word in sentinels_of(record.steps())}
    found: dict[str, int] = {}
    for word in sorted(words):
        number = tokenizer.encoder.token_to_id(word)
        if number is None:
            raise DataError(
                f"{tokenizer.path}: has no token {word!r}, with which documents of {source.path} "
                "were cut",
                hint="take another tokenizer, or cut with its sentinels: albor data fim --prefix",
            )
        found[word] = number
    return found or None


@dataclass(frozen=True)
class MadeBefore:
    """A whole output of the same inputs."""

    splits: dict[str, Manifest]
    skipped: dict[str, int]


def made_before(out_dir: Path, source: PackInput, recipe: PackRecipe) -> MadeBefore | None:
    """None where nothing is there, or what is there is damaged: the same inputs give it back, byte
    for byte. Raises DataError for an output of other inputs.
    """
    file = out_dir / MANIFEST_NAME
    if not file.exists():
        return None
    try:
        before: dict[str, Any] = json.loads(file.read_bytes())
        told = before["recipe"]
        differing = [k for k, value in asdict(recipe).items() if told.get(k) != value]
        skipped, names = dict(before["skipped"]), tuple(before["splits"])
        is_same = before.get("inputs") == source.content() or (
            told["corpus_sha256"] == documents_hash(source)
        )
    except AlborError:
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DataError(
            f"{file}: not a manifest of packed data: {error}", hint=_REPLACE_HINT
        ) from error
    if not is_same:
        differing.append("corpus_sha256")
    if differing:
        raise DataError(
            f"{out_dir}: holds data packed from other inputs "
            f"(not the same: {', '.join(differing)})",
            hint=_REPLACE_HINT,
        )
    if set(names) != set(source.names):
        return None
    try:
        if any(verify_shards(out_dir / split, hashes=False) for split in source.names):
            return None
        splits = {split: load_manifest(out_dir / split) for split in source.names}
    except AlborError:
        return None
    return MadeBefore(splits, skipped)


def documents_hash(source: PackInput) -> str | dict[str, str]:
    """The hash of the documents, independent of the layout of the files; reads all text."""
    found = []
    for corpus in source.corpora:
        digest = CorpusHash()
        for key, text in corpus.documents():
            digest.add(key, text)
        found.append(digest.hexdigest())
    return dict(zip(source.names, found, strict=True)) if source.is_split else found[0]
