"""Tokenizers: train one on a corpus, load one.

`tokenizer.json` means the same to every reader (transformers, llama.cpp). Specials come first, at
fixed ids, so a model never moves its end-of-text row when the vocabulary grows.
"""

from __future__ import annotations

import hashlib
import math
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer

from albor_core.data.mix.fim import MARKS
from albor_core.data.pack.foreign_tokenizer import TRAIN_HINT, in_words, opened_plainly
from albor_core.data.pack.special_tokens import END_OF_TEXT, PAD, tokenizer_file
from albor_core.data.pack.tokenizer_kinds import files_beside, kind_specials, train_kind
from albor_core.data.progress import Progress
from albor_core.data.stage.corpus import open_corpus
from albor_core.run.errors import (
    AlborError,
    ConfigError,
    DataError,
    NotFoundError,
    Problem,
    UsageError,
)
from albor_core.run.files.publish import publishing

BYTE_SYMBOLS = 256
MOST_TOKENS = 1 << 20  # several times any in use; room for what is asked is made at once
MAX_DOCUMENT_BYTES = 8 << 20  # encoding costs ~100 bytes of memory per byte of text

ESTIMATE_BYTES = (1 << 18, 1 << 20)  # of text that a plan trains on
_TEXTS_PER_BATCH = 256
_MAX_TOKENIZER_BYTES = 256 << 20


@dataclass(frozen=True)
class TokenizerReport:
    """The result of a training. `vocab_size` is below the request when the corpus ran out of
    merges."""

    out: Path
    vocab_size: int
    requested_vocab_size: int
    kind: str
    specials: dict[str, int]
    documents: int
    sha256: str
    """Of the bytes of tokenizer.json."""
    files: tuple[str, ...] = ()
    """Beside it, by name: the vocabulary in the kind's own format."""
    reused: bool = False
    """`out` held these very bytes already and was left alone."""


@dataclass(frozen=True)
class TokenizerPlan:
    """What `train_tokenizer` would do, and everything that would stop it."""

    out: Path
    vocab_size: int
    kind: str
    specials: tuple[str, ...]
    documents: int | None
    text_bytes: int | None
    seconds: float | None
    """Estimated from two parts of the corpus; None where there are problems."""
    problems: tuple[Problem, ...]
    sampled: TextFigures | None = None
    """Of the beginning of the text, which was looked at."""
    lines: int | None = None
    """That are trained on: of all the text as its sample has them, or the most that were asked."""


@dataclass(frozen=True)
class TextFigures:
    """The composition of a text."""

    bytes: int
    lines: int
    unique_characters: int
    is_all: bool


def special_tokens(fim: bool, kind: str = "bpe") -> tuple[str, ...]:
    """The special tokens in id order, starting at id 0."""
    return (END_OF_TEXT, PAD, *(MARKS if fim else ()), *kind_specials(kind))


def plan_tokenizer(
    corpus: Path | Sequence[Path],
    out: Path,
    *,
    vocab_size: int,
    kind: str = "bpe",
    fim: bool = True,
    max_lines: int | None = None,
) -> TokenizerPlan:
    """Look at footers and permissions, and train on small parts to tell how long it takes; change
    nothing, raise nothing a user can cause.
    """
    problems: list[Problem] = []
    opened = None
    try:
        opened = _Inputs(corpus, max_lines)
    except AlborError as error:
        problems.append(Problem("corpus", error.message, error.hint))
    problems += _vocab_problems(vocab_size, fim, kind)
    target = tokenizer_file(out)
    problems += _output_problems(target)
    seconds: float | None = None
    sampled, lines = None, None
    if opened is not None and not problems:
        try:
            sampled = opened.figures(ESTIMATE_BYTES[-1])
            lines = opened.lines(sampled)
            size = sampled.bytes * lines / max(1, sampled.lines)
            seconds = _estimate(opened, size, kind, vocab_size, list(special_tokens(fim, kind)))
        except AlborError as error:
            problems.append(Problem("corpus", error.message, error.hint))
    return TokenizerPlan(
        target,
        vocab_size,
        kind,
        special_tokens(fim, kind),
        opened.rows if opened else None,
        opened.text_bytes if opened else None,
        seconds,
        tuple(problems),
        sampled,
        lines,
    )


class _Inputs:
    """One corpus or several, one behind the other, up to a number of lines."""

    def __init__(self, given: Path | Sequence[Path], max_lines: int | None) -> None:
        """Open each corpus. Raises as `open_corpus`; UsageError for none."""
        paths = [given] if isinstance(given, Path) else [*given]
        if not paths:
            raise UsageError("no corpus", hint="albor tokenizer apply CORPUS --vocab-size N -o OUT")
        self.corpora = [open_corpus(path) for path in paths]
        self.max_lines = max_lines

    @property
    def rows(self) -> int:
        return sum(corpus.rows for corpus in self.corpora)

    @property
    def text_bytes(self) -> int:
        return sum(corpus.text_bytes for corpus in self.corpora)

    def texts(self) -> Iterator[str]:
        """Texts that can be trained on; the last is cut at the limit of lines."""
        left = self.max_lines
        for corpus in self.corpora:
            for _, data in corpus.documents():
                if (text := decode_document(data)) is None:
                    continue
                if left is not None:
                    if _lines(text) > left:
                        text = "\n".join(text.split("\n", left)[:left]) + "\n"
                    left -= _lines(text)
                yield text
                if left == 0:
                    return

    def figures(self, most: int) -> TextFigures:
        """The composition of the first `most` bytes of text, or some more."""
        size = lines = 0
        letters: set[str] = set()
        for text in self.texts():
            size, lines = size + len(text.encode()), lines + _lines(text)
            letters.update(text)
            if size >= most:
                return TextFigures(size, lines, len(letters), is_all=False)
        return TextFigures(size, lines, len(letters), is_all=True)

    def lines(self, sample: TextFigures) -> int:
        """How many are trained on, counted in the sample and estimated for the rest."""
        if sample.is_all or not sample.bytes:
            return sample.lines
        found = round(sample.lines * max(self.text_bytes, sample.bytes) / sample.bytes)
        return found if self.max_lines is None else min(found, self.max_lines)


def _lines(text: str) -> int:
    return text.count("\n") + (not text.endswith("\n"))


def _estimate(
    corpus: _Inputs, trained_bytes: float, kind: str, vocab_size: int, specials: list[str]
) -> float | None:
    """Seconds, by the power of size at which two parts of the corpus' beginning grow: distinct
    words, and with them the work of merging, grow more slowly than text.
    """
    texts: list[str] = []
    size, found = 0, list[tuple[int, float]]()
    wanted = iter(ESTIMATE_BYTES)
    goal = next(wanted)
    for text in corpus.texts():
        texts.append(text)
        size += len(text.encode())
        if size >= goal:
            found.append((size, _timed(kind, texts, vocab_size, specials)))
            if (following := next(wanted, None)) is None:
                break
            goal = following
    if not found:
        return _timed(kind, texts, vocab_size, specials) if texts else None
    size, seconds = found[-1]
    power = 1.0
    if len(found) == 2:
        (less, faster), (more, slower) = found
        power = min(1.0, max(0.5, math.log(slower / faster) / math.log(more / less)))
    return float(seconds * max(1.0, trained_bytes / size) ** power)


def _timed(kind: str, texts: list[str], vocab_size: int, specials: list[str]) -> float:
    began = time.monotonic()
    train_kind(kind, [texts], vocab_size=vocab_size, specials=specials)
    return max(time.monotonic() - began, 1e-6)


def train_tokenizer(
    corpus: Path | Sequence[Path],
    out: Path,
    *,
    vocab_size: int,
    kind: str = "bpe",
    fim: bool = True,
    max_lines: int | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> TokenizerReport:
    """Train a tokenizer of this kind (tokenizer_kinds.py) on the corpus and write
    `tokenizer_file(out)` atomically, after the files beside it.

    The same corpus and arguments give the same bytes, but for unigram. A merge must occur
    twice. Documents above MAX_DOCUMENT_BYTES and invalid UTF-8 are left out.
    Raises ConfigError for a vocabulary too small to hold every byte, UsageError where another file
    would be replaced (unless `force`), DataError when no text is left. `progress` is called with
    the documents read and their number; the merges follow, without a word.
    """
    if problems := _vocab_problems(vocab_size, fim, kind):
        raise ConfigError(problems[0].message, hint=problems[0].hint, problems=tuple(problems))
    target = tokenizer_file(out)
    texts = _Texts(_Inputs(corpus, max_lines), progress)
    if not force:
        refuse_another(target, vocab_size, kind)  # before the minutes that training may take
    specials = special_tokens(fim, kind)
    tokenizer = train_kind(kind, texts, vocab_size=vocab_size, specials=list(specials))
    if texts.documents == 0:
        raise DataError(
            f"{texts.name}: no document with valid text to train on",
            hint="import it again: albor data import DIR --out FILE.parquet",
        )
    data = tokenizer.to_str(pretty=True).encode("utf-8")
    made = {**dict(files_beside(tokenizer, target)), target: data}
    missing = {
        file: one for file, one in made.items() if not file.is_file() or file.read_bytes() != one
    }
    if not force and (others := [file for file in missing if file.is_file()]):
        raise _is_another(others[0], kind)
    for file, one in missing.items():  # tokenizer.json is the last
        with publishing(file) as temp:
            temp.write_bytes(one)
    return TokenizerReport(
        target,
        tokenizer.get_vocab_size(),
        vocab_size,
        kind,
        {name: number for number, name in enumerate(specials)},
        texts.documents,
        hashlib.sha256(data).hexdigest(),
        tuple(file.name for file in made if file != target),
        reused=not missing,
    )


def refuse_another(out: Path, vocab_size: int, kind: str) -> None:
    """Raise UsageError if `tokenizer_file(out)` is a file that no corpus would make."""
    target = tokenizer_file(out)
    if target.is_file() and _cannot_come_of(target, vocab_size, kind):
        raise _is_another(target, kind)


def _cannot_come_of(target: Path, vocab_size: int, kind: str) -> bool:
    """Whether no corpus at all would make what is at `target` with a vocabulary of this size, or
    none twice.
    """
    if kind == "unigram":
        return True
    try:
        return vocabulary_size(load_tokenizer(target)) > vocab_size
    except AlborError:
        return True


def _is_another(target: Path, kind: str) -> UsageError:
    what = "exists and is another tokenizer than this corpus and vocabulary give"
    if kind == "unigram":
        what = "exists, and training a unigram again gives other bytes"
    return UsageError(
        f"{target}: {what}",
        hint="choose another --out, or --force to replace it (shards packed with it need packing"
        " again)",
    )


def load_tokenizer(path: Path) -> Tokenizer:
    """The tokenizer in `path` (a tokenizer.json, or the directory that holds one), without what
    `not_applied` tells of: a text is all of its tokens and no others, the same every time.

    Only JSON is read, never code. Raises NotFoundError or DataError naming the file.
    """
    file = tokenizer_file(path)
    if path.is_file() and file != path:
        raise DataError(
            f"{path}: not a tokenizer: neither a .json file nor a folder with a tokenizer.json",
            hint=TRAIN_HINT,
        )
    try:
        with file.open("rb") as stream:
            data = stream.read(_MAX_TOKENIZER_BYTES + 1)
    except FileNotFoundError as error:
        missing = "no tokenizer.json in this folder" if path.is_dir() else "no such tokenizer"
        raise NotFoundError(f"{path}: {missing}", hint=TRAIN_HINT) from error
    except OSError as error:
        raise DataError(f"{file}: cannot be read: {error.strerror}", hint=TRAIN_HINT) from error
    if len(data) > _MAX_TOKENIZER_BYTES:
        raise DataError(f"{file}: larger than {_MAX_TOKENIZER_BYTES} bytes", hint=TRAIN_HINT)
    try:
        return in_words(lambda: opened_plainly(data.decode("utf-8")), file)
    except AlborError:
        raise
    except Exception as error:  # tokenizers raises bare Exception for anything it cannot parse
        raise DataError(f"{file}: not a tokenizer.json: {error}", hint=TRAIN_HINT) from error


def vocabulary_size(tokenizer: Tokenizer) -> int:
    """Largest id plus one: the rows an embedding needs, also when ids have gaps."""
    return max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1) + 1


class _Texts:
    """Feeds a trainer, and counts what it fed."""

    def __init__(self, corpus: _Inputs, progress: Progress | None = None) -> None:
        self._corpus, self._progress = corpus, progress
        self.documents = 0

    @property
    def name(self) -> str:
        return ", ".join(str(one.path) for one in self._corpus.corpora)

    def __iter__(self) -> Iterator[list[str]]:
        self.documents = 0
        batch: list[str] = []
        for text in self._corpus.texts():
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


def _vocab_problems(vocab_size: int, fim: bool, kind: str) -> list[Problem]:
    specials = len(special_tokens(fim, kind))
    floor = BYTE_SYMBOLS + specials
    if vocab_size > MOST_TOKENS:
        message = f"vocab_size {vocab_size} is too large"
        return [Problem("vocab_size", message, f"use {MOST_TOKENS} or less")]
    if vocab_size >= floor:
        return []
    return [
        Problem(
            "vocab_size",
            f"vocab_size {vocab_size} cannot hold {BYTE_SYMBOLS} bytes and "
            f"{specials} special tokens",
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
