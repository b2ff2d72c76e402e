"""What journal, state file, telemetry and checkpoints cost the training loop: one GPU.

    python benchmarks/step/loop_cost.py [--config configs/train/pretrain-50m.yaml] [--batch 32]
                                        [--steps 250] [--rounds 6] [--unsaved] [--json FILE]

One run, in one process: blocks of --steps steps by the trainer as it is (a journal line each step,
state file, samples of the machine, one checkpoint a block, written and read back within the block's
time) take turns with blocks of the same steps and nothing else (batches from the same loader, the
same graphs), in the order bare, full, full, bare, so that a clock that drifts favours neither.
Random tokens, no accumulation, no evaluation. The cost is the median over the rounds of (full /
bare - 1), after WARM_STEPS (20 s of the default config), in which a checkpoint is written: a run's
first one allocates pinned memory, once ("save_ms"). --unsaved leaves the checkpoints out.
The configs save every 1,000 steps, so a block's one checkpoint is more than theirs. "launch_ms", of
full blocks: a median above the bare step is work of the device, a far larger p99 the host's. Exit
code 2 without a GPU.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from albor_core.config.load import load_config
from albor_core.run.home.new_run import create_run
from albor_core.run.rundir import RunDir
from albor_core.run.state import StateWriter
from albor_core.train.loop import Training
from albor_core.train.process.attempt import Attempt
from albor_core.train.process.faults import Faults
from albor_core.train.process.signals import SignalRequests
from albor_core.train.step.optimizer_step import take_step

sys.path.append(str(Path(__file__).resolve().parents[1]))
from arguments import new_file, positive, read_config

CONFIG = Path(__file__).resolve().parents[2] / "configs/train/pretrain-50m.yaml"
WARM_STEPS = 600


def no_brick(name: str) -> AbstractContextManager[None]:
    return nullcontext()


class Switched(Training):
    """The trainer, that leaves everything but the steps out of half of the blocks."""

    def __init__(self, *arguments: object, block: int, **options: object) -> None:
        super().__init__(*arguments, **options)  # type: ignore[arg-type]
        self.block = block
        self.seconds: dict[str, list[float]] = {"bare": [], "full": []}
        self.saves: list[float] = []  # seconds that the loop, not the saver's thread, spent on each
        self.launches: list[float] = []  # between those of full blocks: of the device or the host
        self._since = self._launched = 0.0

    def _is_bare(self, step: int) -> bool:
        return step > WARM_STEPS and (step - WARM_STEPS - 1) // self.block % 4 in (0, 3)

    def _train_step(self, step: int) -> None:
        if step > WARM_STEPS and (step - WARM_STEPS - 1) % self.block == 0:
            self._turn(step)
        if not self._is_bare(step):
            now, before = time.perf_counter(), self._launched
            self._launched = now
            if before and step > WARM_STEPS:
                self.launches.append(now - before)
            super()._train_step(step)
            return
        self._launched = 0.0
        clock, at = self.parts.clock, self.progress
        batch = clock.batch_at(at.sequences)
        where = {"start": clock.start(at.cursor, batch), "sequences": at.sequences + batch}
        stepper = self.train_state.stepper
        take_step(self.parts, stepper, self.faults, no_brick, step=step, batch=batch, **where)
        self.board.interval_log.read_late()  # of the full block before

    def _after_step(self) -> None:
        if not self._is_bare(self.step):
            super()._after_step()
        elif not self._is_bare(self.step + 1):  # the full block starts with clean counters
            self.board.interval_log.begin()
            self.step_clock.restart()

    def _save_if_wanted(self) -> None:
        begun, is_wanted = time.perf_counter(), self.due.save
        super()._save_if_wanted()
        if is_wanted and not self.due.save:
            self.saves.append(time.perf_counter() - begun)

    def _turn(self, step: int) -> None:
        """A block ends, another begins."""
        self.checkpoint_saving.wait()
        torch.cuda.synchronize()
        now = time.perf_counter()
        if step > WARM_STEPS + 1:
            self.seconds["bare" if self._is_bare(step - 1) else "full"].append(now - self._since)
        self._since = now


def make_run(options: argparse.Namespace, folder: Path) -> RunDir:
    T = 1024
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 32768, size=(4096, T), dtype=np.uint32)
    (folder / "data").mkdir()
    table = pa.table({"input_ids": pa.array(list(rows), pa.list_(pa.uint32()))})
    pq.write_table(table, folder / "data" / "shard-00000.parquet")
    last = WARM_STEPS + 2 * options.rounds * options.steps + 1  # one more block turns the last one
    sets = {
        "data.train": folder / "data",
        "data.val": "null",
        "data.tokenizer": "null",
        "data.batch_size": options.batch,
        "training.gradient_accumulation": 1,
        "training.epochs": 1 + last * options.batch // len(rows),
        "training.max_steps": last,
        "training.save_interval": last if options.unsaved else options.steps,
        "training.checkpoint.save_every": last if options.unsaved else options.steps,
        "training.output_dir": folder / "runs",
        "monitoring.alerts": "[]",  # nothing is learned from random tokens
    }
    loaded = load_config(options.config, tuple(f"{k}={v}" for k, v in sets.items()))
    resolved = loaded.config.resolved()
    raw = json.dumps(resolved).encode()
    return create_run(
        folder / "runs", "loop-cost", experiment="benchmark", name="loop-cost", kind="train",
        argv=sys.argv, seed=0, config=raw, resolved=resolved,
    )  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--config", type=Path, default=CONFIG)
    parser.add_argument("--batch", type=positive, default=32)
    parser.add_argument("--steps", type=positive, default=250, help="of a block")
    parser.add_argument("--rounds", type=positive, default=6, help="even")
    parser.add_argument("--unsaved", action="store_true", help="no checkpoints")
    parser.add_argument("--json", type=new_file)
    options = parser.parse_args()
    read_config(parser, options.config)
    if options.rounds < 2 or options.rounds % 2:
        parser.error("--rounds is even: rounds begin with either kind of block in turn")
    if not 1 <= options.steps <= WARM_STEPS:
        parser.error(f"--steps is 1 to {WARM_STEPS}: a checkpoint has to fall into the warm-up")
    if not torch.cuda.is_available():
        sys.stderr.write("benchmarks/step/loop_cost.py needs a CUDA GPU; torch sees none here\n")
        return 2
    with tempfile.TemporaryDirectory() as folder:
        run = make_run(options, Path(folder))
        config = load_config(run.config_resolved, ()).config
        training = Switched(
            Attempt(run, 1, "loop-cost"), config, SignalRequests(), Faults(),
            StateWriter(run.state, run_id=run.id, attempt=1, nonce="loop-cost"),
            block=options.steps,
        )  # fmt: skip
        outcome = training.run()
    seconds = training.seconds
    costs = [100 * (full / bare - 1) for bare, full in zip(*seconds.values(), strict=True)]
    report = {
        "device": torch.cuda.get_device_name(),
        "outcome": outcome.reason,
        "ms_per_step": {
            name: round(1000 * statistics.median(found) / options.steps, 3)
            for name, found in seconds.items()
        },
        "launch_ms": {
            "median": round(1000 * statistics.median(training.launches), 3),
            "p99": round(1000 * statistics.quantiles(training.launches, n=100)[-1], 3),
            "max": round(1000 * max(training.launches), 3),
        },
        "save_ms": [round(1000 * save, 1) for save in training.saves],
        "cost_percent": round(statistics.median(costs), 2),
        "rounds": [round(cost, 2) for cost in costs],
    }
    print(json.dumps(report))
    if options.json:
        options.json.write_text(json.dumps(report, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
