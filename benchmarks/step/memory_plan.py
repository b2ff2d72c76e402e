"""The plan's memory against what a GPU was asked for: one GPU.

    python benchmarks/step/memory_plan.py [--sizes 50m 125m 350m] [--batches 8 32 64] [--steps 3]
                                          [--set KEY=VALUE ...] [--limit 350] [--json FILE]

configs/train/pretrain-{50m,125m,350m}.yaml, each with micro-batches of 8, 32 and 64 sequences of
random tokens that it writes itself. Every case is a process of its own: `albor train plan`, then
the trainer for some steps with an evaluation before the first and after the last. What the plan
refuses is not run. GiB are torch's peak of allocated and of reserved memory, the device's (the
reserved peak and what else is taken on the GPU at the end: context, CUDA graphs; other programs,
too), and what is needed: the allocated peak and that else, without the cache, which torch gives
back when there is no room. Ratio: the plan over what is needed.
A case that fails, or that --limit seconds leave no time for, is printed, and the others run. Exit
code 2 without a GPU, 1 where the plan lies outside TARGET of what is needed.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

sys.path.append(str(Path(__file__).resolve().parents[1]))
from arguments import above_zero, new_file, positive

ROOT = Path(__file__).resolve().parents[2]
GIB = 1 << 30
TARGET = 1.00, 1.25
T, VOCAB, HELD_OUT = 1024, 32768, 128
ACCUMULATED = 2  # micro-batches a step at most: more need no more memory
CASE_S = 150.0
COLUMNS = ("plan", "needed", "allocated", "reserved", "device")


def write_shards(folder: Path, sequences: int, seed: int) -> Path:
    folder.mkdir()
    ids = np.random.default_rng(seed).integers(0, VOCAB, sequences * T, dtype=np.uint32)
    rows = pa.ListArray.from_arrays(np.arange(0, len(ids) + 1, T, dtype=np.int32), pa.array(ids))
    pq.write_table(pa.table({"input_ids": rows}), folder / "shard-00000.parquet")
    return folder


def overrides(folder: Path, shipped: int, options: argparse.Namespace, batch: int) -> list[str]:
    """Of the shipped config: data, length, and nothing that decides what a step needs but its
    micro-batch.
    """
    steps = options.steps
    return [
        f"data.train={folder / 'train'}",
        f"data.val={folder / 'val'}",
        "data.tokenizer=null",
        f"data.batch_size={batch}",
        f"training.gradient_accumulation={min(shipped, ACCUMULATED)}",
        "training.epochs=1",
        f"training.max_steps={steps}",
        "training.warmup_steps=1",
        "training.log_interval=1",
        f"training.eval_interval={steps}",
        "training.eval_batches=2",
        f"training.output_dir={folder / 'out'}",
        f"training.checkpoint.save_every={steps}",
        "training.checkpoint.verify_after_write=false",
        "monitoring.alerts=[]",  # of random tokens the loss stays above 10
        *options.set,
    ]


def planned(config: Path, words: list[str]) -> dict[str, Any]:
    """The document of `albor train plan`."""
    sets = [word for one in words for word in ("--set", one)]
    line = [sys.executable, "-m", "albor_core.cli", "train", "plan", str(config), *sets, "--json"]
    done = subprocess.run(line, capture_output=True, text=True, cwd=ROOT, timeout=CASE_S)
    try:
        found: dict[str, Any] = json.loads(done.stdout)
        found["memory"]["total"]
    except (ValueError, KeyError) as error:
        raise RuntimeError(f"no plan: {done.stderr[-500:]}{done.stdout[-500:]}") from error
    return found


def train(folder: Path, config: Path, words: list[str]) -> dict[str, Any]:
    """An attempt of the trainer in this process, and what it took."""
    import torch

    from albor_core.config.load import load_config
    from albor_core.run.home.new_run import create_run
    from albor_core.run.state import StateWriter
    from albor_core.train.loop import Training
    from albor_core.train.process.attempt import Attempt
    from albor_core.train.process.faults import faults_from
    from albor_core.train.process.signals import SignalRequests

    loaded = load_config(config, words)
    run = create_run(
        folder / "out", "memory", experiment="memory", name="memory", kind="train",
        argv=sys.argv, seed=0, config=config.read_bytes(), resolved=loaded.config.resolved(),
    )  # fmt: skip
    state = StateWriter(run.state, run_id=run.id, attempt=1, nonce="n1")
    attempt, faults = Attempt(run, 1, "n1"), faults_from({}, attempt=1)
    training = Training(attempt, loaded.config, SignalRequests(), faults, state)
    outcome = training.run()
    torch.cuda.synchronize()
    free, total = torch.cuda.mem_get_info()
    reserved = torch.cuda.max_memory_reserved()
    return {
        "status": outcome.reason,
        "steps": outcome.step,
        "allocated": torch.cuda.max_memory_allocated(),
        "reserved": reserved,
        "device": reserved + total - free - torch.cuda.memory_reserved(),
        "chosen": type(training.train_state.stepper).__name__,
    }


def case(folder: Path, options: argparse.Namespace, size: str, batch: int) -> dict[str, Any]:
    """Plan and trainer; run in a process of its own."""
    from albor_core.config.load import load_config

    config = ROOT / f"configs/train/pretrain-{size}.yaml"
    shipped = load_config(config).config.training.gradient_accumulation
    words = overrides(folder, shipped, options, batch)
    document = planned(config, words)
    memory = document["memory"]
    result = {"size": size, "batch": batch, "plan": memory["total"], "memory": memory}
    refused = [p for p in document["problems"] if p["field"] == "data.batch_size"]
    if refused:
        return {**result, "status": "refused", "why": refused[0]["message"]}
    if document["problems"]:
        return {**result, "status": "failed", "why": json.dumps(document["problems"])[:500]}
    return {**result, **train(folder, config, words)}


def in_a_process(folder: Path, options: argparse.Namespace, size: str, batch: int) -> Any:
    """`case`, whatever happens to it."""
    answer = folder / "case.json"
    answer.unlink(missing_ok=True)
    paths = os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", "")))
    environ = {**os.environ, "ALBOR_HOME": str(folder / "home"), "PYTHONPATH": paths}
    line = [sys.executable, __file__, "--case", str(folder), size, str(batch)]
    line += ["--steps", str(options.steps)]
    line += [word for one in options.set for word in ("--set", one)]
    failed = {"size": size, "batch": batch, "status": "failed"}
    try:
        done = subprocess.run(line, capture_output=True, text=True, env=environ, timeout=CASE_S)
    except subprocess.TimeoutExpired:
        return {**failed, "why": f"nothing for {CASE_S:.0f} s"}
    finally:
        shutil.rmtree(folder / "out", ignore_errors=True)
    if not answer.exists():
        return {**failed, "why": f"exit {done.returncode}: {done.stderr[-600:].strip()}"}
    return json.loads(answer.read_text())


def judge(result: dict[str, Any]) -> dict[str, Any]:
    """With ratios, where there is something to divide."""
    if "device" not in result:
        return result
    needed = result["allocated"] + result["device"] - result["reserved"]
    ratio = result["plan"] / needed
    return {
        **result,
        "needed": needed,
        "plan_over_needed": round(ratio, 3),
        "in_target": TARGET[0] <= ratio <= TARGET[1],
    }


def line_of(result: dict[str, Any]) -> str:
    head = f"{result['size']:>5} x {result['batch']:<3} {result['status']:<9}"
    sizes = " ".join(f"{name} {result[name] / GIB:6.2f}" for name in COLUMNS if name in result)
    if "in_target" not in result:
        return f"{head} {sizes}  {result.get('why', '')}"
    words = "ok" if result["in_target"] else "OUTSIDE"
    ratio = result["plan_over_needed"]
    return f"{head} {result['chosen']:<11} {sizes}  plan/needed {ratio:.3f} {words}"


def found_device() -> str:
    """The GPU, or "". Asked in a process that ends: a context here would count in each case."""
    ask = "import torch; torch.cuda.is_available() and print(torch.cuda.get_device_name(), end='')"
    done = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True)
    return done.stdout.strip()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", nargs="*", default=["50m", "125m", "350m"])
    parser.add_argument("--batches", nargs="+", type=positive, default=[8, 32, 64])
    parser.add_argument("--steps", type=positive, default=3)
    parser.add_argument("--set", action="append", default=[], help="also override KEY=VALUE")
    parser.add_argument("--limit", type=above_zero, default=350.0, help="seconds, for all")
    parser.add_argument("--json", type=new_file)
    parser.add_argument("--case", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case:
        folder = Path(options.case[0])
        found = case(folder, options, options.case[1], int(options.case[2]))
        (folder / "case.json").write_text(json.dumps(found))
        return 0
    device = found_device()
    if not device:
        sys.stderr.write("benchmarks/step/memory_plan.py needs a CUDA GPU; torch sees none here\n")
        return 2
    begun, results = time.monotonic(), []
    print(f"{device}; GiB; target {TARGET[0]:.2f} to {TARGET[1]:.2f}", flush=True)
    with tempfile.TemporaryDirectory(prefix="albor-memory-") as place:
        folder = Path(place)
        most = max(options.batches) * ACCUMULATED * options.steps
        write_shards(folder / "train", most, seed=1)
        write_shards(folder / "val", HELD_OUT, seed=2)
        for size in options.sizes:
            for batch in options.batches:
                if time.monotonic() - begun > options.limit:
                    results.append({"size": size, "batch": batch, "status": "no time"})
                else:
                    results.append(judge(in_a_process(folder, options, size, batch)))
                print(line_of(results[-1]), flush=True)
                if options.json is not None:
                    options.json.write_text(json.dumps(results, indent=1))
    print(f"{time.monotonic() - begun:.0f} s")
    fine = all(r.get("in_target", r["status"] == "refused") for r in results)
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
