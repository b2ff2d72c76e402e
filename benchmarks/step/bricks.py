"""What the bricks of a step say, and what timing them costs: CPU or GPU.

    python benchmarks/step/bricks.py [--device cpu|cuda] [--batch 4] [--rounds 8] [--log 1]
                                     [--plain] [--delays [--trace]] [--json FILE]

One run of random tokens in one process: after WARM steps, blocks of BLOCK steps with the timer take
turns with blocks without it, in the order on, off, off, on, so that a clock that drifts favours
neither. The cost is the median over the rounds of (on / off - 1) of the blocks' median step times.
Beside it: the table of the bricks, the coverage (1 - other / step), and the alerts, of which an
undisturbed run has none: --rounds 34 times 2,000 steps. On a CPU a model of 1 M
parameters, on a GPU that of configs/train/pretrain-50m.yaml: micro-batches of 1,024 tokens a row
are replayed as CUDA graphs up to --batch 32, and launched one kernel at a time above. --plain takes
PyTorch's own step on a GPU, compiled.

--delays is another run: a planned fault slows each brick down in turn for a window, and what the
watch names then is shown, with how many steps it took to.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import statistics
import sys
import tempfile
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from albor_core.andon.bricks.names import OF_STEP, brick_key, brick_name, in_order
from albor_core.andon.bricks.window import WINDOW
from albor_core.config.load import load_config
from albor_core.run.home.new_run import create_run
from albor_core.run.journal import read_journal
from albor_core.run.rundir import RunDir
from albor_core.run.state import StateWriter
from albor_core.train.loop import Training
from albor_core.train.process.attempt import Attempt
from albor_core.train.process.faults import faults_from
from albor_core.train.process.signals import SignalRequests

sys.path.append(str(Path(__file__).resolve().parents[1]))
from arguments import from_zero, new_file, positive

WARM, BLOCK = 60, 30
DELAY_S = 0.25
LEARNED = WARM + 12 * WINDOW  # a step by which budgets are learned
TURN = 4 * WINDOW  # steps of a delay and of the calm behind it
DELAYED = (*OF_STEP, "log")
CONFIG = Path(__file__).resolve().parents[2] / "configs/train/pretrain-50m.yaml"
SMALL = {  # on a CPU
    "hidden_size": 128,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 384,
    "vocab_size": 2048,
    "max_position_embeddings": 128,
}


class Switched(Training):
    """The trainer, that times its bricks in half of the blocks."""

    switches = True

    def _train_step(self, step: int) -> None:
        self.timed = self.brick_timer.brick if not hasattr(self, "timed") else self.timed
        if self.switches and not is_on(step):
            self.brick_timer.brick = lambda name: nullcontext()  # type: ignore[method-assign]
            self.step_clock.is_disturbed = True  # no figures of bricks: the watch looks elsewhere
        else:
            self.brick_timer.brick = self.timed  # type: ignore[method-assign]
        super()._train_step(step)


def is_on(step: int) -> bool:
    return step <= WARM or (step - WARM - 1) // BLOCK % 4 in (0, 3)


def sets_of(options: argparse.Namespace, folder: Path, steps: int) -> dict[str, Any]:
    on_gpu = options.device == "cuda"
    rows = 256 // options.batch * options.batch  # of an epoch
    found = {
        "data.train": folder / "data",
        "data.val": "null",
        "data.tokenizer": "null",
        "data.batch_size": options.batch,
        "training.gradient_accumulation": 1,
        "training.device": options.device,
        "training.epochs": 1 + steps * options.batch // rows,
        "training.max_steps": steps,
        "training.warmup_steps": 10,
        "training.log_interval": options.log,
        "training.eval_interval": 10 * steps,
        "training.save_interval": 10 * steps,
        "training.checkpoint.save_every": 10 * steps,
        "training.output_dir": folder / "runs",
        "monitoring.alerts": "[]",  # nothing is learned from random tokens
        "monitoring.bricks.trace": str(options.trace).lower(),
    }
    if not on_gpu:
        shape = {f"model.architecture.{name}": value for name, value in SMALL.items()}
        found |= {"data.seq_len": 128, "training.mixed_precision": "null", **shape}
    if options.plain:
        found |= {"training.stability.z_loss": 1e-6}
    return found


def make_run(options: argparse.Namespace, folder: Path, steps: int) -> RunDir:
    T, V = (1024, 32768) if options.device == "cuda" else (128, SMALL["vocab_size"])
    rng = np.random.default_rng(0)
    rows = rng.integers(0, V, size=(256, T), dtype=np.uint32)
    (folder / "data").mkdir()
    table = pa.table({"input_ids": pa.array(list(rows), pa.list_(pa.uint32()))})
    pq.write_table(table, folder / "data" / "shard-00000.parquet")
    sets = tuple(f"{key}={value}" for key, value in sets_of(options, folder, steps).items())
    resolved = load_config(CONFIG, sets).config.resolved()
    return create_run(
        folder / "runs", "bricks", experiment="benchmark", name="bricks", kind="train",
        argv=sys.argv, seed=0, config=json.dumps(resolved).encode(), resolved=resolved,
    )  # fmt: skip


def train(options: argparse.Namespace, steps: int, faults: str) -> list[dict[str, Any]]:
    """The records of a run's journal."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["ALBOR_HOME"] = f"{folder}/home"
        run = make_run(options, Path(folder), steps)
        config = load_config(run.config_resolved, ()).config
        training = Switched(
            Attempt(run, 1, "bricks"), config, SignalRequests(),
            faults_from({"ALBOR_FAULTS": faults}, attempt=1),
            StateWriter(run.state, run_id=run.id, attempt=1, nonce="bricks"),
        )  # fmt: skip
        training.switches = not faults
        with contextlib.redirect_stdout(io.StringIO()):
            training.run()
        return [line.record for line in read_journal(run.journal)]


def compare(options: argparse.Namespace) -> dict[str, Any]:
    """With the timer and without it, in turns."""
    records = train(options, WARM + 2 * options.rounds * BLOCK, "")
    rows = {r["step"]: r["v"] for r in records if r["t"] == "m" and r["step"] > WARM}
    rows = {step: row for step, row in rows.items() if "perf/step_ms" in row}
    blocks: dict[int, list[float]] = {}
    for step, row in rows.items():
        blocks.setdefault((step - WARM - 1) // BLOCK, []).append(row["perf/step_ms"])
    times = {block: statistics.median(found) for block, found in blocks.items()}
    on = [ms for block, ms in times.items() if block % 4 in (0, 3)]
    off = [ms for block, ms in times.items() if block % 4 in (1, 2)]
    costs = [100 * (a / b - 1) for a, b in zip(on, off, strict=True)]
    timed = [row for step, row in rows.items() if is_on(step)]
    keys = {key for row in timed for key in row if key.startswith("brick/")}
    table = {key: [row[key] for row in timed if key in row] for key in keys}
    names = in_order(brick_name(key) for key in keys)
    covered = [row["perf/brick_coverage"] for row in timed]
    return {
        "device": torch.cuda.get_device_name() if options.device == "cuda" else "cpu",
        "batch": options.batch,
        "steps": [r["data"] for r in records if r["t"] == "e" and r["name"] == "step.chosen"],
        "step_ms": {"on": statistics.median(on), "off": statistics.median(off)},
        "cost_percent": round(statistics.median(costs), 3),
        "rounds": [round(cost, 2) for cost in costs],
        "coverage": round(statistics.median(covered), 4),
        "least_coverage_of_an_interval": round(min(covered), 4),
        "bricks_ms": {name: round(statistics.median(table[brick_key(name)]), 4) for name in names},
        "alerts": [r["data"]["rule"] for r in records if r.get("name") == "andon.alert"],
    }


def delay(options: argparse.Namespace) -> dict[str, Any]:
    """Each brick slowed down in turn: the rules that fired, and how many steps later."""
    begins = {brick: LEARNED + TURN * at for at, brick in enumerate(DELAYED)}
    faults = ",".join(
        f"{brick}:sleep={DELAY_S}@{first + 1}-{first + WINDOW}" for brick, first in begins.items()
    )
    records = train(options, LEARNED + TURN * len(DELAYED), faults)
    alerts = [r for r in records if r.get("name") == "andon.alert"]
    return {
        "before": [r["data"]["rule"] for r in alerts if r["step"] <= LEARNED],
        "traces": [
            r["data"] for r in records if r.get("name") in ("brick.traced", "brick.untraced")
        ],
        **{
            brick: [
                [r["data"]["rule"], r["step"] - first]
                for r in alerts
                if first < r["step"] <= first + TURN
            ]
            for brick, first in begins.items()
        },
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--batch", type=positive, default=4)
    parser.add_argument("--log", type=positive, default=1, help="steps of a log interval")
    parser.add_argument(
        "--rounds", type=from_zero, default=8, help="even; none without the comparison"
    )
    parser.add_argument("--plain", action="store_true")
    parser.add_argument("--delays", action="store_true")
    parser.add_argument("--trace", action="store_true", help="keep a trace of the first delay")
    parser.add_argument("--json", type=new_file)
    options = parser.parse_args()
    if not options.rounds and not options.delays:
        parser.error("--rounds 0 without --delays measures nothing")
    if options.device == "cuda" and not torch.cuda.is_available():
        sys.stderr.write("--device cuda needs a GPU; torch sees none here\n")
        return 2
    report = compare(options) if options.rounds else {}
    if options.delays:
        report["named"] = delay(options)
    print(json.dumps(report))
    if options.json:
        options.json.write_text(json.dumps(report, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
