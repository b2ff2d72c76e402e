"""The wall time that `albor train plan --probe` tells, against the run: any machine.

    python benchmarks/step/plan_probe.py [--runs 3] [--steps 300] [--config configs/demo.yaml]
                                         [--set KEY=VALUE ...] [--json FILE]

Probe, then run, `--runs` times; random tokens that it writes itself, an evaluation every 50 steps
and a checkpoint every 100. What is compared is `time.seconds` of the plan with the wall time of
`albor train apply` from the command to its end. Prints the error of each and the load of the
machine at both: on a machine with other work the two differ as its load does. Exit code 1 where
the median error is above TARGET.
"""

from __future__ import annotations

import argparse
import json
import os
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

sys.path.append(str(Path(__file__).resolve().parents[1]))
from arguments import new_file, positive, read_config

ROOT = Path(__file__).resolve().parents[2]
TARGET = 0.15
ALBOR = [sys.executable, "-P", "-m", "albor_core.cli", "train"]


def write_shards(folder: Path, sequences: int, seq_len: int, vocab: int) -> Path:
    folder.mkdir()
    ids = np.random.default_rng(0).integers(0, vocab, sequences * seq_len, dtype=np.uint32)
    ends = np.arange(0, len(ids) + 1, seq_len, dtype=np.int32)
    rows = pa.ListArray.from_arrays(ends, pa.array(ids))
    pq.write_table(pa.table({"input_ids": rows}), folder / "shard-00000.parquet")
    return folder


def albor(*words: str, env: dict[str, str]) -> tuple[str, float]:
    """Its stdout and the seconds it took; ends this program where it fails."""
    began = time.perf_counter()
    done = subprocess.run(
        [*ALBOR, *words], env=env, cwd=ROOT, capture_output=True, text=True, check=False
    )
    took = time.perf_counter() - began
    if done.returncode:
        sys.exit(f"albor train {' '.join(words[:2])}: {done.stdout[-500:]}{done.stderr[-2000:]}")
    return done.stdout, took


def once(options: argparse.Namespace, folder: Path, number: int) -> dict[str, Any]:
    env = {**os.environ, "ALBOR_HOME": str(folder / f"home-{number}"), "PYTHONPATH": str(ROOT)}
    chosen = [
        f"data.train={folder / 'train'}",
        f"data.val={folder / 'val'}",
        "data.tokenizer=null",
        f"training.max_steps={options.steps}",
        "training.warmup_steps=10",
        "training.eval_interval=50",
        "training.save_interval=100",
        f"training.output_dir={folder / 'runs'}",
        *options.overrides,
    ]
    words = [options.config, *(word for one in chosen for word in ("--set", one))]
    before = os.getloadavg()[0]
    text, probed_s = albor("plan", *words, "--probe", "--json", env=env)
    planned = json.loads(text)
    between = os.getloadavg()[0]
    _, ran_s = albor("apply", *words, "--name", f"run-{number}", env=env)
    told = planned["time"]
    return {
        "planned_s": told["seconds"],
        "low_s": told["low_s"],
        "high_s": told["high_s"],
        "ran_s": ran_s,
        "error": told["seconds"] / ran_s - 1,
        "probe_s": probed_s,
        "device": planned["device"]["name"],
        "load": [before, between, os.getloadavg()[0]],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=positive, default=3)
    parser.add_argument("--steps", type=positive, default=300)
    parser.add_argument("--config", default="configs/demo.yaml")
    parser.add_argument("--set", dest="overrides", action="append", default=[])
    parser.add_argument("--json", type=new_file)
    options = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    config = read_config(parser, ROOT / options.config, options.overrides)
    seq_len, vocab = config.data.seq_len, config.model.architecture.vocab_size
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        needed = config.sequences_per_step * options.steps
        write_shards(folder / "train", needed, seq_len, vocab)
        write_shards(folder / "val", 64, seq_len, vocab)
        made = []
        print(f"{'planned s':>10}{'between':>18}{'ran s':>9}{'error':>8}{'probe s':>9}  load")
        for number in range(options.runs):
            made.append(one := once(options, folder, number))
            between = f"{one['low_s']:.0f} and {one['high_s']:.0f}"
            load = " ".join(f"{value:.2f}" for value in one["load"])
            print(
                f"{one['planned_s']:>10.1f}{between:>18}{one['ran_s']:>9.1f}{one['error']:>8.1%}"
                f"{one['probe_s']:>9.1f}  {load}",
                flush=True,
            )
    median = statistics.median(abs(one["error"]) for one in made)
    worst = max(abs(one["error"]) for one in made)
    print(f"{made[0]['device']}: error median {median:.1%}, worst {worst:.1%}, target {TARGET:.0%}")
    if options.json:
        options.json.write_text(json.dumps({"runs": made, "median": median}, indent=1))
    sys.exit(median > TARGET)


if __name__ == "__main__":
    main()
