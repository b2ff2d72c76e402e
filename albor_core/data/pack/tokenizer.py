"""Byte-level BPE: train one on a corpus, load one, check one.

GPT-2's pre-tokenizer, since `tokenizer.json` then means the same to every reader (transformers,
llama.cpp's "gpt-2"). Specials come first, at fixed ids, so a model never moves its end-of-text
row when the vocabulary grows. Any bytes that are UTF-8 survive encode and decode.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from albor_core.data.pack.special_tokens import END_OF_TEXT, PAD, end_of_text, tokenizer_file
from albor_core.data.progress import Progress
from albor_core.data.read.corpus import Corpus, open_corpus
from albor_core.run.errors import (
    AlborError,
    ConfigError,
    DataError,
    NotFoundError,
    Problem,
    UsageError,
)
from albor_core.run.files.publish import publishing

FIM_SENTINELS = ("<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>")
BYTE_SYMBOLS = 256
MOST_TOKENS = 1 << 20  # several times any in use; room for what is asked is made at once
MAX_DOCUMENT_BYTES = 8 << 20  # encoding costs ~100 bytes of memory per byte of text

_TEXTS_PER_BATCH = 256
_MAX_TOKENIZER_BYTES = 256 << 20
_TRAIN_HINT = "train one with: albor tokenizer apply CORPUS --vocab-size N --out FILE"

# Each once broke a tokenizer somewhere: combining marks, joiners, surrogate-range neighbours,
# right-to-left, lone CR, runs of blanks, an unassigned code point, text that looks like a special.
TRICKY_TEXTS = (
    "def f(x):\n    return x ** 2\n",
    "\tif a:\r\n\t\tpass\r",
    "   \n\n\n  \t  ",
    "e\u0301 \u00e9 \u1e9b\u0323 \ufb01",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f1ea\U0001f1f8",
    "\u0645\u0631\u062d\u0628\u0627 \u202e abc \u4f60\u597d\u3002",
    "\ud7ff\ue000\uffff\U0010ffff\U000e0fff",
    "\ufeff\u0000\u0001\u007f\u0085\u2028",
    "0123456789 1_000_000 0x1F 1e-5",
    END_OF_TEXT + " is text here",
)


@dataclass(frozen=True)
class TokenizerReport:
    """What training wrote. `vocab_size` is below the request when the corpus ran out of merges."""

    out: Path
    vocab_size: int
    requested_vocab_size: int
    specials: dict[str, int]
    documents: int
    sha256: str
    """Of the bytes of tokenizer.json."""
    reused: bool = False
    """`out` held these very bytes already and was left alone."""


@dataclass(frozen=True)
class TokenizerPlan:
    """What `train_tokenizer` would do, and everything that would stop it."""

    out: Path
    vocab_size: int
    specials: tuple[str, ...]
    documents: int | None
    text_bytes: int | None
    problems: tuple[Problem, ...]


def special_tokens(fim: bool) -> tuple[str, ...]:
    """The special tokens in id order, starting at id 0."""
    return (END_OF_TEXT, PAD, *(FIM_SENTINELS if fim else ()))


def plan_tokenizer(corpus: Path, out: Path, *, vocab_size: int, fim: bool = True) -> TokenizerPlan:
    """Look at footers and permissions only; change nothing, raise nothing a user can cause."""
    problems: list[Problem] = []
    opened: Corpus | None = None
    try:
        opened = open_corpus(corpus)
    except AlborError as error:
        problems.append(Problem("corpus", error.message, error.hint))
    problems += _vocab_problems(vocab_size, fim)
    target = tokenizer_file(out)
    problems += _output_problems(target)
    return TokenizerPlan(
        target,
        vocab_size,
        special_tokens(fim),
        opened.rows if opened else None,
        opened.text_bytes if opened else None,
        tuple(problems),
    )


def train_tokenizer(
    corpus: Path,
    out: Path,
    *,
    vocab_size: int,
    fim: bool = True,
    min_frequency: int = 2,
    force: bool = False,
    progress: Progress | None = None,
) -> TokenizerReport:
    """Train byte-level BPE on the corpus and write `tokenizer_file(out)` atomically.

    The same corpus and arguments give the same bytes. A merge must occur `min_frequency` times.
    Documents above MAX_DOCUMENT_BYTES and invalid UTF-8 are left out. Raises ConfigError for a
    vocabulary too small to hold every byte, UsageError where another file would be replaced (unless
    `force`), DataError when no text is left. `progress` is called with the documents read and their
    number; the merges follow, without a word.
    """
    if problems := _vocab_problems(vocab_size, fim):
        raise ConfigError(problems[0].message, hint=problems[0].hint, problems=tuple(problems))
    target = tokenizer_file(out)
    texts = _Texts(open_corpus(corpus), progress)
    if not force and target.is_file() and _cannot_come_of(target, vocab_size):
        raise _is_another(target)  # before the minutes that training may take
    specials = special_tokens(fim)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=min_frequency,
        special_tokens=list(specials),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts.batches(), trainer)
    if texts.documents == 0:
        raise DataError(
            f"{corpus}: no document with valid text to train on",
            hint="import it again: albor data import DIR --out FILE.parquet",
        )
    data = tokenizer.to_str(pretty=True).encode("utf-8")
    reused = target.is_file() and target.read_bytes() == data
    if not reused:
        if target.is_file() and not force:
            raise _is_another(target)
        with publishing(target) as temp:
            temp.write_bytes(data)
    return TokenizerReport(
        target,
        tokenizer.get_vocab_size(),
        vocab_size,
        {name: number for number, name in enumerate(specials)},
        texts.documents,
        hashlib.sha256(data).hexdigest(),
        reused,
    )


def _cannot_come_of(target: Path, vocab_size: int) -> bool:
    """Whether no corpus at all would make what is at `target` with a vocabulary of this size."""
    try:
        return vocabulary_size(load_tokenizer(target)) > vocab_size
    except AlborError:
        return True


def _is_another(target: Path) -> UsageError:
    return UsageError(
        f"{target}: exists and is another tokenizer than this corpus and vocabulary give",
        hint="choose another --out, or --force to replace it (shards packed with it need packing"
        " again)",
    )


def load_tokenizer(path: Path) -> Tokenizer:
    """The tokenizer in `path` (a tokenizer.json, or the directory that holds one).

    Only JSON is read, never code. Raises NotFoundError or DataError naming the file.
    """
    file = tokenizer_file(path)
    if path.is_file() and file != path:
        raise DataError(
            f"{path}: not a tokenizer: neither a .json file nor a folder with a tokenizer.json",
            hint=_TRAIN_HINT,
        )
    try:
        with file.open("rb") as stream:
            data = stream.read(_MAX_TOKENIZER_BYTES + 1)
    except FileNotFoundError as error:
        missing = "no tokenizer.json in this folder" if path.is_dir() else "no such tokenizer"
        raise NotFoundError(f"{path}: {missing}", hint=_TRAIN_HINT) from error
    except OSError as error:
        raise DataError(f"{file}: cannot be read: {error.strerror}", hint=_TRAIN_HINT) from error
    if len(data) > _MAX_TOKENIZER_BYTES:
        raise DataError(f"{file}: larger than {_MAX_TOKENIZER_BYTES} bytes", hint=_TRAIN_HINT)
    try:
        return Tokenizer.from_str(data.decode("utf-8"))
    except Exception as error:  # tokenizers raises bare Exception for anything it cannot parse
        raise DataError(f"{file}: not a tokenizer.json: {error}", hint=_TRAIN_HINT) from error


def vocabulary_size(tokenizer: Tokenizer) -> int:
    """Largest id plus one: the rows an embedding needs, also when ids have gaps."""
    return max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1) + 1


def check_tokenizer(path: Path, corpus: Path | None = None) -> dict[str, Any]:
    """Facts about a tokenizer, as strict JSON values; `problems` is empty when it is fit for use.

    Encodes and decodes TRICKY_TEXTS and, given a corpus, its first megabytes, from which
    `bytes_per_token` comes (null without one). Raises what `load_tokenizer` and `open_corpus` do.
    """
    file = tokenizer_file(path)
    tokenizer = load_tokenizer(path)
    specials = {name: tokenizer.token_to_id(name) for name in special_tokens(fim=True)}
    tokenizer.encode_special_tokens = True  # documents are data: a sentinel in them is plain text
    samples = [*TRICKY_TEXTS, *(_sample(corpus) if corpus else ())]
    encoded = tokenizer.encode_batch(samples, add_special_tokens=False)
    failed = [
        text
        for text, encoding in zip(samples, encoded, strict=True)
        if tokenizer.decode(encoding.ids, skip_special_tokens=False) != text
    ]
    tail = encoded[len(TRICKY_TEXTS) :]
    tokens = sum(len(encoding.ids) for encoding in tail)
    size = sum(len(text.encode("utf-8")) for text in samples[len(TRICKY_TEXTS) :])
    return {
        "path": str(file),
        "sha256": hashlib.sha256(file.read_bytes()).hexdigest(),
        "vocab_size": vocabulary_size(tokenizer),
        "specials": specials,
        "samples": len(samples),
        "failed": [text[:80] for text in failed],
        "bytes_per_token": size / tokens if tokens else None,
        "problems": [str(p) for p in _fitness_problems(tokenizer, path, failed)],
    }


class _Texts:
    """Feeds a trainer, and counts what it fed."""

    def __init__(self, corpus: Corpus, progress: Progress | None = None) -> None:
        self._corpus, self._progress = corpus, progress
        self.documents = 0

    def batches(self) -> Iterator[list[str]]:
        batch: list[str] = []
        for _, data in self._corpus.documents():
            if (text := decode_document(data)) is None:
                continue
            self.documents += 1
            batch.append(text)
            if len(batch) == _TEXTS_PER_BATCH:
                yield batch
                batch = []
                if self._progress is not None:
                    self._progress(self.documents, self._corpus.rows)
        if batch:
            yield batch


def decode_document(data: bytes) -> str | None:
    """The text, or None for what nothing here trains on: empty, over-long or invalid UTF-8."""
    if not data or len(data) > MAX_DOCUMENT_BYTES:
        return None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return None


def _sample(corpus: Path, limit_bytes: int = 2 << 20) -> Iterator[str]:
    taken = 0
    for _, data in open_corpus(corpus).documents():
        if (text := decode_document(data)) is None:
            continue
        yield text
        taken += len(data)
        if taken >= limit_bytes:
            return


def _vocab_problems(vocab_size: int, fim: bool) -> list[Problem]:
    floor = BYTE_SYMBOLS + len(special_tokens(fim))
    if vocab_size > MOST_TOKENS:
        message = f"vocab_size {vocab_size} is too large"
        return [Problem("vocab_size", message, f"use {MOST_TOKENS} or less")]
    if vocab_size >= floor:
        return []
    return [
        Problem(
            "vocab_size",
            f"vocab_size {vocab_size} cannot hold {BYTE_SYMBOLS} bytes and "
            f"{len(special_tokens(fim))} special tokens",
            f"use {floor} or more",
        )
    ]


def _output_problems(target: Path) -> list[Problem]:
    if target.is_dir():
        return [Problem("output", f"{target} is a directory", "choose another output")]
    near = next(parent for parent in target.absolute().parents if parent.exists())
    if near.is_dir() and os.access(near, os.W_OK | os.X_OK):
        return []
    return [Problem("output", f"{near} is not a writable directory", "choose another output")]


def _fitness_problems(tokenizer: Tokenizer, path: Path, failed: list[str]) -> Iterator[Problem]:
    file = tokenizer_file(path)
    try:
        end_of_text(tokenizer, path)
    except DataError as error:
        yield Problem("end of text", error.message, error.hint)
    if failed:
        message = f"{len(failed)} samples change when encoded and decoded"
        yield Problem("round trip", message, _TRAIN_HINT, str(file))
