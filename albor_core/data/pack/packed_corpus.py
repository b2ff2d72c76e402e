"""A corpus of text where packed shards are expected: packed once, kept under a hash of all that
goes into it, found again.

    ALBOR_HOME/cache/packed/HASH/train/shard-00000.parquet ... manifest.json
    ALBOR_HOME/cache/packed/HASH.lock       held by who packs it, while other runs wait
"""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from albor_core.config.choices import PackingName
from albor_core.data.pack.manifest import MANIFEST_NAME, SCHEMA
from albor_core.data.pack.pretokenize import pretokenize
from albor_core.data.pack.token_rows import ID_COLUMNS
from albor_core.data.pack.work.pieces import CONCAT
from albor_core.data.pack.work.recipe import open_tokenizer
from albor_core.data.progress import Progress
from albor_core.data.stage.corpus import TEXT_COLUMNS, open_corpus, read_footer
from albor_core.data.stage.record import content_hash, corpus_identity
from albor_core.run.errors import DataError, NotFoundError
from albor_core.run.home.folders import albor_home, private_folder
from albor_core.run.rundir import read_json

_FRACTION = 0.0  # all of it: what is held out is another corpus


@dataclass(frozen=True)
class TextCorpus:
    """A corpus that has text and no ids."""

    path: Path
    column: str


def text_corpus(path: Path) -> TextCorpus | None:
    """None for what holds ids: a split of packed shards, or bare shards of another tool.

    Looks at a footer. Raises NotFoundError, or DataError where there is neither ids nor text.
    """
    if path.is_dir() and (read_json(path / MANIFEST_NAME) or {}).get("schema") == SCHEMA:
        return None
    if not path.is_dir():
        files = [path]
    elif not (files := sorted(path.glob("*.parquet"))):
        raise NotFoundError(f"{path}: no .parquet file in it", hint="give a folder that has some")
    names = read_footer(files[0]).schema.to_arrow_schema().names
    for name in (*ID_COLUMNS, *TEXT_COLUMNS):
        if name in names:
            return TextCorpus(path, name) if name in TEXT_COLUMNS else None
    raise DataError(
        f"{files[0]}: no column of ids or text ({', '.join((*ID_COLUMNS, *TEXT_COLUMNS))}); "
        f"it has {', '.join(names) or 'none'}",
        hint="set data.input_column to the column of token ids, or name the text column `text`",
    )


def packed_place(
    corpus: TextCorpus, tokenizer: Path, seq_len: int, packing: PackingName = CONCAT
) -> Path:
    """The split that `packed_corpus` makes, there or not. Raises as it does."""
    opened = open_corpus(corpus.path, corpus.column)
    words = open_tokenizer(tokenizer, None)
    settings = {"seq_len": seq_len, "column": corpus.column, "end": words.end}
    settings |= {} if packing == CONCAT else {"packing": packing}
    inputs = {"corpus": content_hash(opened), "tokenizer": words.sha256}
    key = corpus_identity("packed", settings, inputs)[:32]
    return albor_home() / "cache" / "packed" / key / "train"


def packed_corpus(
    path: Path,
    tokenizer: Path | None,
    seq_len: int,
    *,
    packing: PackingName = CONCAT,
    workers: int = 1,
    say: Callable[[str], None] | None = None,
    progress: Progress | None = None,
) -> Path:
    """The split to train on where a config names `path`: `path` itself where it holds ids, else the
    folder of its text packed with `tokenizer`, made now or found from before. `say` is told which.

    Raises DataError where text comes without a tokenizer, and as `text_corpus` and `pretokenize`.
    """
    corpus = text_corpus(path)
    if corpus is None:
        return path
    if tokenizer is None:
        raise DataError(
            f"{path}: holds text (column {corpus.column}), and no tokenizer is named",
            hint="set data.tokenizer, or pack it first: albor data pretokenize",
        )
    split = packed_place(corpus, tokenizer, seq_len, packing)
    if say is not None and not (split.parent / MANIFEST_NAME).exists():
        say(
            f"{path}: holds text (column {corpus.column}): packing it with {tokenizer} into rows "
            f"of {seq_len} tokens, kept in {split.parent}"
        )
    with _alone(split.parent, say):
        report = pretokenize(
            corpus.path,
            tokenizer,
            split.parent,
            seq_len=seq_len,
            val_fraction=_FRACTION,
            packing=packing,
            column=corpus.column,
            workers=workers,
            progress=progress,
        )
    if say is not None and report.reused:
        say(f"{path}: holds text, packed before: {split}")
    return split


@contextmanager
def _alone(folder: Path, say: Callable[[str], None] | None) -> Iterator[None]:
    """Hold a lock, so that of several runs that begin at once one packs, and the others use its
    result."""
    private_folder(folder.parent)
    with folder.with_name(f"{folder.name}.lock").open("wb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if say is not None:
                say(f"{folder}: another run is packing it: waiting")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
