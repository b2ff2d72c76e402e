"""A run small enough to train in a test: about 30,000 parameters, a few milliseconds a step."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from albor_core.config.load import parse_config
from albor_core.data.pack.manifest import Shard, shard_fields, write_manifest
from albor_core.guard.process.processes import environment_of, process_table
from albor_core.run.files.publish import sha256_file
from albor_core.run.files.whole_file import write_json
from albor_core.run.home.new_run import create_run
from albor_core.run.journal import read_journal
from albor_core.run.rundir import RunDir, read_json
from albor_core.run.state import StateWriter
from albor_core.train.process.attempt import Attempt, Outcome
from albor_core.train.process.faults import faults_from
from albor_core.train.process.signals import SignalRequests

VOCAB, SEQ_LEN = 64, 32
_COLLECT = gc.collect


def write_shards(folder: Path, sequences: int, seed: int) -> Path:
    """Random walks over the vocabulary: something a model can learn in a few steps."""
    rng = np.random.default_rng(seed)
    steps = rng.integers(1, 4, size=(sequences, SEQ_LEN))
    ids = (steps.cumsum(axis=1) % VOCAB).astype(np.uint32)
    folder.mkdir(parents=True, exist_ok=True)
    table = pa.table({"input_ids": pa.array(list(ids), pa.list_(pa.uint32()))})
    pq.write_table(table, folder / "shard-00000.parquet")
    return folder


END, MARKS = 0, {"prefix": 61, "suffix": 62, "middle": 63}
"""Of `write_documents` and `write_tokenizer`."""


def write_documents(folder: Path, sequences: int, seed: int, tokenizer: Path | None = None) -> Path:
    """Sealed shards of short documents, each of which END ends; they hold no sentinel."""
    rng = np.random.default_rng(seed)
    ids = rng.integers(1, 61, size=(sequences, SEQ_LEN)).astype(np.uint32)
    ids[rng.random(ids.shape) < 0.1] = END
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "shard-00000.parquet"
    pq.write_table(pa.table({"input_ids": pa.array(list(ids), pa.list_(pa.uint32()))}), file)
    shard = Shard(file.name, file.stat().st_size, sha256_file(file), sequences)
    counts = {"sequences": sequences, "tokens": ids.size, "documents": int((ids == END).sum())}
    facts = {"split": "train", "seq_len": SEQ_LEN, "vocab_size": VOCAB, "max_id": int(ids.max())}
    facts |= counts | {"dropped_tokens": 0, "eos_token_id": END, "corpus_sha256": ""}
    packed = "" if tokenizer is None else sha256_file(tokenizer)
    facts |= {"tokenizer_sha256": packed, "shards": shard_fields((shard,))}
    write_manifest(folder, facts)
    return folder


def write_tokenizer(file: Path) -> Path:
    """A word for each id, three of them what fill-in-the-middle needs."""
    words = {f"w{number}": number for number in range(VOCAB)}
    named = {f"<|fim_{name}|>": number for name, number in MARKS.items()} | {"<|endoftext|>": END}
    words = {word: n for word, n in words.items() if n not in named.values()} | named
    made = Tokenizer(WordLevel(words, unk_token="w1"))
    made.add_special_tokens([*named])
    made.save(str(file))
    return file


def tiny_config(folder: Path, **changes: Any) -> dict[str, Any]:
    """A config as plain data; `changes` are dotted paths with `__` for the dot, and `...` leaves a
    field out.
    """
    write_shards(folder / "train", 40, seed=1)
    write_shards(folder / "val", 8, seed=2)
    config: dict[str, Any] = {
        "model": {
            "path": ".",
            "mode": "transformer",
            "architecture": {
                "hidden_size": 32,
                "num_hidden_layers": 2,
                "num_attention_heads": 4,
                "num_key_value_heads": 2,
                "intermediate_size": 64,
                "vocab_size": VOCAB,
                "max_position_embeddings": SEQ_LEN,
            },
        },
        "data": {
            "train": str(folder / "train"),
            "val": str(folder / "val"),
            "batch_size": 4,
            "seq_len": SEQ_LEN,
        },
        "optimizer": {"name": "adamw", "lr": 0.003},
        "training": {
            "epochs": 10,
            "max_steps": 24,
            "warmup_steps": 4,
            "grad_clip": 1.0,
            "output_dir": str(folder / "out"),
            "checkpoint": {"save_every": 5},
            "eval_interval": 8,
            "eval_batches": 2,
            "num_threads": 1,
            "device": "cpu",
        },
        "monitoring": {"system": {"interval": 100}},
    }
    for path, value in changes.items():
        *parents, last = path.split("__")
        section = config
        for name in parents:
            section = section.setdefault(name, {})
        if value is ...:
            del section[last]
        else:
            section[last] = value
    return config


def make_run(folder: Path, run_id: str = "tiny", **changes: Any) -> RunDir:
    """A run directory as `albor train apply` makes it."""
    raw = json.dumps(tiny_config(folder, **changes)).encode()
    config = parse_config(raw, file="tiny.yaml")
    return create_run(
        folder / "out",
        run_id,
        experiment="tests",
        name=run_id,
        kind="train",
        argv=["test"],
        seed=0,
        config=raw,
        resolved=config.resolved(),
    )


def start(run: RunDir, *arguments: str, **environ: str) -> subprocess.Popen[str]:
    """The trainer as a process of its own."""
    env = {**os.environ, "OMP_NUM_THREADS": "1", **environ}
    return subprocess.Popen(
        [sys.executable, "-m", "albor_core.train", str(run.path), *arguments],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def train(run: RunDir, *arguments: str, limit_s: float = 120, **environ: str) -> tuple[int, str]:
    """Run the trainer to its end: exit code and stderr. After `limit_s` it is killed: no process
    of a test outlives it.
    """
    process = start(run, *arguments, **environ)
    try:
        _, stderr = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise
    return process.returncode, stderr


def history(run: RunDir, keys: tuple[str, ...]) -> list[tuple[int, str, float]]:
    """Effective history: rewinds applied, in the order it was said."""
    said: list[tuple[int, str, float]] = []
    for line in read_journal(run.journal) if run.journal.exists() else ():
        assert line.record is not None, line
        if line.record["t"] == "r":
            said = [entry for entry in said if entry[0] <= line.record["to"]]
        elif line.record["t"] == "m":
            values = line.record["v"]
            said += [(line.record["step"], key, values[key]) for key in keys if key in values]
    return said


def events(run: RunDir, name: str) -> list[dict[str, Any]]:
    found = [line.record for line in read_journal(run.journal) if line.record is not None]
    return [record for record in found if record["t"] == "e" and record["name"] == name]


def last_words(run: RunDir) -> dict[str, Any]:
    return read_json(run.exit) or {}


def train_here(
    run: RunDir,
    *,
    attempt: int = 1,
    faults: str = "",
    stop_after: int | None = None,
    allow_config_change: bool = False,
    during: Callable[[SignalRequests, RunDir], None] | None = None,
) -> Outcome:
    """One attempt in this process, without lock and signal handlers; `during` runs in a thread."""
    from albor_core.train.loop import Training

    config = parse_config(run.config_resolved.read_bytes(), file=str(run.config_resolved))
    state = StateWriter(run.state, run_id=run.id, attempt=attempt, nonce=f"n{attempt}")
    signals = SignalRequests()
    training = Training(
        Attempt(run, attempt, f"n{attempt}"),
        config,
        signals,
        faults_from({"ALBOR_FAULTS": faults}, attempt=attempt),
        state,
        allow_config_change=allow_config_change,
    )
    if during is not None:
        threading.Thread(target=during, args=(signals, run), daemon=True).start()
    with _collecting_little():
        return training.run(stop_after=stop_after)


@contextlib.contextmanager
def _collecting_little() -> Iterator[None]:
    """A run collects once all that its process holds: here the tests of a whole session, 0.2 s and
    more each time. Here it looks through the youngest objects alone; a test's own `collect` stays.
    """
    if gc.collect is not _COLLECT:
        yield
        return
    with mock.patch.object(gc, "collect", lambda _generation=2: _COLLECT(0)):
        yield


def wait_until(claim: Callable[[], object], timeout_s: float = 60.0) -> None:
    """Until `claim()` is true; fails the test by name if it never is."""
    deadline = time.monotonic() + timeout_s
    while not claim():
        assert time.monotonic() < deadline, claim
        time.sleep(0.01)


def rewrite_config(run: RunDir, path: str, value: Any) -> None:
    """Edit one field of the run's own config, as somebody might between two attempts."""
    resolved = read_json(run.config_resolved) or {}
    *parents, last = path.split(".")
    section = resolved
    for name in parents:
        section = section[name]
    section[last] = value
    write_json(run.config_resolved, resolved)


def ranks_of(run: RunDir) -> dict[int, int]:
    """Rank to pid of the living processes of a run, rank 0 left out."""
    found = {}
    for entry in process_table():
        environment = environment_of(entry.pid)
        if environment.get("ALBOR_RANK") and str(run.path) in _command(entry.pid):
            found[int(environment["ALBOR_RANK"])] = entry.pid
    return found


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""
