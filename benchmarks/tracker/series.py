"""Series of a million steps: chart queries, a diff of two such runs, a rebuild from the journal.

    python benchmarks/tracker/series.py [--steps 1000000] [--rounds 21]

Two runs with one metric are written as the tracker writes them and indexed by the code of the index
process. Then random windows of random width as a chart asks for them, and the same windows
fetched point by point; in turns whole processes of `albor runs diff --json` beside a bare
interpreter. Every answer of a chart query is compared with the points: the extremes of its window
must be there. Exit 1 where one is lost.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import orjson

from albor_core.run.home.new_run import create_run
from albor_core.run.journal import Journal
from albor_core.run.rundir import RunDir
from albor_core.store.index.indexer import index_now
from albor_core.store.query.reader import Reader
from albor_core.store.upkeep.rebuild import rebuild

sys.path.append(str(Path(__file__).resolve().parents[1]))
from arguments import positive

KEY = "train/loss"
CHART_POINTS = 600
BARE = [sys.executable, "-c", "pass"]


def write_run(folder: Path, name: str, steps: int, chance: random.Random) -> RunDir:
    """A falling, noisy loss with spikes of a single step."""
    run = create_run(folder, name, experiment="bench", name=name, kind="track", argv=["bench"])
    journal = Journal(run.journal, attempt=1, dumps=orjson.dumps)
    for step in range(1, steps + 1):
        spike = 30.0 if chance.random() < 1e-5 else 0.0
        loss = 2.0 + 8.0 * math.exp(-step / steps * 6) + 0.1 * chance.random() + spike
        journal.numbers(step, {KEY: loss})
    journal.close()
    return run


def timed(argv: list[str]) -> float:
    began = time.perf_counter()
    subprocess.run(argv, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began


def row(name: str, seconds: list[float]) -> None:
    ordered = sorted(seconds)
    p99 = ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]
    print(f"{name:32} {statistics.median(ordered) * 1e3:10.2f} {p99 * 1e3:10.2f}  {len(ordered)}")


def chart(reader: Reader, run: str, steps: int, count: int, chance: random.Random) -> int:
    """Time random windows both ways; the number of windows whose extremes were lost."""
    spans = [int(10 ** chance.uniform(2, math.log10(steps))) for _ in range(count)]
    windows = [(low := chance.randint(1, max(1, steps - s)), low + s) for s in spans]
    ours: list[float] = []
    plain: list[float] = []
    extremes: list[tuple[float, float]] = []
    for low, high in windows:
        began = time.perf_counter()
        series = reader.series(run, KEY, lo=low, hi=high, max_points=CHART_POINTS)
        ours.append(time.perf_counter() - began)
        extremes.append((min(series.minimum), max(series.maximum)))
    lost = 0
    for (low, high), found in zip(windows, extremes, strict=True):  # after: a million freed tuples
        began = time.perf_counter()  # would be paid for by the chart query that follows them
        values = [value for _, value, _ in reader.points(run, KEY, low, high)]
        plain.append(time.perf_counter() - began)
        lost += found != (min(values), max(values))
    row("chart window", ours)
    row("the same, every point", plain)
    print(f"ratio of medians: {statistics.median(plain) / statistics.median(ours):.0f}")
    return lost


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=positive, default=1_000_000)
    parser.add_argument("--rounds", type=positive, default=21)
    options = parser.parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # users have their bytecode
    chance = random.Random()
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="albor-series-") as temporary:
        os.environ["ALBOR_HOME"] = f"{temporary}/home"
        runs = [write_run(Path(temporary), name, options.steps, chance) for name in ("a", "b")]
        for run in runs:
            began = time.perf_counter()
            index_now(run)
            print(f"indexed {run.id} in {time.perf_counter() - began:.1f} s")
        began = time.perf_counter()
        rebuild(None, [runs[0]])
        print(f"rebuilt {runs[0].id} in {time.perf_counter() - began:.1f} s")
        print(f"{'':32} {'median ms':>10} {'p99 ms':>10}  rounds")
        with Reader(runs[0].store) as reader:
            lost = chart(reader, "a", options.steps, 20 * options.rounds, chance)
        diff = [str(Path(sys.executable).parent / "albor"), "runs", "diff", "a", "b", "--json"]
        times: dict[str, list[float]] = {"python -c pass": [], "albor runs diff a b --json": []}
        for _ in range(options.rounds):
            times["python -c pass"].append(timed(BARE))
            times["albor runs diff a b --json"].append(timed(diff))
        for name, seconds in times.items():
            row(name, seconds)
    print(f"windows with a lost extreme: {lost}; load {load:.1f}, {os.cpu_count()} cores")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
