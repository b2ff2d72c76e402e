"""Few texts, much time: ours for so many seconds of many epochs, against one epoch by Muon.

    python benchmarks/results/slow.py --out DIR [--seconds 540] [--seeds 1 2 3] [--runs epoch slow]
        [--cards N] [--json FILE] [--stop-after S]

Corpus, clock and judge are those of sprint.py; --out may be the same. `slow` reads the same unique
tokens until the time is over, and `epoch` once with a schedule of its own; both have the model and
rates of configs/train/pretrain-50m-muon.yaml, `slow` with more weight decay. `epoch` calibrates for
both, so run it first where a call must not last longer than --seconds and 80 s: a run of
`slow` that was cut short after its last step is only evaluated by the next call, and one cut
before it goes on from its checkpoint. `slow` is to end MARGIN_NATS below `epoch`. Exit code 2
without a GPU, 1 where something is left.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import torch
from pretrain import BEST
from timed_runs import Recipe, Results, calibrated, corpus, encoded, keep, ours, spread
from verdict_of_seeds import compare

sys.path.append(str(Path(__file__).resolve().parents[1]))
from arguments import above_zero, new_folder, positive

EPOCH = Recipe(BEST, ())
SLOW = Recipe(BEST, ("optimizer.weight_decay=1.6",))
RECIPES = {"epoch": EPOCH, "slow": SLOW}
MARGIN_NATS = 0.05  # of a token, that `slow` is to be below `epoch`
BESIDE_S = 65.0  # until the last step is done; it stops once


def contend(name: str, seed: int, data: Mapping[str, Any], out: Path, seconds: float) -> Any:
    files = Path(data["train"]).rglob("shard-*.parquet")
    rows = sum(pq.read_metadata(file).num_rows for file in files)
    if name == "slow":
        found = ours(SLOW, data, out, seconds, seed)
    else:
        calibrated(SLOW, data, out, seconds)
        found = ours(EPOCH, data, out, seconds, seed, most_steps=rows // EPOCH.batch)
    return found | {"unique_rows": rows, "epochs": round(found["steps"] * EPOCH.batch / rows, 3)}


def in_bits_per_byte(nats: float, data: Mapping[str, Any], out: Path) -> float:
    """What `nats` of each token held out are."""
    tokens = sum(map(len, encoded(out, "held", Path(data["tokenizer"]))[0]))
    return nats * tokens / (math.log(2) * data["bytes"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--out", type=new_folder, required=True, help="corpus, shards and runs go here"
    )
    parser.add_argument("--seconds", type=above_zero, default=540.0, help="of training")
    parser.add_argument("--runs", nargs="+", choices=RECIPES, default=list(RECIPES))
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--cards", type=positive, default=1, help="GPUs to spread the runs over")
    parser.add_argument("--json", type=Path, help="results, kept and added to; OUT/slow.json")
    parser.add_argument("--stop-after", type=float, default=float("inf"), metavar="S")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--result", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.stderr.write("benchmarks/results/slow.py needs a CUDA GPU; torch sees none here\n")
        return 2
    begun, out = time.monotonic(), options.out.resolve()
    file = out / "data.json"
    if options.worker:
        name, _, seed = options.worker.partition("@")
        data = json.loads(file.read_text())
        found = contend(name, int(seed), data, out, options.seconds)
        options.result.write_text(json.dumps(found))
        return 0
    out.mkdir(parents=True, exist_ok=True)
    os.environ["ALBOR_HOME"] = str(out / "home")
    data = corpus(out)
    keep(file, data)
    results = Results(options.json or out / "slow.json")
    keys = [
        {"run": run, "seed": seed, "seconds": options.seconds, "recipe": RECIPES[run].digest}
        for run in options.runs
        for seed in options.seeds
    ]
    left = spread(keys, Path(__file__), ["--out", out, "--seconds", options.seconds], out=out,
                  results=results, cards=options.cards, until=begun + options.stop_after,
                  each_s=options.seconds + BESIDE_S)  # fmt: skip
    slow, epoch = (
        [row["bpb"] for row in results.rows
         if (row["recipe"], row["seconds"]) == (RECIPES[name].digest, options.seconds)]
        for name in ("slow", "epoch")
    )  # fmt: skip
    if slow and epoch:
        margin = in_bits_per_byte(MARGIN_NATS, data, out)
        print(json.dumps({"slow against epoch": compare(slow, epoch, margin=margin)}))
    for line in left:
        print(f"left: {line}", file=sys.stderr)
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
