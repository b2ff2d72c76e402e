"""What packing would read, write and take, before anything is written."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np

from albor_core.config.choices import PackingName
from albor_core.data.pack.manifest import MANIFEST_NAME
from albor_core.data.pack.output_folder import check_folder, refuse_foreign
from albor_core.data.pack.tokenizer import decode_document
from albor_core.data.pack.work.inputs import PackInput, check_arguments, open_input
from albor_core.data.pack.work.pieces import CONCAT, PACKINGS, Stretch, wholeness
from albor_core.data.pack.work.recipe import (
    PackTokenizer,
    made_before,
    open_tokenizer,
    recipe_of,
)
from albor_core.data.stage.stage import refuse_overlap
from albor_core.outputs.place import OutputPlace
from albor_core.run.errors import AlborError, Problem

_SAMPLE_BYTES = 2 << 20

T = TypeVar("T")


@dataclass(frozen=True)
class ShardPlan:
    """What packing would read and write. It can be done where `problems` is empty.

    Tokens, sequences, seconds (of encoding, on the cores here), bytes of disk (while it works, the
    shards included) and shares (of the documents those that are cut, of the rows those that begin
    with a document) are estimates from the first documents; None where the corpus or the tokenizer
    cannot be read. `action`: write, resume, replace, or keep what is made already.
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
    return plan if sample is None else _with_estimates(plan, sample, seq_len)


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
    density = sample.bytes / (sum(sample.lengths) - len(sample.lengths))
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
    """As though the documents of the sample were all; nothing where they fill no row."""
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
    """Of the ids in the work folder, and of the shards, which are packed no worse."""
    return 2 * (2 if vocab_size <= 1 << 16 else 4)


class _Sample(NamedTuple):
    """The first documents."""

    bytes: int
    lengths: list[int]
    """In tokens, with the end of text."""
    seconds: float
    """Of encoding them."""


def _sample(source: PackInput, encoder: PackTokenizer, most: int) -> _Sample | None:
    """None where they hold no token."""
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
    return _Sample(size, lengths, elapsed) if sum(lengths) > len(lengths) else None
