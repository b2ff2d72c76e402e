"""How long a run stands still when its trainer is killed: from there to the next step, and why.

    python benchmarks/step/restart.py [--config configs/train/pretrain-50m-muon.yaml] [--kills 3]
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
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from albor_core.config.load import load_config
from albor_core.run.journal import last_event
from albor_core.run.rundir import RunDir
from albor_core.run.state import read_state

ROWS, SAVED_EVERY, LIMIT_S, POLL_S = 1024, 100, 300.0, 0.02
ENDED = ("completed", "failed", "stopped")


def albor(*words: object) -> Any:
    line = [sys.executable, "-m", "albor_core.cli", *map(str, words), "--json"]
    done = subprocess.run(line, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(line)}: exit {done.returncode}\n{done.stderr[-2000:]}")
    return json.loads(done.stdout)


def begin(options: argparse.Namespace, folder: Path) -> RunDir:
    asked = load_config(options.config, tuple(options.set)).config
    ids = np.random.default_rng(0).integers(
        0, asked.model.architecture.vocab_size, size=(ROWS, asked.data.seq_len), dtype=np.uint32
    )
    (folder / "data").mkdir()
    table = pa.table({"input_ids": pa.array(list(ids), pa.list_(pa.uint32()))})
    pq.write_table(table, folder / "data" / "shard-00000.parquet")
    sets = {
        "data.train": folder / "data",
        "data.val": "null",
        "data.tokenizer": "null",
        "training.epochs": 1_000_000,
        "training.max_steps": 1_000_000,
        "training.log_interval": 1,
        "training.save_interval": min(SAVED_EVERY, options.after),
        "training.checkpoint.save_every": min(SAVED_EVERY, options.after),
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


def first_step(run: RunDir, attempt: int) -> dict[str, Any]:
    """The event of that attempt, once it is there."""
    until = time.monotonic() + LIMIT_S
    while time.monotonic() < until:
        event = last_event(run.journal, "run.first_step")
        if event is not None and event["attempt"] == attempt:
            return event
        if (read_state(run.state) or {}).get("phase") in ENDED:
            raise SystemExit(f"{run.path}: over before attempt {attempt} took a step")
        time.sleep(POLL_S)
    raise SystemExit(f"{run.path}: attempt {attempt} took no step in {LIMIT_S:.0f} s")


def kill(run: RunDir, first: int, steps: int) -> float:
    """The time of it, once `steps` after `first` are done."""
    until = time.monotonic() + LIMIT_S
    while time.monotonic() < until:
        state = read_state(run.state) or {}
        if state.get("global_step", 0) >= first + steps and any(run.checkpoints.glob("step-*")):
            os.kill(state["pid"], signal.SIGKILL)
            return time.time()
        time.sleep(POLL_S)
    raise SystemExit(f"{run.path}: not {steps} steps in {LIMIT_S:.0f} s")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--config", type=Path, default=Path("configs/train/pretrain-50m-muon.yaml"))
    parser.add_argument("--set", action="append", default=[], metavar="FIELD=VALUE")
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--after", type=int, default=200, help="steps of an attempt before its end")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["ALBOR_HOME"] = str(Path(folder) / "home")
        run = begin(options, Path(folder))
        try:
            event = first_step(run, 1)
            cold, warm = event["data"], []
            for attempt in range(2, options.kills + 2):
                killed = kill(run, event["step"], options.after)
                event = first_step(run, attempt)
                warm.append({"from_the_kill_s": round(event["wall"] - killed, 2), **event["data"]})
        finally:
            albor("guard", "stop", run.path)
    report = {
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "config": str(options.config),
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
