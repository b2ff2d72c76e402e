"""`albor demo`: two small models that differ in one number, trained under the guard, compared.

The whole main job on real source code in minutes on two CPU cores: import, tokenizer, shards, two
guarded runs side by side (one thread each; two threads on one run are slower), comparison. A fixed
token budget, never a time limit. Finished work is reused.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from albor_core.config.config import Config
from albor_core.config.load import LoadedConfig, load_packaged
from albor_core.demo.corpus import SEQ_LEN, DemoData, Say, short_hash
from albor_core.launch.local import LOCAL
from albor_core.launch.planned import plan_run
from albor_core.launch.run_folder import new_run
from albor_core.launch.start import start
from albor_core.run.errors import AlborError, ConfigError, UsageError
from albor_core.run.exit import read_exit
from albor_core.run.rundir import RunDir, read_json
from albor_core.store.diff.compare import diff_runs
from albor_core.store.diff.verdict import MIN_POINTS
from albor_core.store.file.paths import global_store, local_store
from albor_core.store.index.catch_up import drain_index
from albor_core.store.query.reader import Reader

LEARNING_RATES = (3e-3, 3e-4)
LEAST_STEPS, MOST_TOKENS = 4, 10**12
EVALUATIONS = 4 * MIN_POINTS  # as many in the last quarter as a verdict on val/loss needs


@dataclass(frozen=True)
class DemoRun:
    """One of the two runs: its directory, and whether it had been trained before."""

    run: RunDir
    lr: float
    reused: bool


def check_tokens(tokens: int) -> None:
    """Raise UsageError for a token budget that makes no sensible run: too short for its warm-up, or
    absurdly large."""
    least = LEAST_STEPS * _tokens_per_step(load_packaged("demo").config)
    if not least <= tokens <= MOST_TOKENS:
        raise UsageError(
            f"--tokens {tokens}: not from {least:,} ({LEAST_STEPS} steps) to {MOST_TOKENS:,}",
            hint="albor demo --tokens 1M",
        )


def start_runs(root: Path, data: DemoData, *, tokens: int, say: Say) -> list[DemoRun]:
    """Start or resume a run per learning rate; reuse one that completed with equal inputs.

    Raises ConfigError if the plan finds a problem.
    """
    started = []
    for lr in LEARNING_RATES:
        loaded = _config(root, data, lr=lr, tokens=tokens)
        made = plan_run(loaded)
        if made.problems:
            raise ConfigError("the demo cannot run here", problems=made.problems)
        resolved = loaded.config.resolved()
        name = f"demo-lr-{lr:g}-{short_hash([resolved, data.corpus_hash, str(root)])}"
        run = RunDir(root / "runs" / name)
        reused = _completed(run)
        if not run.run_json.is_file():
            run = new_run(loaded, made, name=name)
        if not reused and not run.liveness().is_alive:
            say(f"training {name}: {resolved['training']['max_steps']:,} steps")
            start(run)
        started.append(DemoRun(run, lr, reused))
    return started


def wait(runs: list[DemoRun], tick: Callable[[list[DemoRun]], None]) -> None:
    """Wait until every run has ended, calling `tick` twice a second. Raises AlborError if one
    failed."""
    while any(LOCAL.state(one.run).is_alive for one in runs):
        tick(runs)
        time.sleep(0.5)
    tick(runs)
    for one in runs:
        if not _completed(one.run):
            last = read_exit(one.run) or {}
            raise AlborError(
                f"{one.run.id} did not complete: {last.get('message') or 'no exit record'}",
                hint=f"albor guard status {one.run.id}; logs in {one.run.logs}",
            )


def report(data: DemoData, runs: list[DemoRun], seconds: float) -> dict[str, Any]:
    """The JSON document of the demo; waits for the stores to hold everything."""
    for one in runs:
        drain_index(one.run, timeout_s=30.0)
    with Reader(global_store()) as reader:
        diff = diff_runs(reader, [one.run.id for one in runs]).to_json()
    return {
        "schema": "albor.demo/1",
        "seconds": round(seconds, 1),
        "data": data.to_json(),
        "runs": [_run_document(one) for one in runs],
        "verdict": diff["verdict"],
        "diff": diff,
    }


def _run_document(one: DemoRun) -> dict[str, Any]:
    with Reader(local_store(one.run)) as reader:
        curve = reader.points(one.run.id, "val/loss")
        summary = reader.summary(one.run.id)
        row = reader.run(one.run.id)
    return {
        "id": one.run.id,
        "path": str(one.run.path),
        "learning_rate": one.lr,
        "reused": one.reused,
        "attempts": row.attempts,
        "steps": row.last_step,
        "tokens": row.tokens,
        "val_loss_first": curve[0][1] if curve else None,
        "val_loss": summary["val/loss"].last,
        "val_ppl": summary["val/ppl"].last,
        "train_loss": summary["train/loss"].last,
        "seconds": (read_json(one.run.state) or {}).get("elapsed_seconds"),
    }


def _completed(run: RunDir) -> bool:
    return (read_exit(run) or {}).get("reason") == "completed"


def _tokens_per_step(config: Config) -> int:
    return config.data.batch_size * SEQ_LEN * config.training.gradient_accumulation


def _config(root: Path, data: DemoData, *, lr: float, tokens: int) -> LoadedConfig:
    base = load_packaged("demo")
    steps = round(tokens / _tokens_per_step(base.config))
    threads = max(1, (os.cpu_count() or 1) // len(LEARNING_RATES))
    return load_packaged(
        "demo",
        (
            f"data.train={data.shards / 'train'}",
            f"data.val={data.shards / 'val'}",
            f"data.tokenizer={data.tokenizer}",
            "training.device=auto",
            f"training.output_dir={root / 'runs'}",
            f"optimizer.lr={lr!r}",
            f"training.max_steps={steps}",
            f"training.warmup_steps={max(1, steps // 20)}",
            f"training.eval_interval={max(1, steps // EVALUATIONS)}",
            f"training.save_interval={2 * max(1, steps // 10)}",
            f"training.num_threads={threads}",
        ),
    )
