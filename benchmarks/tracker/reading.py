"""How long it takes to read runs back, beside what is promised.

    python benchmarks/tracker/reading.py [--root DIR] [--runs 10000] [--rounds 5]

Ten thousand runs with 22 params and 8 metrics each become a table of each library that is
installed: once in a process that has the library loaded, from the call to the table, which is what
is promised, and once as a whole process. 12,600 points of three runs go to Parquet by `albor runs
export`, a whole process. Rounds are interleaved: a drifting machine hits all alike. Without --root,
or with an empty one, the history is made first (make_history.py).
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import make_history

from albor_core.run.home.new_run import create_run
from albor_core.run.journal import Journal
from albor_core.store.index.indexer import index_now

sys.path.append(str(Path(__file__).resolve().parents[1]))
from arguments import new_folder, positive

PROMISED_S = 1.0
LIBRARIES = {"to_list": "", "to_numpy": "numpy", "to_pandas": "pandas", "to_polars": "polars",
             "to_arrow": "pyarrow"}  # fmt: skip
PROMISED = tuple(f"runs().{method}(), from call to table" for method in LIBRARIES)
READ = """
import sys, time
from albor_core import history
for name in sys.argv[2:]:
    __import__(name)
began = time.perf_counter()
table = getattr(history.runs(), sys.argv[1])()
print(time.perf_counter() - began)
"""
POINTS_STEPS, POINTS_RUNS = 1400, ("r0", "r1", "r2")  # of three metrics: 12,600 rows


def make_points(root: Path) -> None:
    """Three runs of 4,200 points in a home of their own."""
    home = root / "points"
    if home.is_dir():
        return
    os.environ["ALBOR_HOME"] = str(home)
    for name in POINTS_RUNS:
        run = create_run(root / "points-out", name, experiment="e", name=name, kind="track",
                         argv=["x"])  # fmt: skip
        journal = Journal(run.journal, attempt=1)
        for step in range(1, POINTS_STEPS + 1):
            journal.metrics(step, {"train/loss": 1 / step, "val/loss": 2 / step, "optim/lr": 0.1})
        journal.event("run.end", status="completed", reason="completed", code=0)
        journal.close()
        index_now(run)


def timed(argv: list[str], home: Path) -> tuple[float, str]:
    environment = {**os.environ, "ALBOR_HOME": str(home)}
    began = time.perf_counter()
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
    took = time.perf_counter() - began
    if done.returncode:
        sys.exit(f"{argv}: {done.stderr[-2000:]}")
    return took, done.stdout


def measure(root: Path, rounds: int) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {}
    albor = [sys.executable, "-m", "albor_core.cli", "runs", "export", *POINTS_RUNS]
    out = root / "points.parquet"
    for number in range(rounds + 1):  # the first round warms the page cache
        took: dict[str, float] = {}
        for method, library in LIBRARIES.items():
            if library and importlib.util.find_spec(library) is None:
                continue
            argv = [sys.executable, "-c", READ, method]
            inner = timed([*argv, library] if library else argv, root / "home")[1]
            took[f"runs().{method}(), from call to table"] = float(inner)
            took[f"runs().{method}(), whole process"] = timed(argv, root / "home")[0]
        if importlib.util.find_spec("pyarrow") is not None:
            name = f"{3 * POINTS_STEPS * len(POINTS_RUNS):,} points to Parquet, whole process"
            took[name] = timed([*albor, "-o", str(out), "--force"], root / "points")[0]
        for name, seconds in took.items() if number else ():
            times.setdefault(name, []).append(seconds)
    return times


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--root", type=new_folder)
    parser.add_argument("--runs", type=positive, default=10_000)
    parser.add_argument("--rounds", type=positive, default=5)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        root = (given.root or Path(temporary)).absolute()
        if not (root / "home" / "experiments.db").is_file():
            make_history.make(root, given.runs, 60)
        make_points(root)
        times = measure(root, given.rounds)
    absent = [
        name for name in LIBRARIES.values() if name and importlib.util.find_spec(name) is None
    ]
    print(f"{given.runs:,} runs x 22 params x 8 metrics, {given.rounds} rounds,"
          f" load {os.getloadavg()[0]:.2f}, {os.cpu_count()} cores")  # fmt: skip
    print(f"not installed, not measured: {', '.join(absent) or 'none'}")
    print(f"{'':56}{'median s':>10}{'worst s':>10}{'promised':>10}")
    for name, took in times.items():
        middle, worst = statistics.median(took), max(took)
        verdict = "held" if middle <= PROMISED_S else "MISSED"
        is_promised = name in PROMISED or "Parquet" in name
        promise = f"{PROMISED_S:10.1f}  {verdict}" if is_promised else f"{'-':>10}"
        print(f"{name:56}{middle:10.2f}{worst:10.2f}{promise}")


if __name__ == "__main__":
    main()
