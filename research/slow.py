"""Few texts, much time: ours for so many seconds of many epochs, against one epoch and slowrun.

    python research/slow.py --out DIR [--seconds 540] [--seeds 1 2 3] [--runs epoch slow]
        [--cards N] [--peers DIR] [--json FILE] [--stop-after S]

Corpus, clock and judge are those of sprint.py; --out may be the same. `slow` reads the same unique
tokens until the time is over, and `epoch` once with a schedule of its own; both have the model and
rates of configs/train/pretrain-50m-muon.yaml, `slow` with more weight decay. NAME+FIELD=VALUE sets
a field of the config besides. `epoch` calibrates for itself and `slow`, so run it first where a
call must not last longer than --seconds and 80 s (a variant calibrates for itself): a run of
`slow` that was cut short after its last step is only evaluated by the next call, and one cut
before it goes on from its checkpoint. `slow` is to end MARGIN_NATS below `epoch`.

`slowrun` is cloned to PEERS/slowrun and trains as peers/slowrun.py says; slowrun+FLAG=VALUE sets a
flag of it. It does not go on after it was cut short, and takes PEER_BESIDE_S besides. Variants are
compared with `epoch` and `slow`, and those that go on with slowrun; no margin is asked there.
Exit code 2 without a GPU, 1 where something is left.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import torch
from peers import slowrun
from peers.autoresearch import VOCABULARY as SMALL
from pretrain import BEST
from timed_runs import (
    Recipe,
    Results,
    calibrated,
    corpus,
    encoded,
    keep,
    ours,
    parts_of,
    spread,
    tokenizer_of,
)
from verdict_of_seeds import compare

sys.path.append(str(Path(__file__).resolve().parents[1] / "benchmarks"))
from arguments import above_zero, new_file_below, new_folder, not_negative, positive, there

EPOCH = Recipe(BEST, ())
SLOW = Recipe(BEST, ("optimizer.weight_decay=1.6",))
RECIPES = {"epoch": EPOCH, "slow": SLOW}
PEER = "slowrun"
MARGIN_NATS = 0.05  # of a token, that `slow` is to be below `epoch`
BESIDE_S = 65.0  # until the last step is done; it stops once
PEER_BESIDE_S = 300.0  # of slowrun: it compiles, is measured, and judges weights of many epochs


def contender(word: str) -> str:
    """Argument of --runs."""
    names = (*RECIPES, PEER)
    if parts_of(word)[0] not in names:
        known = ", ".join(names)
        raise argparse.ArgumentTypeError(f"{word!r} is none of {known}, nor NAME+FIELD=VALUE ...")
    return word


def is_peer(name: str) -> bool:
    return parts_of(name)[0] == PEER


def recipe(name: str) -> dict[str, str]:
    """Marks results of ours: those of another recipe are kept, but do not count."""
    return {} if is_peer(name) else {"recipe": RECIPES[parts_of(name)[0]].variant(name).digest}


def contend(name: str, seed: int, data: Mapping[str, Any], options: Any) -> dict[str, Any]:
    out, seconds = options.out, options.seconds
    base, sets = parts_of(name)
    if base == PEER:
        return slowrun.slowrun(data, out, seconds, seed, options.peers, sets)
    files = Path(data["train"]).rglob("shard-*.parquet")
    rows = sum(pq.read_metadata(file).num_rows for file in files)
    made = RECIPES[base].variant(name)
    if name == "epoch":
        calibrated(SLOW, data, out, seconds)
    most = rows // made.batch if base == "epoch" else None
    found = ours(made, data, out, seconds, seed, most_steps=most)
    return found | {"unique_rows": rows, "epochs": round(found["steps"] * made.batch / rows, 3)}


def in_bits_per_byte(nats: float, data: Mapping[str, Any], out: Path) -> float:
    """What `nats` of each token held out are."""
    tokens = sum(map(len, encoded(out, "held", Path(data["tokenizer"]))[0]))
    return nats * tokens / (math.log(2) * data["bytes"])


def comparisons(
    rows: Sequence[Mapping[str, Any]], seconds: float, margin: float
) -> Iterator[dict[str, Any]]:
    """What ours reached at these seconds, against whom it is compared with; `margin` is what those
    that go on are to be below `epoch`.
    """
    bpb: dict[str, list[float]] = {}
    for row in rows:
        if {"seconds": seconds, **recipe(row["run"])}.items() <= row.items():
            bpb.setdefault(row["run"], []).append(row["bpb"])
    for name in (name for name in bpb if not is_peer(name) and name != "epoch"):
        goes_on = parts_of(name)[0] == "slow"
        for other in bpb:
            if other != name and (other in RECIPES or (goes_on and is_peer(other))):
                wanted = margin if goes_on and other == "epoch" else 0.0
                told = compare(bpb[name], bpb[other], margin=wanted)
                yield {f"{name} against {other}": told}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--out", type=new_folder, required=True, help="corpus, shards and runs go here"
    )
    parser.add_argument("--seconds", type=above_zero, default=540.0, help="of training")
    parser.add_argument("--runs", nargs="+", type=contender, default=list(RECIPES),
                        help=f"of {', '.join(RECIPES)}, {PEER}, NAME+FIELD=VALUE ...")  # fmt: skip
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--cards", type=positive, default=1, help="GPUs to spread the runs over")
    parser.add_argument("--peers", type=there, help="holds slowrun/")
    parser.add_argument(
        "--json", type=new_file_below, help="results, kept and added to; OUT/slow.json"
    )
    parser.add_argument("--stop-after", type=not_negative, default=float("inf"), metavar="S")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--result", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.stderr.write("research/slow.py needs a CUDA GPU; torch sees none here\n")
        return 2
    with_peer = any(map(is_peer, options.runs))
    if options.peers is None and with_peer:
        parser.error("--peers DIR: where slowrun was cloned to; or leave it out of --runs")
    if with_peer:
        slowrun.check(options.peers)
    begun, out = time.monotonic(), options.out.resolve()
    options.out, file = out, out / "data.json"
    if options.worker:
        name, _, seed = options.worker.rpartition("@")
        found = contend(name, int(seed), json.loads(file.read_text()), options)
        options.result.write_text(json.dumps(found))
        return 0
    out.mkdir(parents=True, exist_ok=True)
    os.environ["ALBOR_HOME"] = str(out / "home")
    data = corpus(out)
    keep(file, data)
    for split in ("train", "held") if with_peer else ():
        encoded(out, split, tokenizer_of(out, SMALL))
    results = Results(options.json or out / "slow.json")
    keys = [
        {"run": run, "seed": seed, "seconds": options.seconds} | recipe(run)
        for run in options.runs
        for seed in options.seeds
    ]
    words = ["--out", out, "--seconds", options.seconds]
    words += [] if options.peers is None else ["--peers", options.peers.resolve()]
    left = spread(keys, Path(__file__), words, out=out, results=results, cards=options.cards,
                  until=begun + options.stop_after,
                  each_s=options.seconds + (PEER_BESIDE_S if with_peer else BESIDE_S))  # fmt: skip
    margin = in_bits_per_byte(MARGIN_NATS, data, out) if results.rows else 0.0
    for comparison in comparisons(results.rows, options.seconds, margin):
        print(json.dumps(comparison))
    for line in left:
        print(f"left: {line}", file=sys.stderr)
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
