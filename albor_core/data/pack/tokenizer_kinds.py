"""The kinds of tokenizers that are trained here, and the files that each leaves beside
tokenizer.json for readers of its own format.

bpe        byte-level BPE with GPT-2's pre-tokenizer: any text survives encode and decode
unigram    pieces with scores over the same bytes: any text survives; the scores differ in their
           last digits from training to training (the library adds them up in no fixed order)
wordpiece  words and "##" continuations, BERT's way with case kept: white space is not kept, and
           characters that training did not see are [UNK]
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

KINDS = ("bpe", "wordpiece", "unigram")
UNKNOWN = "[UNK]"
CONTINUES = "##"
_LEAST_OFTEN = 2  # what occurs once is not merged
_MOST_CHARACTERS = 1000  # of a WordPiece alphabet: the most frequent

Batches = Iterable[list[str]]

_FORMATS = {
    "bpe": ("merges.txt", "vocab.json"),
    "wordpiece": ("vocab.txt",),
    "unigram": ("unigram.json",),
}


def kind_specials(kind: str) -> tuple[str, ...]:
    """Special tokens that a kind needs besides the common ones."""
    return (UNKNOWN,) if kind == "wordpiece" else ()


def train_kind(kind: str, batches: Batches, *, vocab_size: int, specials: list[str]) -> Tokenizer:
    """Train on batches of texts. Specials get the first ids. A WordPiece goes through `batches`
    twice.
    """
    if kind == "wordpiece":
        return _wordpiece(batches, vocab_size, specials)
    tokenizer = Tokenizer(models.BPE() if kind == "bpe" else models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer: trainers.BpeTrainer | trainers.UnigramTrainer
    if kind == "bpe":
        trainer = trainers.BpeTrainer(
            vocab_size=vocab_size,
            min_frequency=_LEAST_OFTEN,
            special_tokens=specials,
            initial_alphabet=alphabet,
            show_progress=False,
        )
    else:
        trainer = trainers.UnigramTrainer(
            vocab_size=vocab_size,
            special_tokens=specials,
            initial_alphabet=alphabet,
            show_progress=False,
        )
    tokenizer.train_from_iterator(batches, trainer)
    return tokenizer


def _wordpiece(batches: Batches, vocab_size: int, specials: list[str]) -> Tokenizer:
    """The trainer numbers continued characters in no fixed order, and merges of equal frequency go
    by number: they are given to it as special tokens, and made plain ones again.
    """
    characters: Counter[str] = Counter()
    for batch in batches:
        for text in batch:
            characters.update(text)
    kept = sorted(characters.items(), key=lambda one: (-one[1], one[0]))
    visible = [one for one, _ in kept if not one.isspace()]
    alphabet = sorted(visible[:_MOST_CHARACTERS])
    continued = [CONTINUES + one for one in alphabet]
    trained = _words(Tokenizer(models.WordPiece(unk_token=UNKNOWN)))
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocab_size,
        min_frequency=_LEAST_OFTEN,
        special_tokens=[*specials, *continued],
        initial_alphabet=alphabet,
        limit_alphabet=len(alphabet),
        continuing_subword_prefix=CONTINUES,
        show_progress=False,
    )
    trained.train_from_iterator(batches, trainer)
    vocabulary = trained.get_vocab(with_added_tokens=False)
    tokenizer = _words(Tokenizer(models.WordPiece(vocab=vocabulary, unk_token=UNKNOWN)))
    tokenizer.add_special_tokens(specials)
    return tokenizer


def _words(tokenizer: Tokenizer) -> Tokenizer:
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(prefix=CONTINUES, cleanup=False)
    return tokenizer


def names_beside(kind: str, target: Path) -> list[Path]:
    """The paths that `files_beside` would write."""
    prefix = "" if target.name == "tokenizer.json" else f"{target.stem}-"
    return [target.with_name(f"{prefix}{name}") for name in _FORMATS[kind]]


def files_beside(tokenizer: Tokenizer, target: Path) -> Iterator[tuple[Path, bytes]]:
    """vocab.json and merges.txt of a BPE, vocab.txt of a WordPiece, unigram.json; they begin with
    the name of `target` where that is not tokenizer.json.
    """
    prefix = None if target.name == "tokenizer.json" else target.stem
    with tempfile.TemporaryDirectory() as folder:
        for name in sorted(tokenizer.model.save(folder, prefix)):
            yield target.with_name(Path(name).name), Path(name).read_bytes()
