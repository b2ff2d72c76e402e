"""A corpus and a tokenizer in, packed token shards out, split by document into train and val.

    OUT/train/shard-00000.parquet ... manifest.json      OUT/val/...      OUT/manifest.json

The output is a pure function of (corpus text, tokenizer bytes, arguments). Manifests are written
last, so a killed run is visibly unfinished, and running it again gives the very same bytes.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from tokenizers import Tokenizer

from albor_core.data.pack.manifest import (
    MANIFEST_NAME,
    Manifest,
    Shard,
    load_manifest,
    shard_fields,
    write_manifest,
)
from albor_core.data.pack.output_folder import SPLITS, clear, only_packer, refuse_foreign
from albor_core.data.pack.shard_check import read_manifest, verify_shards
from albor_core.data.pack.shard_writer import Packer
from albor_core.data.pack.special_tokens import end_of_text, special_ids, tokenizer_file
from albor_core.data.pack.tokenizer import (
    decode_document,
    load_tokenizer,
    vocabulary_size,
)
from albor_core.data.progress import Progress
from albor_core.data.read.corpus import Corpus, CorpusHash, open_corpus
from albor_core.run.errors import AlborError, ConfigError, DataError, Problem
from albor_core.run.files.publish import publish_json, sha256_file

__all__ = ["Manifest", "Shard", "ShardReport", "pretokenize", "read_manifest", "verify_shards"]

DATASET_SCHEMA = "albor.dataset/1"
_BATCH_BYTES = 2 << 20  # text per call into the tokenizer: enough to keep every core busy
_BATCH_DOCUMENTS = 512
VAL_FRACTION = 0.05  # of the documents, held out for validation

T = TypeVar("T")


@dataclass(frozen=True)
class ShardReport:
    """What `pretokenize` made, or found already made."""

    out_dir: Path
    train: Manifest
    val: Manifest
    skipped: dict[str, int]
    """Reason -> documents left out: empty, over-long or not UTF-8 (`unusable`)."""
    reused: bool


@dataclass(frozen=True)
class _Recipe:
    """Everything the output depends on; equal recipes make equal bytes."""

    tokenizer_sha256: str
    corpus_sha256: str
    vocab_size: int
    end_of_text: int
    seq_len: int
    val_fraction: float
    seed: int
    shard_sequences: int


def pretokenize(
    corpus: Path,
    tokenizer: Path,
    out_dir: Path,
    *,
    seq_len: int,
    val_fraction: float = VAL_FRACTION,
    seed: int = 0,
    shard_sequences: int = 4096,
    eos: str | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> ShardReport:
    """Encode every document, pack rows of `seq_len` ids, write shards and manifests.

    Documents fall into train or val by name alone, except that a huge one always trains: see
    `largest_held_out`. They are joined by the token `eos`, or by the one that the tokenizer ends a
    text with (`end_of_text`); a sentinel spelled out inside a document is plain text.
    A complete output of the same inputs is reused; one of different inputs is refused unless
    `force`. A folder that was made for it goes again when it cannot be filled. `progress` is called
    with the documents done and the documents in all. Raises ConfigError for impossible arguments,
    DataError for a corpus that cannot fill both splits or changes meanwhile, InUseError while
    another process packs into `out_dir`, AlborError on a full disk.
    """
    _check_arguments(seq_len, val_fraction, shard_sequences)
    source, encoder = open_corpus(corpus), load_tokenizer(tokenizer)
    corpus_sha256, largest = _survey(source, seed, val_fraction)
    recipe = _Recipe(
        sha256_file(tokenizer_file(tokenizer)),
        corpus_sha256,
        vocabulary_size(encoder),
        end_of_text(encoder, tokenizer, eos),
        seq_len,
        val_fraction,
        seed,
        shard_sequences,
    )
    begin = special_ids(encoder, tokenizer).bos
    with only_packer(out_dir) as mark:
        if (done := _finished(out_dir, recipe, force)) is not None:
            return done
        refuse_foreign(out_dir, ours=force or mark.found)
        mark.write(f"{os.getpid()}\n")
        clear(out_dir)
        report = _pack(source, encoder, out_dir, recipe, largest, progress, begin)
        mark.write(f"{DATASET_SCHEMA}\n")  # a pid would make two equal outputs differ
        return report


@dataclass(frozen=True)
class ShardPlan:
    """What packing would read and write. It can be done where `problems` is empty.

    Tokens and sequences are estimates from the first documents; None where the corpus or the
    tokenizer cannot be read. `action`: write, replace, or keep what is made already.
    """

    documents: int | None
    text_bytes: int | None
    vocab_size: int | None
    bytes_per_token: float | None
    tokens: int | None
    sequences: int | None
    action: str
    problems: tuple[Problem, ...]


def plan_pretokenize(
    corpus: Path,
    tokenizer: Path,
    out_dir: Path,
    *,
    seq_len: int,
    val_fraction: float = VAL_FRACTION,
    seed: int = 0,
    shard_sequences: int = 4096,
    eos: str | None = None,
    force: bool = False,
) -> ShardPlan:
    """Read what `pretokenize` would read; write nothing, raise nothing that a user can cause."""
    problems: list[Problem] = []

    def attempt(field: str, ask: Callable[[], T]) -> T | None:
        try:
            return ask()
        except AlborError as error:
            problems.append(Problem(field, error.message, error.hint))
            return None

    attempt("seq_len", lambda: _check_arguments(seq_len, val_fraction, shard_sequences))
    source = attempt("corpus", lambda: open_corpus(corpus))
    encoder = attempt("tokenizer", lambda: load_tokenizer(tokenizer))
    vocab = None if encoder is None else vocabulary_size(encoder)
    density: float | None = None
    action = "replace" if (out_dir / MANIFEST_NAME).exists() else "write"
    if source is not None and encoder is not None and not problems:
        density = _bytes_per_token(source, encoder)
        survey = attempt("corpus", lambda: _survey(source, seed, val_fraction))
        end = attempt("tokenizer", lambda: end_of_text(encoder, tokenizer, eos))
        if survey is not None and end is not None:
            recipe = _Recipe(
                sha256_file(tokenizer_file(tokenizer)), survey[0], vocabulary_size(encoder), end,
                seq_len, val_fraction, seed, shard_sequences,
            )  # fmt: skip
            if attempt("out", lambda: _finished(out_dir, recipe, force)) is not None:
                action = "keep"
    made_here = force or action != "write"
    attempt("out", lambda: refuse_foreign(out_dir, ours=made_here))
    tokens, sequences = _estimate(source, density, seq_len)
    return ShardPlan(
        source.rows if source else None,
        source.text_bytes if source else None,
        vocab,
        density,
        tokens,
        sequences,
        action,
        tuple(dict.fromkeys(problems)),
    )


def _estimate(
    source: Corpus | None, bytes_per_token: float | None, seq_len: int
) -> tuple[int | None, int | None]:
    """Tokens and sequences."""
    if source is None or bytes_per_token is None:
        return None, None
    tokens = int(source.text_bytes / bytes_per_token)
    return tokens, tokens // seq_len


def _bytes_per_token(source: Corpus, encoder: Tokenizer) -> float | None:
    """Of the first documents, some 2 MiB of text."""
    texts: list[str] = []
    size = 0
    for _, data in source.documents():
        if (text := decode_document(data)) is not None:
            texts.append(text)
            size += len(data)
        if size >= _BATCH_BYTES:
            break
    tokens = sum(len(one.ids) for one in encoder.encode_batch(texts, add_special_tokens=False))
    return size / tokens if tokens else None


def is_validation(key: str, *, seed: int, val_fraction: float) -> bool:
    """Whether the document named `key` belongs to val: a pure function, blind to all others."""
    digest = hashlib.sha256(f"{seed}\0{key}".encode()).digest()
    return int.from_bytes(digest[:8], "big") < val_fraction * 2**64


def largest_held_out(documents: int, total_bytes: int, val_fraction: float) -> float:
    """Bytes beyond which a document always trains, whatever its name.

    One that outweighs the whole share of val (and ten average documents: small corpora have big
    shares) would make validation a measure of itself. In Python's standard library 756 kB of prose
    for the help system are more than half of all code held out.
    """
    return max(val_fraction * total_bytes, 10 * total_bytes / max(documents, 1))


def _check_arguments(seq_len: int, val_fraction: float, shard_sequences: int) -> None:
    if seq_len < 2:
        raise ConfigError(f"seq_len {seq_len} leaves nothing to predict", hint="use 2 or more")
    if not 0 < val_fraction < 1:
        raise ConfigError(
            f"val_fraction {val_fraction} is not between 0 and 1", hint=f"{VAL_FRACTION} is usual"
        )
    if not 0 < shard_sequences * seq_len < 2**31:
        raise ConfigError(
            f"shard_sequences {shard_sequences} x seq_len {seq_len} is not below 2^31 ids",
            hint="use fewer sequences per shard",
        )


def _survey(source: Corpus, seed: int, val_fraction: float) -> tuple[str, float]:
    """The corpus hash and `largest_held_out`; raises DataError when a split gets no document."""
    digest = CorpusHash()
    documents = Counter[bool]()
    held_out: list[int] = []
    total = 0
    for key, text in source.documents():
        digest.add(key, text)
        if decode_document(text) is not None:
            total += len(text)
            if is_validation(key, seed=seed, val_fraction=val_fraction):
                held_out.append(len(text))
            else:
                documents[False] += 1
    largest = largest_held_out(documents[False] + len(held_out), total, val_fraction)
    documents[True] = sum(size <= largest for size in held_out)
    documents[False] += len(held_out) - documents[True]
    for split, count in zip(SPLITS, (documents[False], documents[True]), strict=True):
        if count == 0:
            raise DataError(
                f"{source.path}: none of its {documents.total()} documents falls into {split} "
                f"(val_fraction {val_fraction}, seed {seed})",
                hint="import more files, or try another --val-fraction or --seed",
            )
    return digest.hexdigest(), largest


def _finished(out_dir: Path, recipe: _Recipe, force: bool) -> ShardReport | None:
    """The output that is already there, when it is complete and made from the same inputs."""
    file = out_dir / MANIFEST_NAME
    if force or not file.exists():
        return None
    try:
        before: dict[str, Any] = json.loads(file.read_bytes())
        differing = [k for k, v in asdict(recipe).items() if before["recipe"].get(k) != v]
        skipped = dict(before["skipped"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DataError(
            f"{file}: not a manifest of packed data: {error}",
            hint="choose another output directory, or --force to replace it",
        ) from error
    if differing:
        raise DataError(
            f"{out_dir}: holds data packed from other inputs ({', '.join(differing)} differ)",
            hint="choose another output directory, or --force to replace it",
        )
    try:
        if any(verify_shards(out_dir / split, hashes=False) for split in SPLITS):
            return None
        train, val = (load_manifest(out_dir / split) for split in SPLITS)
    except AlborError:  # damaged since; the same inputs give it back, byte for byte
        return None
    return ShardReport(out_dir, train, val, skipped, reused=True)


def _pack(
    source: Corpus,
    encoder: Tokenizer,
    out_dir: Path,
    recipe: _Recipe,
    largest: float,
    progress: Progress | None,
    begin: int | None,
) -> ShardReport:
    packers = {
        split: Packer(
            out_dir / split, seq_len=recipe.seq_len, shard_sequences=recipe.shard_sequences
        )
        for split in SPLITS
    }
    skipped: Counter[str] = Counter()
    digest = CorpusHash()
    done = 0
    encoder.encode_special_tokens = True
    encoder.no_truncation()
    encoder.no_padding()
    for batch in _batches(source, digest):
        texts = [(key, size, text) for key, size, text in batch if text is not None]
        skipped["unusable"] += len(batch) - len(texts)
        encoded = encoder.encode_batch_fast([t for _, _, t in texts], add_special_tokens=False)
        for (key, size, _), encoding in zip(texts, encoded, strict=True):
            held_out = size <= largest and is_validation(
                key, seed=recipe.seed, val_fraction=recipe.val_fraction
            )
            packers[SPLITS[held_out]].add(encoding.ids, recipe.end_of_text)
        done += len(batch)
        if progress is not None:
            progress(done, source.rows)
    if digest.hexdigest() != recipe.corpus_sha256:
        raise DataError(
            f"{source.path}: changed while it was being packed",
            hint="run the same command again once nothing writes to it",
        )
    return _seal(source, out_dir, recipe, packers, +skipped, begin)


def _batches(source: Corpus, digest: CorpusHash) -> Iterator[list[tuple[str, int, str | None]]]:
    """Documents as (key, bytes, text); the text of an unusable one is None."""
    batch: list[tuple[str, int, str | None]] = []
    size = 0
    for key, data in source.documents():
        digest.add(key, data)
        batch.append((key, len(data), decode_document(data)))
        size += len(data)
        if size >= _BATCH_BYTES or len(batch) >= _BATCH_DOCUMENTS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _seal(
    source: Corpus,
    out_dir: Path,
    recipe: _Recipe,
    packers: dict[str, Packer],
    skipped: Counter[str],
    begin: int | None,
) -> ShardReport:
    """Write the last shards, then the manifests: the two splits first, the one over both last."""
    for split, packer in packers.items():
        packer.finish()
        if packer.sequences == 0:
            raise DataError(
                f"{source.path}: the {packer.documents} documents of {split} do not fill one "
                f"sequence of {recipe.seq_len} tokens",
                hint="import more files, or use a smaller --seq-len or another --val-fraction",
            )
    train, val = (
        _seal_split(out_dir / split, split, recipe, packers[split], begin) for split in SPLITS
    )
    publish_json(
        out_dir / MANIFEST_NAME,
        {
            "schema": DATASET_SCHEMA,
            "recipe": asdict(recipe),
            "skipped": dict(skipped),
            "splits": {split.split: split.data_hash for split in (train, val)},
        },
    )
    return ShardReport(out_dir, train, val, dict(skipped), reused=False)


def _seal_split(
    directory: Path, split: str, recipe: _Recipe, packer: Packer, begin: int | None
) -> Manifest:
    return write_manifest(
        directory,
        {
            "split": split,
            "seq_len": recipe.seq_len,
            "vocab_size": recipe.vocab_size,
            "max_id": packer.max_id,
            "sequences": packer.sequences,
            "tokens": packer.sequences * recipe.seq_len,
            "documents": packer.documents,
            "dropped_tokens": packer.dropped_tokens,
            "tokenizer_sha256": recipe.tokenizer_sha256,
            "corpus_sha256": recipe.corpus_sha256,
            "eos_token_id": recipe.end_of_text,
            "bos_token_id": begin,
            "shards": shard_fields(tuple(packer.shards)),
        },
    )
