"""Whether the guard against loss spikes leaves healthy runs alone and finds true spikes.

    python benchmarks/watching/spikes.py [--seeds 20] [--steps 400] [--only uneven|planted]

Uneven data: rows that count, a few percent of them random instead, so that a batch without a random
row has a loss near 0 and one with them a loss of nats; nothing is wrong, so no run may go back.
Planted: the sources of this repository, tokenized and packed as the demo packs its own; the loss of
batches 205 to 209 times five, and every run has to go back, once, to a checkpoint from before.

Small models on one core, each by the trainer's own loop with the guards as they are by default.
Exit 1 where a run did otherwise.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from albor_core.config.load import parse_config
from albor_core.data.pack.pretokenize import pretokenize
from albor_core.data.pack.tokenizer import train_tokenizer
from albor_core.data.read.sources import import_sources
from albor_core.run.home.new_run import create_run
from albor_core.run.journal import read_journal
from albor_core.run.state import StateWriter
from albor_core.train.loop import Training
from albor_core.train.process.attempt import Attempt, Outcome
from albor_core.train.process.faults import Fault, Faults
from albor_core.train.process.signals import SignalRequests

sys.path.append(str(Path(__file__).resolve().parents[1]))
from arguments import positive

SHARES, BATCHES = (0.03, 0.10), (1, 4)
VOCAB, SEQ_LEN = 64, 32
PACKED_VOCAB, PACKED_LEN, PACKED_BATCH = 512, 64, 8
FIRST, LAST, TIMES, PLANTED_STEPS = 205, 209, 5.0, 230


def write_uneven(folder: Path, share: float, seed: int, rows: int = 1500) -> Path:
    """Shards of counting rows, `share` of them random."""
    rng = np.random.default_rng(seed)
    found = [
        rng.integers(0, VOCAB, SEQ_LEN)
        if rng.random() < share
        else (np.arange(SEQ_LEN) + rng.integers(VOCAB)) % VOCAB
        for _ in range(rows)
    ]
    folder.mkdir(parents=True)
    ids = pa.array([row.astype(np.uint32) for row in found], pa.list_(pa.uint32()))
    pq.write_table(pa.table({"input_ids": ids}), folder / "shard-00000.parquet")
    return folder


def pack_sources(folder: Path) -> Path:
    """Shards of this repository's own sources."""
    folder.mkdir(parents=True, exist_ok=True)
    corpus, tokenizer = folder / "corpus.parquet", folder / "tokenizer.json"
    import_sources([Path(__file__).parents[2] / "albor_core"], corpus)
    train_tokenizer(corpus, tokenizer, vocab_size=PACKED_VOCAB)
    pretokenize(corpus, tokenizer, folder / "shards", seq_len=PACKED_LEN)
    return folder / "shards" / "train"


def train(
    folder: Path, data: Path, *, batch: int, steps: int, seed: int, vocab: int, seq_len: int,
    faults: tuple[Fault, ...] = (),
) -> tuple[Outcome, list[dict[str, Any]]]:  # fmt: skip
    """A run from its start to its end: how it ended, and its rollbacks."""
    raw = json.dumps(
        {
            "model": {
                "path": ".",
                "mode": "transformer",
                "architecture": {
                    "hidden_size": 32,
                    "num_hidden_layers": 2,
                    "num_attention_heads": 4,
                    "num_key_value_heads": 2,
                    "intermediate_size": 64,
                    "vocab_size": vocab,
                    "max_position_embeddings": seq_len,
                },
            },
            "data": {"train": str(data), "batch_size": batch, "seq_len": seq_len},
            "optimizer": {"name": "adamw", "lr": 0.003},
            "training": {
                "epochs": 1000,
                "max_steps": steps,
                "warmup_steps": 20,
                "output_dir": str(folder),
                "checkpoint": {"save_every": 100},
                "seed": seed,
                "num_threads": 1,
                "device": "cpu",
            },
            "monitoring": {"system": {"enabled": False}},
        }
    ).encode()
    config = parse_config(raw, file="spikes.yaml")
    run = create_run(
        folder,
        folder.name,
        experiment="spikes",
        name=folder.name,
        kind="train",
        argv=["spikes.py"],
        seed=seed,
        config=raw,
        resolved=config.resolved(),
    )
    state = StateWriter(run.state, run_id=run.id, attempt=1, nonce="n")
    quiet = io.StringIO()
    with contextlib.redirect_stderr(quiet), contextlib.redirect_stdout(quiet):
        training = Training(Attempt(run, 1, "n"), config, SignalRequests(), Faults(faults), state)
        outcome = training.run()
    records = [line.record for line in read_journal(run.journal) if line.record is not None]
    return outcome, [one["data"] for one in records if one.get("name") == "training.rollback"]


def uneven_runs(folder: Path, seeds: int, steps: int) -> Iterator[tuple[str, int, int]]:
    """(what, runs that went back or ended early, runs)."""
    for share in SHARES:
        for batch in BATCHES:
            disturbed = 0
            for seed in range(seeds):
                here = folder / f"hard-{round(100 * share)}-batch-{batch}-seed-{seed}"
                data = write_uneven(here / "rows", share, seed)
                shape = {"vocab": VOCAB, "seq_len": SEQ_LEN}
                outcome, back = train(here, data, batch=batch, steps=steps, seed=seed, **shape)
                disturbed += bool(back) or outcome.reason != "completed"
            yield f"{share:.0%} hard rows, batch {batch}: went back", disturbed, seeds


def planted_runs(folder: Path, seeds: int) -> tuple[int, int]:
    """(runs that went back as they should, runs)."""
    data = pack_sources(folder)
    spike, found = Fault("loss", "x", TIMES, FIRST, LAST, None), 0
    for seed in range(seeds):
        outcome, back = train(
            folder / f"planted-seed-{seed}",
            data,
            batch=PACKED_BATCH,
            steps=PLANTED_STEPS,
            seed=seed,
            vocab=PACKED_VOCAB,
            seq_len=PACKED_LEN,
            faults=(spike,),
        )
        as_it_should = [one["reason"] for one in back] == ["loss_spike"]
        found += as_it_should and back[0]["at_step"] == LAST and outcome.reason == "completed"
    return found, seeds


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seeds", type=positive, default=20)
    parser.add_argument("--steps", type=positive, default=400, help="of a run on uneven data")
    parser.add_argument("--only", choices=("uneven", "planted"))
    options = parser.parse_args()
    is_right = True
    with tempfile.TemporaryDirectory(prefix="albor-spikes-") as name:
        os.environ["ALBOR_HOME"] = f"{name}/home"
        if options.only != "planted":
            for what, disturbed, runs in uneven_runs(Path(name), options.seeds, options.steps):
                print(f"{what:<42} {disturbed:>3} of {runs}", flush=True)
                is_right &= disturbed == 0
        if options.only != "uneven":
            found, runs = planted_runs(Path(name) / "planted", options.seeds)
            print(f"{'loss x 5 for 5 steps: went back':<42} {found:>3} of {runs}", flush=True)
            is_right &= found == runs
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())
