"""A small source tree, its corpus and a tokenizer, made once per session."""

from __future__ import annotations

import os
import random
import time
from contextlib import suppress
from pathlib import Path

import pytest

from albor_core.data.pack.tokenizer import train_tokenizer
from albor_core.data.read.sources import import_sources

WORDS = ["value", "total", "index", "result", "items", "count", "name", "path", "data", "node"]


def write_tree(root: Path, files: int) -> Path:
    """`files` Python-like files in two levels; the same bytes for the same count."""
    rng = random.Random(7)
    for number in range(files):
        file = root / f"pkg{number % 5}" / f"mod{number:03d}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        lines = [
            f"def {rng.choice(WORDS)}_{rng.randrange(99)}({rng.choice(WORDS)}):\n"
            f"    return {rng.choice(WORDS)} + {rng.randrange(999)}\n"
            for _ in range(rng.randrange(4, 30))
        ]
        file.write_text("\n".join(lines), encoding="utf-8")
    return root


@pytest.fixture(scope="session")
def grow_tree():
    return write_tree


@pytest.fixture(scope="session")
def tree(tmp_path_factory) -> Path:
    return write_tree(tmp_path_factory.mktemp("sources") / "project", 60)


@pytest.fixture(scope="session")
def corpus(tree, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("corpus") / "corpus.parquet"
    import_sources([tree], out)
    return out


@pytest.fixture(scope="session")
def tokenizer(corpus, tmp_path_factory) -> Path:
    return train_tokenizer(corpus, tmp_path_factory.mktemp("tok"), vocab_size=400).out


@pytest.fixture
def wait_for_group():
    """Waits until all of a killed session is gone: a worker dies a moment after its parent."""

    def wait(group: int) -> None:
        deadline = time.monotonic() + 60
        with suppress(ProcessLookupError):
            while True:
                os.killpg(group, 0)
                assert time.monotonic() < deadline, "a worker outlived its parent"
                time.sleep(0.01)

    return wait
