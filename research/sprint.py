"""What so many seconds of training on one GPU reach: ours, its peers, plain PyTorch by hand.

    python research/sprint.py --out DIR --seconds 120 [--runs ours ours-8k autoresearch]
        [--seeds 1 2 3] [--cards N] [--peers DIR] [--json FILE] [--stop-after S]

Everyone trains on the same texts (timed_runs.py), on one card, for --seconds of steps: compiling,
warming up, packing and evaluating do not count. Ours goes through `albor train apply` with OURS; it
stops half-way and is given as many steps as fit, and a run that took longer makes no claim.
The others look at the clock; they train 11 steps before it starts, and but for hand keep what
they learned. Judged by bits per byte of all held-out files (bits_per_byte.py): nats of
every token over ln 2 and the bytes of UTF-8, each with its own tokenizer and the context that it
was trained with; ours in fp32 by `albor eval`, and again as transformers loads it.

`ours-8k` has a vocabulary of 8,192, `ours-t2048` rows of so many tokens and as many a step,
`ours-8k-t2048` both, `ours-fit` documents that are cut only where they must be (best fit);
OURS+FIELD=VALUE sets a field of the config besides. With --trial ours is not loaded by
transformers; that makes no claim.
Peers are cloned to PEERS/autoresearch and PEERS/nanochat as the files of these names in peers/
say. `autoresearch` and `nanochat` have a vocabulary of 8,192, `autoresearch-32k` that of `ours`.
Results in --json are not made again, and each is written at once: call it again until nothing is
left. No run begins that would not end within --stop-after seconds. Exit code 2 without a GPU, 1
where something is left.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from peers.autoresearch import VOCABULARY as SMALL
from peers.contenders import autoresearch, hand
from peers.nanochat import check, nanochat
from pretrain import BEST, T
from timed_runs import (
    VOCABULARY,
    Recipe,
    Results,
    Rows,
    corpus,
    encoded,
    folder_of,
    keep,
    ours,
    parts_of,
    spread,
    tokenizer_of,
)
from verdict_of_seeds import compare

sys.path.append(str(Path(__file__).resolve().parents[1] / "benchmarks"))
from arguments import above_zero, new_file_below, new_folder, not_negative, positive, there

OURS = Recipe(BEST, (), batch=32, warmup=0.05)
"""What is trained: a config, what is set in it, rows of 1,024 a step, share of warm-up."""
OWN = re.compile(r"ours(?:-(?P<thousands>\d+)k)?(?:-t(?P<context>\d+))?(?P<fit>-fit)?")
"""Names of ours: vocabulary in 1,024, tokens a row, documents whole."""
FETCHED = ("autoresearch", "autoresearch-32k", "nanochat")
PEERS = (*FETCHED, "hand")
RUNS = ("ours", *PEERS)
VARIANT = "nor ours[-8k][-t2048][-fit][+FIELD=VALUE ...]"
MARGIN, P_BELOW = 0.02, 0.01  # bits per byte below a peer, and the chance of that
BESIDE_S = 150.0  # of a run, besides its seconds: start, compile, calibrate, evaluate


def contender(word: str) -> str:
    """Argument of --runs; with choices argparse would refuse an empty list."""
    if word not in PEERS and not OWN.fullmatch(parts_of(word)[0]):
        known = ", ".join(RUNS)
        raise argparse.ArgumentTypeError(f"{word!r} is none of {known}, {VARIANT}")
    return word


def rows_of(name: str) -> Rows:
    """What it reads; peers and `hand` have the usual texts."""
    told = OWN.fullmatch(parts_of(name)[0])
    if told is None:
        return Rows()
    thousands, context = told["thousands"], told["context"]
    vocabulary = int(thousands) * 1024 if thousands else VOCABULARY
    return Rows(vocabulary, int(context or T), "best-fit" if told["fit"] else "concat")


def recipe(name: str, *, is_trial: bool = False) -> dict[str, Any]:
    """Marks results of ours: those of another OURS, and trials, are kept, but do not count."""
    if not name.startswith("ours"):
        return {}
    return {"recipe": OURS.variant(name).digest, "trial": is_trial}


def contend(name: str, seed: int, options: Any) -> dict[str, Any]:
    """Of one contender: bpb and what it took."""
    seconds, out = options.seconds, options.out
    rows = folder_of(out, rows_of(name))
    data = json.loads((rows / "data.json").read_text())
    if name.startswith("ours"):
        return ours(OURS.variant(name), data, rows, seconds, seed, is_trial=options.trial)
    if name == "hand":
        return hand(data, out, seconds, seed)
    if name == "nanochat":
        return nanochat(data, out, tokenizer_of(out, SMALL), seconds, seed, options.peers)
    small = name == "autoresearch"
    return autoresearch(data, out, seconds, seed, options.peers, small=small)


def claims(rows: Sequence[Mapping[str, Any]], seconds: float) -> list[dict[str, Any]]:
    """Ours against each peer, at these seconds. A run of ours that took longer, or that
    transformers does not load alike, makes no claim.
    """
    rows = [row for row in rows if row["seconds"] == seconds]
    names = dict.fromkeys(row["run"] for row in rows if row["run"] not in PEERS)
    found = []
    for name, peer in itertools.product(names, PEERS):
        mine = [row for row in rows if {"run": name, **recipe(name)}.items() <= row.items()]
        is_fair = all(row["within"] and row["loads_in_transformers"] for row in mine)
        theirs = [row["bpb"] for row in rows if row["run"] == peer]
        if mine and theirs:
            told = compare([row["bpb"] for row in mine], theirs, margin=MARGIN, p_below=P_BELOW)
            told["holds"] = told["holds"] and is_fair
            claim = {"of": name, "against": peer, "seconds": seconds, "fair": is_fair}
            found.append({**claim, **told})
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--out", type=new_folder, required=True, help="corpus, shards and runs go here"
    )
    parser.add_argument("--seconds", type=above_zero, required=True, help="of training")
    parser.add_argument("--runs", nargs="*", type=contender, default=list(RUNS),
                        help=f"of {', '.join(RUNS)}, {VARIANT}; none: make the corpus")  # fmt: skip
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--cards", type=positive, default=1, help="GPUs to spread the runs over")
    parser.add_argument("--peers", type=there, help="holds autoresearch/, nanochat/")
    parser.add_argument(
        "--json", type=new_file_below, help="results, kept and added to; OUT/sprint.json"
    )
    parser.add_argument("--stop-after", type=not_negative, default=float("inf"), metavar="S")
    parser.add_argument(
        "--trial", action="store_true", help="ours in less time: makes no claim, only looks"
    )
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--result", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.stderr.write("research/sprint.py needs a CUDA GPU; torch sees none here\n")
        return 2
    if options.peers is None and not set(FETCHED).isdisjoint(options.runs):
        parser.error("--peers DIR: where the peers were cloned to; or leave them out of --runs")
    if "nanochat" in options.runs:
        check(options.peers)
    begun = time.monotonic()
    options.out = options.out.resolve()
    if options.worker:
        name, _, seed = options.worker.rpartition("@")
        found = contend(name, int(seed), options)
        options.result.write_text(json.dumps(found))
        return 0
    options.out.mkdir(parents=True, exist_ok=True)
    os.environ["ALBOR_HOME"] = str(options.out / "home")
    for rows in dict.fromkeys((Rows(), *map(rows_of, options.runs))):
        made = corpus(options.out, rows)
        keep(folder_of(options.out, rows) / "data.json", made)
    fetched = {name for name in options.runs if name in FETCHED}
    for vocabulary in {VOCABULARY if name == "autoresearch-32k" else SMALL for name in fetched}:
        for split in ("train", "held"):
            encoded(options.out, split, tokenizer_of(options.out, vocabulary))
    print(f"{torch.cuda.get_device_name()}; data in {time.monotonic() - begun:.0f} s", flush=True)
    results = Results(options.json or options.out / "sprint.json")
    keys = [
        {"run": run, "seed": seed, "seconds": options.seconds} | recipe(run, is_trial=options.trial)
        for seed in options.seeds
        for run in options.runs
    ]
    words = ["--out", options.out, "--seconds", options.seconds, "--runs", *options.runs]
    words += ["--trial"] if options.trial else []
    words += [] if options.peers is None else ["--peers", options.peers.resolve()]
    left = spread(keys, Path(__file__), words, out=options.out, results=results,
                  cards=options.cards, until=begun + options.stop_after,
                  each_s=options.seconds + BESIDE_S)  # fmt: skip
    for claim in claims(results.rows, options.seconds):
        print(json.dumps(claim))
    for line in left:
        print(f"left: {line}", file=sys.stderr)
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
