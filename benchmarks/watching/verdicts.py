"""How often the verdict of `albor runs diff` calls equal runs different, and finds real gaps.

    python benchmarks/watching/verdicts.py                    # 1,000 pairs a row, then runs on disk
    python benchmarks/watching/verdicts.py --pairs 0 --on-disk 1000

Two curves of LENGTH points are a common decay and AR(1) noise of variance 1 each; the second is
shifted by 0, 2, 3, 4 and 5 standard errors of the difference of their means over the last quarter,
the true one under that noise. An oracle that knows this standard error tests at the same 3.5 %.
Where the window holds few memories of the noise, (1 + rho) / (1 - rho) points each, no test that
must estimate the standard error finds five of them nineteen times in twenty; both columns say so.

On disk each kind of run is written, indexed and compared: without git, without a config, imported.
"""

from __future__ import annotations

import argparse
import math
import os
import platform
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import NormalDist
from typing import Any

from albor_core.store.diff.verdict import LEVEL, WINDOW, OrderedSeries, verdict

sys.path.append(str(Path(__file__).resolve().parents[1]))
from arguments import from_zero, positive

LENGTHS = (100, 400, 2000, 8000)
CORRELATIONS = (0.0, 0.5, 0.9, 0.97)
SHIFTS = (0, 2, 3, 4, 5)
MEMORIES = 26  # in the window: from so many on five standard errors are to be found
KINDS: dict[str, dict[str, Any]] = {
    "no git": {"kind": "track", "facts": {}, "config": True},
    "no config": {"kind": "track", "facts": {"git": {"commit": "c", "dirty": False}}},
    "imported": {"kind": "imported", "facts": {"git": {"commit": None}}},
}


def noise(chance: random.Random, count: int, rho: float) -> Iterator[float]:
    """AR(1) noise of mean 0 and variance 1."""
    fresh, value = math.sqrt(1 - rho * rho), chance.gauss(0, 1)
    for _ in range(count):
        yield value
        value = rho * value + fresh * chance.gauss(0, 1)


def standard_error(count: int, rho: float) -> float:
    """Of the difference of the means of two independent series of `count` points."""
    total = count + 2 * sum((count - lag) * rho**lag for lag in range(1, count))
    return math.sqrt(2 * total) / count


def window(length: int) -> list[int]:
    """Steps that a verdict on steps 1 to `length` looks at."""
    low = length - WINDOW * (length - 1)
    return [step for step in range(1, length + 1) if step >= low]


def pair(chance: random.Random, length: int, rho: float) -> tuple[list[float], list[float]]:
    decay = [3 * math.exp(-8 * step / length) for step in range(1, length + 1)]
    first, second = (
        [d + n for d, n in zip(decay, noise(chance, length, rho), strict=True)] for _ in range(2)
    )
    return first, second


def row(length: int, rho: float, pairs: int, seed: int) -> tuple[list[int], list[int]]:
    """How many of `pairs` the verdict and the oracle call different, by shift."""
    chance = random.Random(f"{seed} {length} {rho}")
    steps, inside = range(1, length + 1), window(length)
    error = standard_error(len(inside), rho)
    threshold = NormalDist().inv_cdf(1 - LEVEL / 2) * error
    found, ideal = [0] * len(SHIFTS), [0] * len(SHIFTS)
    for _ in range(pairs):
        first, second = pair(chance, length, rho)
        mean = math.fsum(second[s - 1] - first[s - 1] for s in inside) / len(inside)
        for i, shift in enumerate(SHIFTS):
            moved = OrderedSeries(steps, [y + shift * error for y in second])
            outcome = verdict(OrderedSeries(steps, first), moved).outcome
            found[i] += outcome == "worse" if shift else outcome in ("better", "worse")
            ideal[i] += abs(mean + shift * error) > threshold
    return found, ideal


def table(pairs: int, seed: int, lengths: Sequence[int], correlations: Sequence[float]) -> bool:
    """Print it; whether every row keeps its bars."""
    heads = "".join(f"{f'{shift} SE':>12}" for shift in SHIFTS[1:])
    print(f"{'rho':>5} {'length':>7} {'window':>7} {'memories':>9} {'equal':>12}{heads}")
    holds = True
    for rho in correlations:
        for length in lengths:
            inside = len(window(length))
            memories = 2 / standard_error(inside, rho) ** 2
            found, ideal = row(length, rho, pairs, seed)
            cells = "".join(f"{f'{a} ({b})':>12}" for a, b in zip(found, ideal, strict=True))
            kept = found[0] <= 0.05 * pairs
            judged = memories >= MEMORIES
            kept = kept and (not judged or found[-1] >= 0.95 * pairs)
            holds = holds and kept
            mark = ("" if judged else "  few memories") + ("" if kept else "  MISSED")
            print(f"{rho:>5} {length:>7} {inside:>7} {memories:>9.1f} {cells}{mark}", flush=True)
    print(f"of {pairs} pairs called different; in brackets by an oracle that knows the error")
    return holds


def on_disk(pairs: int, seed: int, length: int = 400, rho: float = 0.5) -> bool:
    """Pairs of runs through the journal, the index and `diff_runs`; whether the bars are kept."""
    from albor_core.store.diff.compare import diff_runs
    from albor_core.store.file.paths import global_store
    from albor_core.store.query.reader import Reader

    holds = True
    print(f"\non disk, {pairs} pairs of runs of {length} steps, rho {rho}, each:")
    for name, how in KINDS.items():
        chance, called = random.Random(f"{seed} {name}"), {0: 0, 5: 0}
        with tempfile.TemporaryDirectory() as folder:
            os.environ["ALBOR_HOME"] = f"{folder}/home"
            for shift in called:
                gap = shift * standard_error(len(window(length)), rho)
                for number in range(pairs):
                    ids = [f"{side}{shift}-{number}" for side in "ab"]
                    first, second = pair(chance, length, rho)
                    _write(Path(folder), ids[0], first, how)
                    _write(Path(folder), ids[1], [y + gap for y in second], how)
                    with Reader(global_store()) as reader:
                        outcome = diff_runs(reader, ids).verdict.outcome
                    called[shift] += outcome == "worse" if shift else outcome in ("better", "worse")
        # the bounds of 1,000 pairs, with three standard deviations of so few
        most = 0.05 * pairs + 3 * math.sqrt(0.05 * 0.95 * pairs)
        least = 0.95 * pairs - 3 * math.sqrt(0.05 * 0.95 * pairs)
        kept = called[0] <= most and called[5] >= least
        holds = holds and kept
        told = "" if kept else "  MISSED"
        print(f"  {name:<10} equal {called[0]:>4}   5 SE {called[5]:>4}{told}", flush=True)
    return holds


def _write(folder: Path, run_id: str, values: Sequence[float], how: dict[str, Any]) -> None:
    from albor_core.run.home.new_run import create_run
    from albor_core.run.journal import Journal
    from albor_core.store.index.indexer import index_now

    run = create_run(
        folder / "runs", run_id, experiment="e", name=run_id, kind=how["kind"], argv=["t.py"],
        facts=how["facts"],
    )  # fmt: skip
    journal = Journal(run.journal, attempt=1)
    if how.get("config"):
        journal.append("p", key="depth", value=2)
    for step, value in enumerate(values, 1):
        journal.metrics(step, {"val/loss": value})
    journal.close()
    index_now(run)


def main() -> int:
    words = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    words.add_argument("--pairs", type=from_zero, default=1000, help="of each row of the table")
    words.add_argument("--on-disk", type=from_zero, default=60, help="pairs of each kind of run")
    words.add_argument("--lengths", type=positive, nargs="+", default=LENGTHS)
    words.add_argument("--correlations", type=float, nargs="+", default=CORRELATIONS)
    words.add_argument("--seed", type=int, default=1)
    given = words.parse_args()
    head = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(head, capture_output=True, text=True, check=False).stdout.strip()
    load = " ".join(f"{x:.1f}" for x in os.getloadavg())
    print(f"commit {commit}, Python {platform.python_version()}, seed {given.seed}, load {load}")
    began, holds = time.monotonic(), True
    if given.pairs:
        holds = table(given.pairs, given.seed, given.lengths, given.correlations)
    if given.on_disk:
        holds = on_disk(given.on_disk, given.seed) and holds
    print("bars: equal at most 5 % called different; 5 SE at least 95 % found, from", MEMORIES)
    print(f"memories on. {'kept' if holds else 'MISSED'}, in {time.monotonic() - began:.0f} s")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
