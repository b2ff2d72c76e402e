"""The proof run: the 350M model from texts to a report, its trainer killed twice: one GPU.

    python research/proof.py --out DIR [--steps 1648] [--config CONFIG]
                             [--set FIELD=VALUE ...] [--humaneval FILE]
                             [--record FILE.tar.xz] [--stop-after S]

Corpus and judge are those of sprint.py: Python sources, whole packages held out, near-duplicates
left out. 1,648 steps of 64 rows of 1,024 are 108.0M tokens. Half of the documents are filled in the
middle (data.fim), budgets of time and tokens watch, and at a third and at two thirds of the steps
the trainer is killed (-9); its guard resumes it. Then: bits per byte, FIM and HumanEval (where its
file is not named, the tasks that Albor brings along), the report, and what is held against them:
each step once in the history, two restarts, the seconds of steps.

Each stage is a command of `albor`, which proof.json in DIR has with its result; a stage that is
there is not done again, and a run that was cut short goes on. After --stop-after seconds the run is
stopped, to go on in the next call. --record packs what tells of the run, and nothing of the machine
beside it (record.py says what that leaves out), as `albor demo --proof` opens it anywhere.
Exit code 0 where all holds, 1 where something does not or is left, 2 without a GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from jobs import ROOT
from pretrain import BATCH, LARGE, T, albor
from record import write_record
from timed_runs import corpus, measured, phase_of

from albor_core.run.rundir import RunDir
from albor_core.run.state import read_state
from albor_core.run.status import ENDS

sys.path.append(str(Path(__file__).resolve().parents[1] / "benchmarks"))
from arguments import new_folder, not_negative, positive, read_config, there

STEPS = 1648  # 108.0M tokens
KILLED_AT = (1 / 3, 2 / 3)
POLL_S = 0.25
MOST_STEP_S, MOST_RECORD_BYTES = 600.0, 2_000_000


class Proof:
    """What is known so far, in a file that each stage rewrites."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.known: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}

    def stage(self, name: str, work: Callable[[], Any]) -> Any:
        """Its result, from `work` unless it is known."""
        if name not in self.known:
            begun = time.monotonic()
            self.keep(name, work())
            print(f"{name}: {time.monotonic() - begun:.0f} s", flush=True)
        return self.known[name]

    def keep(self, name: str, result: Any) -> None:
        self.known[name] = result
        part = self.file.with_suffix(".part")
        part.write_text(json.dumps(self.known, indent=1, default=str))
        part.replace(self.file)


def told(*words: object) -> dict[str, Any]:
    """A command of `albor`, and what it answers."""
    return {"command": " ".join(["albor", *map(str, words)]), "found": albor(*words)}


def train_words(data: dict[str, Any], options: argparse.Namespace) -> list[str]:
    """Of `albor train plan` and `apply`."""
    steps, rows = options.steps, options.rows
    sets = {
        "data.train": data["train"],
        "data.val": data["held"],
        "data.tokenizer": data["tokenizer"],
        "data.batch_size": rows,
        "data.fim": "{rate: 0.5}",
        "optimizer.lr": 1e-3,
        "training.epochs": 2,
        "training.max_steps": steps,
        "training.warmup_steps": steps // 20,
        "training.gradient_accumulation": 1,
        "training.log_interval": 1,
        "training.eval_interval": max(1, steps // 8),
        "training.eval_batches": 8,
        "training.save_interval": max(1, steps // 16),
        "training.checkpoint.save_every": max(1, steps // 16),
        "training.output_dir": options.out / "runs",
        "monitoring.budgets": f"{{tokens: {2 * steps * rows * T}, wall_hours: 1}}",
        "guard.backoff_s": "[1]",
    }
    words = [*(f"{key}={value}" for key, value in sets.items()), *options.set]
    return [options.config, *(word for one in words for word in ("--set", one))]


def train(proof: Proof, words: Sequence[str], steps: int, until: float) -> Path | None:
    """The run, once it is over; None where time was."""
    if "begun" not in proof.known:
        made = told("train", "apply", *words, "--name", "proof", "--detach")
        proof.keep("begun", {"command": made["command"], "run": made["found"]["run"]["path"]})
    path = Path(proof.known["begun"]["run"])
    if (phase := phase_of(path)) == "stopped" or phase not in ENDS:
        with suppress(SystemExit):  # its guard may live still: then it is followed
            albor("train", "resume", path, "--detach")
            proof.keep("resumed", proof.known.get("resumed", 0) + 1)
    kills = proof.known.setdefault("kills", [])
    while time.monotonic() < until:
        state = read_state(RunDir(path).state) or {}
        due = len(kills) < len(KILLED_AT) and int(KILLED_AT[len(kills)] * steps)
        if due and state.get("phase") == "training" and state.get("global_step", 0) >= due:
            with suppress(ProcessLookupError):
                os.kill(state["pid"], signal.SIGKILL)
                kills.append({"step": state["global_step"], "pid": state["pid"]})
                proof.keep("kills", kills)
                print(f"killed {state['pid']} at step {state['global_step']}", flush=True)
            wait_for_another(path, state["pid"], until)
        if state.get("phase") in ENDS:
            shown = albor("runs", "show", path)
            if shown["run"]["ended_status"] is not None:
                return path
        time.sleep(POLL_S)
    albor("guard", "stop", path)
    return None


def wait_for_another(run: Path, pid: int, until: float) -> None:
    """Until a trainer with another pid writes its state."""
    while time.monotonic() < until and (read_state(RunDir(run).state) or {}).get("pid") == pid:
        time.sleep(POLL_S)


def tasks(data: dict[str, Any], humaneval: Path | None, file: Path) -> Path:
    """What is evaluated, as a file of `albor eval`."""
    held = data["held_text"]
    asked = [
        {"kind": "text", "data": held},
        {"kind": "fim", "data": held, "name": "fim", "items": 200, "seed": 0, "max_bytes": 1000},
        {"kind": "code", "data": "own" if humaneval is None else str(humaneval.resolve())},
    ]
    file.write_text(json.dumps({"tasks": asked}, indent=1))  # JSON is YAML, too
    return file


def held_against(run: Path, steps: int, kills: int, resumed: int) -> dict[str, Any]:
    """What the run has to show for itself, each with whether it holds."""
    shown = albor("runs", "show", run)
    losses = Counter(int(step) for step, _, _ in shown["points"]["train/loss"])
    seconds, _ = measured(shown)
    restarts = shown["run"]["attempts"] - 1 - resumed  # those of its guard
    missing = [step for step in range(1, steps + 1) if losses[step] != 1]
    return {
        "completed": {"found": shown["run"]["ended_status"],
                      "holds": shown["run"]["ended_status"] == "completed"},
        "each step once": {"found": f"{len(missing)} are not", "holds": not missing},
        "restarts": {"found": restarts, "holds": restarts == kills == len(KILLED_AT)},
        "seconds of steps": {"found": round(seconds, 1), "holds": seconds <= MOST_STEP_S},
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=new_folder, required=True, help="corpus, shards and the run")
    parser.add_argument("--steps", type=positive, default=STEPS)
    parser.add_argument("--rows", type=positive, default=BATCH, help="of 1,024 tokens a step")
    parser.add_argument("--config", default=LARGE)
    parser.add_argument("--set", action="append", default=[], metavar="FIELD=VALUE")
    parser.add_argument("--humaneval", type=there, help="HumanEval.jsonl or .jsonl.gz")
    parser.add_argument("--record", type=Path, metavar="FILE.tar.xz")
    parser.add_argument("--stop-after", type=not_negative, default=float("inf"), metavar="S")
    options = parser.parse_args()
    file = ROOT / options.config
    read_config(parser, file if file.is_file() else Path(options.config))
    if not torch.cuda.is_available():
        sys.stderr.write("research/proof.py needs a CUDA GPU; torch sees none here\n")
        return 2
    return prove(options)


def prove(options: argparse.Namespace) -> int:
    until = time.monotonic() + options.stop_after
    options.out = options.out.resolve()
    options.out.mkdir(parents=True, exist_ok=True)
    os.environ["ALBOR_HOME"] = str(options.out / "home")
    proof = Proof(options.out / "proof.json")
    data = proof.stage("data", lambda: json.loads(json.dumps(corpus(options.out), default=str)))
    words = train_words(data, options)
    proof.stage("plan", lambda: told("train", "plan", *words))
    run = train(proof, words, options.steps, until)
    if run is None:
        print("the run is stopped and not over: call this again", file=sys.stderr)
        return 1
    asked = tasks(data, options.humaneval, options.out / "tasks.yaml")
    evaluated = proof.stage("evaluation", lambda: told("eval", "apply", run, "--tasks", asked))
    report = options.out / "proof.html"
    proof.stage("report", lambda: told("report", run, "-o", report, "--force"))
    kills, resumed = len(proof.known["kills"]), proof.known.get("resumed", 0)
    checks = held_against(run, options.steps, kills, resumed)
    if options.record is not None:
        size = write_record(RunDir(run), options.record)
        checks["bytes of the record"] = {"found": size, "holds": size <= MOST_RECORD_BYTES}
    proof.keep("checks", checks)
    for task in evaluated["found"]["tasks"]:
        for one in task["scores"]:
            print(f"{one['name']}: {one['value']:.4f}")
    for name, check in checks.items():
        print(f"{'holds' if check['holds'] else 'FAILS'}: {name}: {check['found']}")
    return 0 if all(check["holds"] for check in checks.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
