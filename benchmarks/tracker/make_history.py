"""Make a home with the history of many runs, as their index processes would have left it.

    python benchmarks/tracker/make_history.py HOME [--runs 10000] [--steps 1000]

Eight metrics a run, 22 params, tags, notes, an end, previews of every curve made by the store's own
code; a folder with run.json and exit.json and a pointer each. The rows are written in one go, since
ten thousand journals would be six gigabytes. The same arguments make the same history.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import sqlite3
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # a checkout that is not installed

from albor_core.run.values.directions import direction
from albor_core.store.file import search
from albor_core.store.file.connect import exclusive, open_writer, transaction
from albor_core.store.index.global_share import MINOR_BUCKETS
from albor_core.store.index.series.levels import PREVIEW_BUCKETS, group_points, pack_preview

sys.path.append(str(Path(__file__).resolve().parents[1]))
from arguments import new_folder, positive

METRICS = (
    *("train/loss", "val/loss", "optim/lr", "optim/grad_norm"),
    *("perf/tokens_per_s", "perf/mfu", "perf/step_ms", "train/tokens"),
)
LRS = (1e-4, 2e-4, 3e-4, 5e-4, 1e-3, 2e-3)
SEEDS = 5
START = 1_750_000_000.0
BATCH = 200  # runs in a transaction
WORDS = ("ablation", "baseline", "warmup", "wider", "deeper", "cosine", "dropout", "tied", "longer")


def params_of(number: int, rng: random.Random) -> dict[str, object]:
    """Seeds of one config follow each other."""
    config = random.Random(number // SEEDS)
    return {
        "model.architecture.hidden_size": config.choice((256, 512, 768)),
        "model.architecture.num_hidden_layers": config.choice((4, 8, 12)),
        "model.architecture.num_attention_heads": 8,
        "model.architecture.vocab_size": 32768,
        "model.architecture.max_position_embeddings": 1024,
        "data.train": f"/data/shards/{config.choice(('code', 'web', 'mixed'))}",
        "data.batch_size": config.choice((16, 32, 64)),
        "data.seq_len": 1024,
        "optimizer.name": config.choice(("adamw", "adamw", "lion")),
        "optimizer.lr": config.choice(LRS),
        "optimizer.beta1": 0.9,
        "optimizer.beta2": 0.95,
        "optimizer.weight_decay": config.choice((0.0, 0.1)),
        "training.max_steps": 1000,
        "training.warmup_steps": config.choice((50, 100)),
        "training.gradient_accumulation": 1,
        "training.mixed_precision": "bf16",
        "training.lr_scheduler": "cosine",
        "training.grad_clip": 1.0,
        "training.log_interval": 1,
        "training.output_dir": f"/runs/{number}",
        "training.seed": number % SEEDS,
    }


def curves_of(lr: float, steps: int, rng: random.Random) -> dict[str, list[float]]:
    """A loss that falls and jitters, the rest as one sees it; one run in fifty ends in NaN."""
    noise = [rng.random() for _ in range(steps)]
    floor, fall = 2.0 + rng.random() + abs(math.log10(lr) + 3.3), 8.0 * (0.8 + 0.4 * rng.random())
    loss = [floor + fall / math.sqrt(s + 1) + 0.1 * n for s, n in enumerate(noise)]
    speed = 90_000 + 20_000 * rng.random()
    if rng.random() < 0.02:
        loss[-1] = math.nan
    return {
        "train/loss": loss,
        "val/loss": [value + 0.05 for value in loss],
        "optim/lr": [lr * (1 - s / steps) for s in range(steps)],
        "optim/grad_norm": [0.5 + n for n in noise],
        "perf/tokens_per_s": [speed * (0.97 + 0.03 * n) for n in noise],
        "perf/mfu": [0.4 + 0.02 * n for n in noise],
        "perf/step_ms": [180 + 5 * n for n in noise],
        "train/tokens": [32768.0 * (s + 1) for s in range(steps)],
    }


def write_curve(
    db: sqlite3.Connection, run_id: int, key_id: int, name: str, values: list[float]
) -> None:
    """The series in numbers and its preview, as `share` makes them of a run's own store."""
    finite = [(value, step) for step, value in enumerate(values) if math.isfinite(value)]
    way = direction(name)
    found = None if way is None else (min if way == "min" else max)(finite)
    best, best_step = found or (None, None)
    last, steps = values[-1], len(values)
    most = PREVIEW_BUCKETS if "loss" in name or name.startswith("val/") else MINOR_BUCKETS
    width = (steps - 1) // most + 1
    numbers = (steps, steps - len(finite), 0, steps - 1, None if math.isnan(last) else last)
    extremes = (best, best_step, min(finite)[0], max(finite)[0])
    db.execute(
        "INSERT INTO keys VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
        (run_id, key_id, name, 1, *numbers, *extremes, "step"),
    )
    points = [(s, None if math.isnan(v) else v) for s, v in enumerate(values)]
    packed = pack_preview(group_points(points, width), 0, width)
    db.execute("INSERT INTO metric_levels VALUES (?,?,0,0,?)", (run_id, key_id, packed))


def write_run(db: sqlite3.Connection, number: int, steps: int, runs: Path) -> None:
    rng = random.Random(number)
    run, run_id = f"sweep-{number // SEEDS:05d}-s{number % SEEDS}", number + 1
    params = params_of(number, rng)
    lr = params["optimizer.lr"]
    assert isinstance(lr, float)
    curves = curves_of(lr, steps, rng)
    created = START + 600.0 * number
    status = "failed" if rng.random() < 0.05 else "completed"
    ended = (None, None, None) if number % 500 == 7 else (status, status, created + 500)
    now = {key: "nan" if math.isnan(values[-1]) else values[-1] for key, values in curves.items()}
    best = min(v for v in curves["val/loss"] if math.isfinite(v))
    db.execute(
        "INSERT INTO runs (id, run, experiment_id, name, kind, created, path, host, seed,"
        " git_commit, git_dirty, argv, facts, max_steps, ended_status, ended_reason, ended_wall,"
        " attempts, last_step, tokens, loss, val_loss, val_ppl, best_val_loss, tokens_per_s, mfu,"
        " first_wall, last_wall, alerts_open, pinned)"
        " VALUES (?,?,?,?,'train',?,?,?,?,?,0,?,?,?,?,?,?,1,?,?,?,?,?,?,?,?,?,?,?,?)",
        (run_id, run, 1 + number // 2000, f"{rng.choice(WORDS)} {number // SEEDS}", created,
         str(runs / run), f"gpu{number % 7}", number % SEEDS, f"{rng.getrandbits(160):040x}",
         '["albor","train","apply","sweep.yaml"]', '{"versions":{"torch":"2.13.0"}}', steps, *ended,
         steps - 1, now["train/tokens"], now["train/loss"], now["val/loss"], None, best,
         now["perf/tokens_per_s"], now["perf/mfu"], created, created + 500, 0, int(number == 42)),
    )  # fmt: skip
    for key_id, name in enumerate(METRICS):
        write_curve(db, run_id, key_id, name, curves[name])
    db.executemany(
        "INSERT INTO params VALUES (?,?,?)",
        [(run_id, key, json.dumps(value)) for key, value in params.items()],
    )
    db.execute(
        "INSERT INTO attempts (run_id, attempt, started, ended, code, step) VALUES (?,1,?,?,0,?)",
        (run_id, created, created + 500, steps - 1),
    )
    events = ((0, "run.start"), (100, "checkpoint.saved"), (200, "run.end"))
    db.executemany(
        "INSERT INTO events VALUES (?, 'journal', ?, ?, 1, ?, ?, 'info', NULL, '{}')",
        [(run_id, at, created + at, at, name) for at, name in events],
    )
    if number % 10 == 0:
        db.execute("INSERT INTO tags VALUES (?,?)", (run_id, WORDS[number // 10 % len(WORDS)]))
    if number % 100 == 0:
        text = f"gradient spikes after step {rng.randrange(steps)}"
        db.execute("INSERT INTO notes VALUES (?,0,?,'me',?)", (run_id, created, text))
    db.execute(
        "INSERT INTO journal VALUES (?,'journal',?,0,0,0,?,0,0)", (run_id, 250 * steps, steps)
    )
    search.refresh(db, run_id)
    write_folder(runs / run, run, created, ended[0])


def write_folder(folder: Path, run: str, created: float, ended: str | None) -> None:
    folder.mkdir(mode=0o700)
    said = {"schema": "albor.run/1", "id": run, "created": created, "host": "gpu"}
    (folder / "run.json").write_text(json.dumps(said))
    if ended is not None:
        last = {"schema": "albor.exit/1", "run_id": run, "attempt": 1, "reason": ended}
        last["code"] = int(ended != "completed")
        (folder / "exit.json").write_text(json.dumps(last))
    pointer = folder.parents[1] / "home" / "runs" / f"{run}.json"
    pointer.write_text(json.dumps({"path": str(folder), "created": created}))


def make(root: Path, runs: int, steps: int) -> Path:
    """Fill ROOT with home/ and out/; returns the global store."""
    home, out = root / "home", root / "out"
    (home / "runs").mkdir(mode=0o700, parents=True)
    out.mkdir(mode=0o700)
    path = home / "experiments.db"
    with exclusive(path):
        db = open_writer(path)
        with transaction(db):
            for number in range((runs - 1) // 2000 + 1):
                db.execute("INSERT INTO experiments VALUES (?,?)", (number + 1, f"sweep {number}"))
        for start in range(0, runs, BATCH):
            with transaction(db):
                for number in range(start, min(start + BATCH, runs)):
                    write_run(db, number, steps, out)
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        db.close()
    return path


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("root", type=new_folder)
    parser.add_argument("--runs", type=positive, default=10_000)
    parser.add_argument("--steps", type=positive, default=1000)
    given = parser.parse_args()
    began = time.perf_counter()
    path = make(given.root.absolute(), given.runs, given.steps)
    took, size = time.perf_counter() - began, path.stat().st_size
    print(f"{given.runs} runs x {given.steps} steps x {len(METRICS)} metrics in {took:.0f} s,"
          f" load {os.getloadavg()[0]:.2f}: {path}, {size / 1e6:.0f} MB")  # fmt: skip


if __name__ == "__main__":
    main()
