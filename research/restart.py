"""How long a run stands still when its trainer is killed: from there to the next step, and why.

    python research/restart.py [--config configs/train/pretrain-50m-muon.yaml] [--kills 3]
                               [--set FIELD=VALUE ...] [--after 200] [--json FILE]

A run on random tokens under its guard, as by `albor train apply`. Once it has a checkpoint and
--after steps of its attempt are done, the trainer is killed (-9) and its guard begins another one
at once: the configs wait longer (guard.backoff_s). "from_the_kill" ends with the new trainer's
first step, `total_s` is that of its process alone, and the rest the parts that `run.first_step`
tells. The first attempt, which compiles kernels that the others find, is "cold". Exit code 1 where
the run ends before its time.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jobs import ROOT
from pretrain import BEST, albor
from timed_runs import phase_of

from albor_core.config.config import Config
from albor_core.data.pack.shard_writer import write_shard
from albor_core.run.checkpoints import newest
from albor_core.run.journal import last_event
from albor_core.run.liveness import lock_holder
from albor_core.run.rundir import RunDir
from albor_core.run.state import read_state
from albor_core.run.status import ENDS

sys.path.append(str(Path(__file__).resolve().parents[1] / "benchmarks"))
from arguments import new_file, positive, read_config

ROWS, SAVED_EVERY, LIMIT_S, INDEXED_S, POLL_S = 1024, 100, 300.0, 10.0, 0.02


def begin(options: argparse.Namespace, asked: Config, folder: Path) -> RunDir:
    size, T = asked.model.architecture.vocab_size, asked.data.seq_len
    ids = np.random.default_rng(0).integers(0, size, ROWS * T, dtype=np.uint32)
    (folder / "data").mkdir()
    write_shard(folder / "data" / "shard-00000.parquet", ids, T)
    saved_every = min(SAVED_EVERY, options.after)
    sets = {
        "data.train": folder / "data",
        "data.val": "null",
        "data.tokenizer": "null",
        "training.epochs": 1_000_000,
        "training.max_steps": 1_000_000,
        "training.log_interval": 1,
        "training.save_interval": saved_every,
        "training.checkpoint.save_every": saved_every,
        "training.checkpoint.keep": 1,
        "training.output_dir": folder / "runs",
        "monitoring.alerts": "[]",  # nothing is learned from random tokens
        "guard.backoff_s": "[0]",
        "guard.max_restarts": options.kills + 1,
    }
    words = [*(f"{key}={value}" for key, value in sets.items()), *options.set]
    overrides = [word for one in words for word in ("--set", one)]
    made = albor("train", "apply", options.config, "--name", "restart", "--detach", *overrides)
    return RunDir(Path(made["run"]["path"]))


def awaited(run: RunDir, what: str, look: Callable[[], dict[str, Any] | None]) -> dict[str, Any]:
    """What `look` finds, once it does."""
    until = time.monotonic() + LIMIT_S
    while time.monotonic() < until and phase_of(run.path) not in ENDS:
        if (found := look()) is not None:
            return found
        time.sleep(POLL_S)
    raise SystemExit(f"{run.path}: {what}: not in {LIMIT_S:.0f} s, or the run is over")


def first_step(run: RunDir, attempt: int) -> dict[str, Any]:
    """The event of that attempt, once it is there."""

    def look() -> dict[str, Any] | None:
        event = last_event(run.journal, "run.first_step")
        return event if event is not None and event["attempt"] == attempt else None

    return awaited(run, f"the first step of attempt {attempt}", look)


def kill(run: RunDir, step: int) -> float:
    """The time of it, once `step` is done and a checkpoint is there."""

    def look() -> dict[str, Any] | None:
        state = read_state(run.state) or {}
        is_due = state.get("global_step", 0) >= step and newest(run.checkpoints) is not None
        return state if is_due else None

    os.kill(awaited(run, f"step {step} and a checkpoint", look)["pid"], signal.SIGKILL)
    return time.time()


def end(run: RunDir) -> None:
    """Stop it, and let its index process end: until then that writes into its home."""
    albor("guard", "stop", run.path)
    until = time.monotonic() + INDEXED_S
    while time.monotonic() < until and lock_holder(run.index_lock) is not None:
        time.sleep(POLL_S)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--config", default=BEST)
    parser.add_argument("--set", action="append", default=[], metavar="FIELD=VALUE")
    parser.add_argument("--kills", type=positive, default=3)
    parser.add_argument(
        "--after", type=positive, default=200, help="steps of an attempt before its end"
    )
    parser.add_argument("--json", type=new_file)
    options = parser.parse_args()
    asked = read_config(parser, ROOT / options.config, options.set)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        os.environ["ALBOR_HOME"] = str(Path(folder) / "home")
        run = begin(options, asked, Path(folder))
        try:
            event = first_step(run, 1)
            cold, warm = event["data"], []
            for attempt in range(2, options.kills + 2):
                killed = kill(run, event["step"] + options.after)
                event = first_step(run, attempt)
                warm.append({"from_the_kill_s": round(event["wall"] - killed, 2), **event["data"]})
        finally:
            end(run)
    report = {
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "config": options.config,
        "cold": cold,
        "warm": warm,
        **{name: round(statistics.median(one[name] for one in warm), 2)
           for name in ("from_the_kill_s", "total_s")},
    }  # fmt: skip
    print(json.dumps(report))
    if options.json:
        options.json.write_text(json.dumps(report, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
