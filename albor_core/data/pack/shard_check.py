"""What is in a directory of shards, and is it still what was packed?

Directories without a manifest are welcome: other tools write bare Parquet shards, and their
footers hold enough to plan a run.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

from albor_core.data.pack.manifest import (
    DATASET_SCHEMA,
    MANIFEST_NAME,
    Manifest,
    Shard,
    data_hash,
    load_manifest,
    shard_fields,
)
from albor_core.data.pack.token_rows import (
    REPACK_HINT,
    TokenRows,
    check_ids,
    token_footer,
    token_rows,
)
from albor_core.run.errors import AlborError, DataError, NotFoundError, Problem
from albor_core.run.files.publish import sha256_file
from albor_core.run.rundir import read_json

DEFAULT_COLUMN = "input_ids"
_FOOTER_BYTES = 64 << 10


def read_manifest(split_dir: Path, *, scan: bool = False, column: str = DEFAULT_COLUMN) -> Manifest:
    """The manifest of a split; with `scan`, a bare directory (or one .parquet file) gets one made
    from its footers.

    Raises NotFoundError when there is nothing to read, DataError naming file and cause.
    """
    if not scan or (split_dir / MANIFEST_NAME).exists():
        return load_manifest(split_dir)
    return _scan(split_dir, column)


def split_folders(folder: Path) -> list[Path]:
    """The splits of a data set; `folder` itself where it is one split."""
    document = read_json(folder / MANIFEST_NAME) or {}
    splits = document.get("splits")
    if document.get("schema") != DATASET_SCHEMA or not isinstance(splits, dict):
        return [folder]
    return [folder / name for name in splits if Path(name).name == name]


def verify_shards(split_dir: Path, *, hashes: bool, column: str = DEFAULT_COLUMN) -> list[Problem]:
    """Everything wrong with the shards of a split, in order; empty means fit to train on.

    Without `hashes` only presence and sizes are compared (milliseconds). With it every byte is
    hashed and every row decoded: lengths, and ids against the vocabulary. A directory without a
    manifest has no hashes to compare; its rows are still decoded. Raises as `read_manifest`.
    """
    manifest = read_manifest(split_dir, scan=True, column=column)
    problems: list[Problem] = []
    for shard, path in zip(manifest.shards, manifest.paths(), strict=True):
        found = list(_file_problems(shard, path))
        if not found and hashes:
            found = list(_content_problems(manifest, shard, path, column))
        problems += found
    return problems


def _scan(split_dir: Path, column: str) -> Manifest:
    single = split_dir.suffix == ".parquet" and split_dir.is_file()
    directory = split_dir.parent if single else split_dir
    files = [split_dir] if single else sorted(directory.glob("*.parquet"))
    if not files:
        cause = "no .parquet shard in it" if directory.is_dir() else "no such directory"
        raise NotFoundError(f"{split_dir}: {cause}", hint=REPACK_HINT)
    footers = [token_footer(file, column) for file in files]
    sequences, tokens = sum(f.rows for f in footers), sum(f.tokens for f in footers)
    if sequences == 0:
        raise DataError(f"{split_dir}: the shards hold no rows", hint=REPACK_HINT)
    known = [f.max_id for f in footers if f.max_id is not None]
    shards = tuple(
        Shard(file.name, file.stat().st_size, _footer_sha256(file), footer.rows)
        for file, footer in zip(files, footers, strict=True)
    )
    return Manifest(
        directory=directory,
        split=directory.name,
        seq_len=tokens // sequences,
        vocab_size=None,
        max_id=max(known) if len(known) == len(footers) else None,
        sequences=sequences,
        tokens=tokens,
        documents=None,
        dropped_tokens=None,
        tokenizer_sha256=None,
        corpus_sha256=None,
        shards=shards,
        data_hash=data_hash({"scan": shard_fields(shards)}),
        scanned=True,
    )


def _footer_sha256(file: Path) -> str:
    with file.open("rb") as stream:
        stream.seek(max(0, file.stat().st_size - _FOOTER_BYTES))
        return hashlib.sha256(stream.read()).hexdigest()


def _file_problems(shard: Shard, path: Path) -> Iterator[Problem]:
    if not path.is_file():
        yield Problem(shard.file, "missing", REPACK_HINT, str(path))
    elif (size := path.stat().st_size) != shard.bytes:
        yield Problem(
            shard.file, f"{size} bytes, the manifest says {shard.bytes}", REPACK_HINT, str(path)
        )


def _content_problems(
    manifest: Manifest, shard: Shard, path: Path, column: str
) -> Iterator[Problem]:
    if not manifest.scanned and sha256_file(path) != shard.sha256:
        yield Problem(shard.file, "its SHA-256 differs from the manifest's", REPACK_HINT, str(path))
        return  # decoding damaged bytes adds noise, not knowledge
    sequences = 0
    try:
        for rows in token_rows(path, column):
            sequences += len(rows.lengths)
            _check_rows(manifest, path, rows)
    except AlborError as error:
        yield Problem(shard.file, error.message, error.hint, str(path))
        return
    if sequences != shard.sequences:
        yield Problem(
            shard.file,
            f"{sequences} sequences, the manifest says {shard.sequences}",
            REPACK_HINT,
            str(path),
        )


def _check_rows(manifest: Manifest, path: Path, rows: TokenRows) -> None:
    if manifest.vocab_size is not None:
        check_ids(path, rows, manifest.vocab_size)
    wrong = (rows.lengths != manifest.seq_len).nonzero()[0]
    if not manifest.scanned and wrong.size:
        row = int(wrong[0])
        raise DataError(
            f"row {rows.first_row + row}: {int(rows.lengths[row])} tokens, not {manifest.seq_len}",
            hint=REPACK_HINT,
        )
