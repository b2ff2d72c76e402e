"""Small models with a tokenizer, as folders, and the texts they are asked about."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from hf_folder import write_model, write_tokenizer

from albor_core.eval.subject import EvaluatedModel, load_subject
from albor_core.eval.target import open_target, weights_hash

TEXTS = [
    "def fibonacci(n):\n    return n if n < 2 else 1\n" * 3,
    "Caf\u00e9 na\u00efve, 12345 it's",
    "a",
    "",
    "x = [1, 2, 3]\nfor one in x:\n    print(one)\n" * 2,
]


def make_model(folder: Path, kind: str = "llama", *, context: int = 32, **more) -> Path:
    """Random weights and a tokenizer of 400 rows."""
    folder.mkdir(parents=True, exist_ok=True)
    write_model(folder, kind, vocab_size=400, **more)
    about = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**about, "max_position_embeddings": context}))
    write_tokenizer(folder, kind)
    return folder


def subject_of(
    folder: Path, *, batch_size: int = 4, dtype: str = "fp64", device: str = "cpu"
) -> EvaluatedModel:
    torch.set_num_threads(1)
    target = open_target(folder)
    return load_subject(
        target, weights=weights_hash(target), device=device, dtype=dtype, batch_size=batch_size
    )


def write_jsonl(path: Path, records) -> Path:
    path.write_text("".join(json.dumps(one) + "\n" for one in records))
    return path
