"""The documents of packed shards as text again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from albor_core.data.pack.shard_check import DEFAULT_COLUMN, read_manifest
from albor_core.data.pack.special_tokens import tokenizer_file
from albor_core.data.pack.token_rows import token_rows
from albor_core.data.pack.tokenizer import load_tokenizer
from albor_core.data.pack.work.pieces import CONCAT
from albor_core.run.errors import DataError
from albor_core.run.files.publish import sha256_file

MOST_TOKENS = 1 << 20  # of one text: a document that is longer comes in pieces
_TOGETHER = 256


def shard_documents(split: Path, tokenizer: Path) -> Iterator[tuple[str, str, str]]:
    """(split, "row N" where the document begins, text). Documents are told apart by the token that
    ends them, by row where nothing says which that is; where rows do not follow each other, a
    document that was cut is several. Special tokens are left out. Raises DataError for a tokenizer
    that the shards were not made with.
    """
    manifest = read_manifest(split, scan=True)
    encoder = load_tokenizer(tokenizer)
    file = tokenizer_file(tokenizer)
    if manifest.tokenizer_sha256 not in (None, sha256_file(file)):
        raise DataError(
            f"{file}: not the tokenizer that {split} was packed with",
            hint="name that one with --tokenizer",
        )
    follows = (manifest.packing or {}).get("name", CONCAT) == CONCAT
    documents = _documents(manifest.paths(), manifest.eos_token_id, follows=follows)
    waiting: list[tuple[int, list[int]]] = []
    for row, ids in documents:
        waiting.append((row, ids.tolist()))
        if len(waiting) == _TOGETHER:
            yield from _decoded(split, encoder, waiting)
            waiting = []
    yield from _decoded(split, encoder, waiting)


def _decoded(
    split: Path, encoder: Any, documents: list[tuple[int, list[int]]]
) -> Iterator[tuple[str, str, str]]:
    texts = encoder.decode_batch([ids for _, ids in documents], skip_special_tokens=True)
    for (row, _), text in zip(documents, texts, strict=True):
        yield split.resolve().name, f"row {row}", text


def _documents(
    files: list[Path], end: int | None, *, follows: bool
) -> Iterator[tuple[int, NDArray[np.uint32]]]:
    """(row of its first token, ids). `follows`: a document may go on in the next row."""
    pieces: list[NDArray[np.uint32]] = []
    begun = row = 0
    for file in files:
        for rows in token_rows(file, DEFAULT_COLUMN):
            for ids in np.split(rows.ids, np.cumsum(rows.lengths)[:-1]):
                for piece, is_end in _pieces(ids, end):
                    if not pieces:
                        begun = row
                    pieces.append(piece)
                    if is_end or not follows or sum(map(len, pieces)) >= MOST_TOKENS:
                        yield begun, np.concatenate(pieces)
                        pieces = []
                row += 1
    if pieces:
        yield begun, np.concatenate(pieces)


def _pieces(ids: NDArray[np.uint32], end: int | None) -> Iterator[tuple[NDArray[np.uint32], bool]]:
    """The pieces of a row, and whether a document ends with each."""
    if end is None:
        yield ids, True
        return
    begin = 0
    for stop in (np.flatnonzero(ids == end) + 1).tolist():
        yield ids[begin:stop], True
        begin = stop
    if begin < len(ids):
        yield ids[begin:], False
