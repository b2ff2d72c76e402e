"""What packing would read, write and take, before anything is written."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from albor_core.config.choices import PackingName
from albor_core.data.pack.manifest import MANIFEST_NAME
from albor_core.data.pack.output_folder import check_folder, refuse_foreign
from albor_core.data.pack.shard_writer import shard_size
from albor_core.data.pack.tokenizer import decode_document
from albor_core.data.pack.work.inputs import PackInput, check_arguments, open_input
from albor_core.data.pack.work.pieces import CONCAT, PACKINGS, Stretch, wholeness
from albor_core.data.pack.work.recipe import (
    PackTokenizer,
    made_before,
    open_tokenizer,
    recipe_of,
)
from albor_core.data.stage.stage import history_of, refuse_overlap, spread
from albor_core.data.stage.units import read_unit, units_of
from albor_core.outputs.place import OutputPlace
from albor_core.run.errors import AlborError, Problem

_SAMPLE_BYTES = 2 << 20
_STRETCH = 16 << 10  # characters
_BYTES_OF_MANIFEST = 2300  # of a split, without what its corpus says of itself

T = TypeVar("T")


@dataclass(frozen=True)
class ShardPlan:
    """What packing would read and write. It can be done where `problems` is empty.

    Tokens, sequences and bytes of disk (while it works, the shards included) are estimates from
    text all over the corpora; seconds (of encoding, on the cores here) and shares (of the documents
    those that are cut, of the rows those that begin with a document) from the first documents; None
    where the corpus or the tokenizer cannot be read. `action`: write, resume,
    replace, or keep what is made already.
    """

    splits: tuple[str, ...]
    documents: int | None
    text_bytes: int | None
    vocab_size: int | None
    bytes_per_token: float | None = None
    tokens: int | None = None
    sequences: int | None = None
    seconds: float | None = None
    disk_bytes: int | None = None
    packing: PackingName = CONCAT
    share_cut: float | None = None
    share_from_start: float | None = None
    action: str = "write"
    problems: tuple[Problem, ...] = ()
    out_bytes: int | None = None
    """Of the output's files, as the tokens of that text pack."""


def plan_pretokenize(
    corpus: Path,
    tokenizer: Path,
    out_dir: Path,
    *,
    seq_len: int,
    val_fraction: float | None = None,
    seed: int = 0,
    shard_sequences: int = 4096,
    eos: str | None = None,
    packing: PackingName = CONCAT,
    force: bool = False,
    column: str | None = None,
    sample_bytes: int = _SAMPLE_BYTES,
) -> ShardPlan:
    """Read what `pretokenize` would read; write nothing, raise nothing that a user can cause."""
    trial = _Trial()
    trial.ask("seq_len", lambda: check_arguments(seq_len, val_fraction, shard_sequences))
    source = trial.ask("corpus", lambda: open_input(corpus, val_fraction, seed, column))
    encoder = trial.ask("tokenizer", lambda: open_tokenizer(tokenizer, eos))
    action = _action(out_dir)
    trial.ask("out", lambda: check_folder(out_dir))
    sample: _Sample | None = None
    if source is not None and encoder is not None and not trial.problems:
        recipe = recipe_of(source, encoder, seq_len, seed, shard_sequences, packing)
        sample = trial.ask("corpus", lambda: _sample(source, encoder, sample_bytes))
        trial.ask("corpus", source.check_split)
        for one in source.corpora:
            trial.ask("out", lambda one=one: refuse_overlap(one.path, out_dir))  # type: ignore[misc]
        made = None if force else trial.ask("out", lambda: made_before(out_dir, source, recipe))
        action = action if made is None else "keep"
    if source is not None:
        trial.ask("out", lambda: refuse_foreign(out_dir, source.names, force=force))
    plan = ShardPlan(
        source.names if source else (),
        source.rows if source else None,
        source.text_bytes if source else None,
        encoder.vocab_size if encoder else None,
        packing=packing,
        action=action,
        problems=tuple(dict.fromkeys(trial.problems)),
    )
    if sample is None or source is None:
        return plan
    plan = _with_estimates(plan, sample, seq_len)
    size = _size(plan, sample, seq_len, shard_sequences)
    told = (history_of(source.corpus_of(name)) for name in source.names)
    beside = sum(_BYTES_OF_MANIFEST + len(json.dumps(one, indent=1)) for one in told)
    return replace(plan, out_bytes=None if size is None else size + beside)


def _size(plan: ShardPlan, sample: _Sample, seq_len: int, shard_sequences: int) -> int | None:
    """The size of the shards, estimated from the packed whole rows of the sample."""
    ids = sample.ids[: len(sample.ids) // seq_len * seq_len]
    if plan.tokens is None or plan.documents is None or not len(ids):
        return None
    empty = shard_size(ids[:0], seq_len)
    tokens = plan.tokens + plan.documents  # with the end of each
    shards = max(len(plan.splits), tokens // (seq_len * shard_sequences))
    parts = np.split(ids, range(seq_len * shard_sequences, len(ids), seq_len * shard_sequences))
    size = sum(shard_size(part, seq_len) - empty for part in parts)
    return round(size / len(ids) * tokens) + empty * shards


class _Trial:
    """Tries one thing after another; what the user can have caused is kept and ends nothing."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []

    def ask(self, field: str, question: Callable[[], T]) -> T | None:
        """The answer; None where it is a problem of `field`."""
        try:
            return question()
        except AlborError as error:
            self.problems.append(Problem(field, error.message, error.hint))
            return None


def _action(out_dir: Path) -> str:
    if (out_dir / MANIFEST_NAME).exists():
        return "replace"
    return "resume" if (OutputPlace(out_dir).work / "encoded").exists() else "write"


def _with_estimates(plan: ShardPlan, sample: _Sample, seq_len: int) -> ShardPlan:
    density = sample.stretched / len(sample.ids)
    plan = replace(plan, bytes_per_token=density)
    if not plan.text_bytes or plan.vocab_size is None:
        return plan
    tokens = int(plan.text_bytes / density)
    plan = replace(
        plan,
        tokens=tokens,
        sequences=tokens // seq_len,
        seconds=plan.text_bytes / sample.bytes * sample.seconds,
        disk_bytes=tokens * _id_bytes(plan.vocab_size),
    )
    return _with_shares(plan, sample.lengths, seq_len)


def _with_shares(plan: ShardPlan, lengths: list[int], seq_len: int) -> ShardPlan:
    """The plan with shares of cut documents and rows, as if the sample were everything; unchanged
    if it fills no row."""
    ends = np.cumsum(lengths, dtype=np.int64)
    rows = int(ends[-1]) // seq_len
    if not rows:
        return plan
    size = rows * seq_len
    begins = (ends - lengths)[ends - lengths < size]
    stretch = Stretch(begins, size, max(0, int(ends[len(begins) - 1]) - size))
    whole = wholeness(stretch, PACKINGS[plan.packing](stretch, seq_len), seq_len)
    return replace(
        plan,
        share_cut=whole.cut_documents / len(begins),
        share_from_start=whole.rows_from_start / rows,
    )


def _id_bytes(vocab_size: int) -> int:
    """Bytes per token: of the ids in the work folder, and at most as many of the shards."""
    return 2 * (2 if vocab_size <= 1 << 16 else 4)


class _Sample(NamedTuple):
    """The first documents."""

    bytes: int
    lengths: list[int]
    """In tokens, with the end of text."""
    seconds: float
    """Of encoding them."""
    stretched: int
    """Bytes of text all over the corpora, beside them."""
    ids: NDArray[np.uint32]


def _sample(source: PackInput, encoder: PackTokenizer, most: int) -> _Sample | None:
    """A sample of the first documents; None if they hold no token."""
    texts: list[str] = []
    size = 0
    for _, data in source.corpora[0].documents():
        if (text := decode_document(data)) is not None:
            texts.append(text)
            size += len(data)
        if size >= most:
            break
    began = time.monotonic()
    encoded = encoder.encoder.encode_batch_fast(texts, add_special_tokens=False)
    elapsed = time.monotonic() - began
    lengths = [len(one) + 1 for one in encoded]
    stretches = [*_stretches(source, most)]
    found = encoder.encoder.encode_batch_fast(stretches, add_special_tokens=False)
    ids = np.array([*chain.from_iterable(one.ids for one in found)], np.uint32)
    stretched = sum(len(text.encode()) for text in stretches)
    is_some = ids.size and sum(lengths) > len(lengths)
    return _Sample(size, lengths, elapsed, stretched, ids) if is_some else None


def _stretches(source: PackInput, most: int) -> Iterator[str]:
    """Every so manieth piece of the text of some units of each corpus, about `most` bytes."""
    every, at = max(1, round(source.text_bytes / most)), 0
    for corpus in source.corpora:
        units = units_of(corpus)
        chosen = spread(len(units))
        step = max(1, every * len(chosen) // max(1, len(units)))
        for number in chosen:
            for text in read_unit(units[number]).column("text").to_pylist():
                for begin in range(0, len(text), _STRETCH):
                    if at % step == 0:
                        yield text[begin : begin + _STRETCH]
                    at += 1
