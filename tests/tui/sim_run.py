"""A program that writes a real run directory, for looking at screens and for end-to-end tests.

    python tests/tui/sim_run.py DIR --steps 2000 --rate 10

It holds run.lock, journals a noisy decaying loss with validation points and an alert, publishes
training_state.json with a made-up GPU and obeys the trainer's signals as far as a screen can see.
Started by `albor guard run -- python tests/tui/sim_run.py` it is an attempt of that run. It imports
no torch. `--cockpit` opens the cockpit on the demo store instead (demo_store.py).
"""

from __future__ import annotations

import argparse
import math
import os
import random
import shutil
import signal
import time
from pathlib import Path
from typing import Any

from albor_core.guard.supervised_attempt import SupervisedAttempt, inherited_attempt
from albor_core.run.files.whole_file import write_json
from albor_core.run.home.new_run import create_run
from albor_core.run.journal import Journal
from albor_core.run.liveness import take_lock
from albor_core.run.rundir import RunDir, new_run_id, read_json
from albor_core.run.state import HISTORY, StateWriter

GIB = 1 << 30
TOKENS_PER_STEP = 65_536
BRICKS = {"data": 2.1, "forward": 104.0, "backward": 209.0, "optimizer": 31.0, "other": 3.0}
SHARDS = (1 << 20, 1 << 16)  # bytes of a checkpoint's two files: sparse, they cost no disk
KEPT = 3
PROMPT = "def fibonacci(n):\n"
SAMPLE = "    if n < 2:\n        return n\n    return fibonacci(n - 1) + fibonacci(n - %d)\n"
BUDGETS = {"data": 10.0, "forward": 120.0, "backward": 220.0, "optimizer": 25.0}


class Simulation:
    """One attempt of a run."""

    def __init__(
        self,
        run: RunDir,
        *,
        steps: int,
        rate: float,
        seed: int,
        life: SupervisedAttempt | None = None,
        is_rich: bool = False,
    ) -> None:
        self.run, self.steps, self.rate = run, steps, rate
        self.rng = random.Random(seed)
        self.attempt = life.attempt if life else 1
        self.nonce = life.nonce if life else f"{seed:08x}"
        self.lock = None if life else take_lock(run.run_lock)  # the guard's stub holds it
        self.journal = Journal(run.journal, attempt=self.attempt)
        self.state = StateWriter(run.state, run_id=run.id, attempt=self.attempt, nonce=self.nonce)
        self.log = None if life else run.log(1).open("a", buffering=1)  # or the guard's pump
        self.wanted = "run"
        self.ema = math.nan
        self.histories: dict[str, list[float]] = {"loss": [], "lr": [], "grad_norm": []}
        self.stride = 1  # steps between two points of a history
        self.saved: list[int] = []
        self.is_rich = is_rich
        self.machine: dict[str, float] = {}
        self.state.fields = {
            "max_steps": steps,
            "batch_size": 64,
            "optimizer_name": "adamw",
            "device": "cuda:0",
            "model_path": "models/code-125m",
            "brick_budgets_ms": BUDGETS,
        }
        signal.signal(signal.SIGTERM, lambda *_: self._want("stop"))
        signal.signal(signal.SIGINT, lambda *_: self._want("stop"))
        signal.signal(signal.SIGUSR2, lambda *_: self._command())

    def _want(self, what: str) -> None:
        self.wanted = what

    def _command(self) -> None:
        order = read_json(self.run.guard / "cmd.json") or {}
        self.wanted = {"pause": "pause", "resume": "run"}.get(str(order.get("cmd")), self.wanted)
        answer = {"id": order.get("id"), "status": "done", "detail": ""}
        write_json(self.run.guard / "cmd_done.json", answer)

    def train(self) -> None:
        """All steps at `rate` a second; 0 is as fast as possible."""
        self.journal.event("run.start", step=0, attempt=self.attempt, device="cuda:0")
        self.journal.append("p", key="optimizer.lr", value=3e-4)
        self.state.phase("compiling", limit_s=900)
        self._pause(0.5)
        self.state.phase("training", limit_s=300)
        started = time.monotonic()
        for step in range(1, self.steps + 1):
            while self.wanted == "pause":
                if self.state.current_phase != "paused":
                    self.state.phase("paused")
                self.state.keep_alive()
                time.sleep(0.1)
            if self.state.current_phase == "paused":
                self.state.phase("training", limit_s=300)
            if self.wanted == "stop":
                self._finish("stopped", step, 143)
                return
            self._step(step, time.monotonic() - started)
            self._pause(1.0)
        self._finish("completed", self.steps, 0)

    def _pause(self, periods: float) -> None:
        if self.rate:
            time.sleep(periods / self.rate)

    def _step(self, step: int, elapsed: float) -> None:
        values = self._measure(step)
        self.journal.metrics(step, values)
        if step % max(1, self.steps // 200) == 0:
            val = values["train/loss_ema"] + 0.08
            self.journal.metrics(step, {"val/loss": val, "val/ppl": math.exp(val)})
            self.state.fields |= {"val_loss": val, "val_ppl": math.exp(val)}
        if step % max(1, self.steps // (100 if self.is_rich else 20)) == 0:
            self._save(step, values["train/loss_ema"] + 0.08)
        if step == self.steps // 4:
            self._alert(step, values["optim/grad_norm"])
        self._publish(step, values, elapsed)
        if step % 10 == 0:
            print(  # the program's own log
                f"step {step:>7}  loss {values['train/loss']:.4f}  lr {values['optim/lr']:.2e}",
                file=self.log,
                flush=True,
            )

    def _measure(self, step: int) -> dict[str, float]:
        share = step / self.steps
        loss = 2.1 + 8.6 / (1 + 60 * share) ** 0.9 + self.rng.gauss(0, 0.06)
        self.ema = loss if math.isnan(self.ema) else 0.95 * self.ema + 0.05 * loss
        warm = min(1.0, share * 20)
        spike = 6.0 if step == self.steps // 4 else 0.0
        bricks = {f"brick/{n}_ms": ms + self.rng.gauss(0, ms / 50) for n, ms in BRICKS.items()}
        gpu = {"util_percent": 94 + self.rng.random() * 5, "power_w": 600 + self.rng.random() * 40}
        self.machine = {
            **bricks,
            **{f"gpu0/{name}": value for name, value in gpu.items()},
            "gpu0/memory_bytes": 61 * GIB,
            "gpu0/temperature_c": 64 + self.rng.random() * 3,
        }
        return {
            **(self.machine if self.is_rich else {}),
            "train/loss": loss,
            "train/loss_ema": self.ema,
            "optim/lr": 3e-4 * warm * (0.55 + 0.45 * math.cos(math.pi * share)),
            "optim/grad_norm": 0.4 + abs(self.rng.gauss(0, 0.12)) + spike,
            "perf/tokens_per_s": 187_000 + self.rng.gauss(0, 1500),
            "perf/mfu": 0.41 + self.rng.gauss(0, 0.004),
            "perf/step_ms": 349 + self.rng.gauss(0, 3),
            "train/tokens": step * TOKENS_PER_STEP,
        }

    def _save(self, step: int, val: float) -> None:
        """A checkpoint of holes, whole by its manifest, and a sample beside it."""
        folder = self.run.checkpoints / f"step-{step:08d}"
        folder.mkdir(parents=True, exist_ok=True)
        names = ("model.safetensors", "trainer.json")
        for name, size in zip(names, SHARDS, strict=True):
            with (folder / name).open("wb") as file:
                file.truncate(size)
        files = {name: {"size": size} for name, size in zip(names, SHARDS, strict=True)}
        manifest = {"step": step, "created": time.time(), "files": files}
        write_json(folder / "manifest.json", manifest)
        self.saved.append(step)
        for old in self.saved[:-KEPT]:
            shutil.rmtree(self.run.checkpoints / f"step-{old:08d}", ignore_errors=True)
        seconds, size = 0.8 + self.rng.random() / 5, sum(SHARDS)
        self.journal.event(
            "checkpoint.saved", step=step, path=folder.name, seconds=seconds, bytes=size
        )
        self.journal.append("s", step=step, prompt=PROMPT, text=SAMPLE % (step % 7))
        self.state.fields["checkpoint"] = {
            "last": {"step": step, "path": folder.name, "wall": time.time()},
            "best": {"step": step, "value": val},
            "in_flight": False,
            "failures": 0,
        }

    def _alert(self, step: int, value: float) -> None:
        data: dict[str, Any] = {
            "id": f"grad_norm@1.{step}",
            "rule": "grad_norm",
            "kind": "rule",
            "action": "warn",
            "metric": "optim/grad_norm",
            "value": value,
            "threshold": 5.0,
            "message": f"gradient norm {value:.2f} > 5 at step {step}",
        }
        self.journal.append("e", step=step, name="andon.alert", severity="warning", data=data)
        last = {**data, "severity": "warning", "step": step}
        self.state.fields["andon"] = {"severity": "warning", "last_alert": last}

    def _publish(self, step: int, values: dict[str, float], elapsed: float) -> None:
        for name, key in (
            ("loss", "train/loss"),
            ("lr", "optim/lr"),
            ("grad_norm", "optim/grad_norm"),
        ):
            if step % self.stride == 0:
                self.histories[name].append(values[key])
        if len(self.histories["loss"]) > HISTORY:  # thinned: a trend is of the whole run
            self.stride *= 2
            self.histories = {name: data[1::2] for name, data in self.histories.items()}
        self.state.fields |= {
            "global_step": step,
            "progress_percent": 100 * step / self.steps,
            "epoch": step / self.steps,
            "tokens": step * TOKENS_PER_STEP,
            "loss": values["train/loss"],
            "loss_ema": values["train/loss_ema"],
            "learning_rate": values["optim/lr"],
            "gradient_norm": values["optim/grad_norm"],
            "tokens_per_second": values["perf/tokens_per_s"],
            "samples_per_second": values["perf/tokens_per_s"] / 1024,
            "mfu": values["perf/mfu"],
            "step_ms": values["perf/step_ms"],
            "elapsed_seconds": elapsed,
            "eta_seconds": elapsed / step * (self.steps - step),
            **{f"{name}_history": list(data) for name, data in self.histories.items()},
            "bricks_ms": {name: self.machine[f"brick/{name}_ms"] for name in BRICKS},
            "gpu": [self._gpu(self.machine)],
            "host": {
                "cpu_percent": 20 + self.rng.random() * 8,
                "rss_bytes": int(8.2 * GIB),
                "memory_available_bytes": 87 * GIB,
                "memory_total_bytes": 128 * GIB,
                "disk_free_bytes": 412 * GIB,
                "load1": 3.4,
            },
        }
        self.state.publish()

    def _gpu(self, values: dict[str, float]) -> dict[str, Any]:
        return {
            "index": 0,
            "name": "NVIDIA H200",
            "util_percent": values["gpu0/util_percent"],
            "memory_used_bytes": 61 * GIB,
            "memory_total_bytes": 140 * GIB,
            "temperature_c": values["gpu0/temperature_c"],
            "power_w": values["gpu0/power_w"],
            "power_limit_w": 700,
            "sm_clock_mhz": 1830,
            "memory_clock_mhz": 3201,
            "throttle_reasons": [],
            "processes": [{"pid": os.getpid(), "name": "python", "memory_bytes": 61 * GIB}],
        }

    def _finish(self, word: str, step: int, code: int) -> None:
        self.journal.event("run.end", step=step, status=word, code=code)
        self.journal.close()
        self.state.phase(word)
        write_json(
            self.run.exit,
            {
                "schema": "albor.exit/1",
                "run_id": self.run.id,
                "attempt": self.attempt,
                "nonce": self.nonce,
                "code": code,
                "reason": word,
                "step": step,
                "message": "",
                "error": None,
                "wall": time.time(),
            },
        )


def make(parent: Path, name: str) -> RunDir:
    """A fresh run directory below `parent`."""
    return create_run(
        parent, new_run_id(name), experiment="pretrain", name=name, kind="train", argv=["sim"]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("parent", type=Path, nargs="?")
    parser.add_argument("--cockpit", action="store_true")
    parser.add_argument("--name", default="sim")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--rate", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--rich", action="store_true", help="bricks and GPU in the journal, beside 8 metrics"
    )
    options = parser.parse_args()
    if options.cockpit:
        from demo_store import open_cockpit

        raise SystemExit(open_cockpit())
    life = inherited_attempt(os.environ)
    if life is None and options.parent is None:
        parser.error("where to? give a folder")
    run = life.dir if life else make(options.parent, options.name)
    print(run.path, flush=True)
    Simulation(
        run,
        steps=options.steps,
        rate=options.rate,
        seed=options.seed,
        life=life,
        is_rich=options.rich,
    ).train()


if __name__ == "__main__":
    main()
