"""The demo's data: this interpreter's own standard library, tokenized, packed, reused.

Real source code that every machine with Python has, so the demo needs no network.
"""

from __future__ import annotations

import json
import sysconfig
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from albor_core.data.pack.pretokenize import ShardReport, pretokenize
from albor_core.data.pack.tokenizer import train_tokenizer
from albor_core.data.read.inputs import Asked
from albor_core.data.read.sources import import_sources
from albor_core.demo.folder import make_folder
from albor_core.run.errors import DataError
from albor_core.run.files.publish import sha256_file
from albor_core.run.files.whole_file import write_json
from albor_core.run.rundir import read_json

EXCLUDED = ("test", "tests", "idlelib", "lib2to3", "__pycache__", "site-packages")
VOCAB_SIZE = 4096
SEQ_LEN = 256

Say = Callable[[str], None]


@dataclass(frozen=True)
class DemoData:
    """Paths of the prepared data, and what it was made from."""

    source: str
    files: int
    bytes: int
    corpus_hash: str
    tokenizer: Path
    shards: Path
    train_tokens: int
    val_tokens: int
    reused: bool

    def to_json(self) -> dict[str, Any]:
        return {k: str(v) if isinstance(v, Path) else v for k, v in asdict(self).items()}


def python_sources() -> Path:
    """The folder of this interpreter's standard library."""
    return Path(sysconfig.get_paths()["stdlib"])


def prepare(root: Path, say: Say) -> DemoData:
    """Import, tokenize and pack below `root`, repeating only steps whose inputs changed."""
    source = python_sources()
    corpus, tokenizer = root / "corpus.parquet", root / "tokenizer.json"
    make_folder(root)
    stamp = _imported(root, source, corpus)
    if stamp is None:
        say(f"importing the Python standard library from {source}")
        found = import_sources([source], corpus, Asked(exclude=EXCLUDED, git=False), force=True)
        stamp = {
            "source": str(source),
            "files": found.files,
            "bytes": found.bytes,
            "corpus_hash": found.corpus_hash,
            "parquet_sha256": sha256_file(corpus),
        }
        write_json(root / "corpus.json", stamp)
        tokenizer.unlink(missing_ok=True)
    reused = tokenizer.is_file()
    if not reused:
        say(f"training a {VOCAB_SIZE:,}-token tokenizer on {stamp['files']:,} files")
        train_tokenizer(corpus, tokenizer, vocab_size=VOCAB_SIZE)
    say("packing token shards" if not reused else "checking token shards")
    shards = _pack(corpus, tokenizer, root / "shards")
    return DemoData(
        source=stamp["source"],
        files=stamp["files"],
        bytes=stamp["bytes"],
        corpus_hash=stamp["corpus_hash"],
        tokenizer=tokenizer,
        shards=root / "shards",
        train_tokens=shards.splits["train"].tokens,
        val_tokens=shards.splits["val"].tokens,
        reused=reused and shards.reused,
    )


def _pack(corpus: Path, tokenizer: Path, out: Path) -> ShardReport:
    try:
        return pretokenize(corpus, tokenizer, out, seq_len=SEQ_LEN)
    except DataError:  # made from other inputs, or damaged: the folder is the demo's own
        return pretokenize(corpus, tokenizer, out, seq_len=SEQ_LEN, force=True)


def _imported(root: Path, source: Path, corpus: Path) -> dict[str, Any] | None:
    """The record of an earlier import, if it is of this interpreter and still complete; else
    None."""
    stamp = read_json(root / "corpus.json")
    if stamp is None or stamp.get("source") != str(source) or not corpus.is_file():
        return None
    return stamp if sha256_file(corpus) == stamp.get("parquet_sha256") else None


def short_hash(document: object) -> str:
    """Six hex digits that identify a JSON value."""
    import hashlib

    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()[:6]
