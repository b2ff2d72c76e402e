"""What stays bounded: steps of many keys, a run of many points, a home of many runs.

    python benchmarks/cockpit/scale.py log [--keys 8 100 1000 5000] [--rounds 11]
    python benchmarks/cockpit/scale.py show [--steps 10000000] [--home DIR]
    python benchmarks/cockpit/scale.py runs --home HOME [--keys-pressed 40]

`log`: a step of that many keys by track, beside the same values as one line of JSON by the standard
library, written and flushed, in turns. `show`: `albor runs show --json` of a run of that many steps
x 8 metrics, whose journal is written and indexed first (a minute and six for ten million; kept in
--home). `runs`: the cockpit, `runs ls` and `runs ls --group` on a home that make_history.py made.
The load is printed: timings on a busy machine say nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("benchmarks/cockpit", "benchmarks", "tests/tui")
sys.path[:0] = [str(ROOT), *(str(ROOT / part) for part in PARTS)]

import orjson  # noqa: E402
from arguments import new_folder, positive, there  # noqa: E402
from cockpit import Figure, albor, key_times, p99  # noqa: E402

from albor_core import track  # noqa: E402
from albor_core.run.home.new_run import create_run  # noqa: E402
from albor_core.run.journal import Journal  # noqa: E402
from albor_core.run.rundir import RunDir  # noqa: E402
from albor_core.store.index.indexer import Indexer  # noqa: E402

METRICS = 8
# started by a small process: the peak of one that a large process starts is that one's
MEASURE = """
import os, subprocess, sys
child = subprocess.Popen(sys.argv[1:], stdout=sys.stdout)
_, status, usage = os.wait4(child.pid, 0)
sys.stderr.write(f"{usage.ru_maxrss}\\n")
sys.exit(status != 0)
"""
LOGGED = 60  # steps of a round


def measured(home: Path, *words: str) -> tuple[float, float, bytes]:
    """Seconds, MB of memory at most and stdout of a command."""
    line = [sys.executable, "-c", MEASURE, sys.executable, "-m", "albor_core.cli", *words]
    began = time.monotonic()
    done = subprocess.run(line, capture_output=True, env={**os.environ, "ALBOR_HOME": str(home)})
    took = time.monotonic() - began
    if done.returncode:
        raise SystemExit(f"{' '.join(words)} failed:\n{done.stderr.decode()[-500:]}")
    return took, int(done.stderr.split()[-1]) / 1024, done.stdout


def log(options: argparse.Namespace) -> list[Figure]:
    figures = []
    for count in options.keys:
        keys = [f"layer{number:04d}/grad_norm" for number in range(count)]
        ours: list[float] = []
        lines: list[float] = []
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
            os.environ["ALBOR_HOME"] = home
            for _ in range(options.rounds):
                with track.start() as run, (Path(home) / "plain.jsonl").open("a") as file:
                    for step in range(1, LOGGED + 1):
                        values = {key: random.random() for key in keys}
                        began = time.perf_counter()
                        run.log(values, step=step)
                        ours.append(time.perf_counter() - began)
                        began = time.perf_counter()
                        file.write(json.dumps({"step": step, "time": time.time(), **values}) + "\n")
                        file.flush()
                        lines.append(time.perf_counter() - began)
        middle, plain = 1e6 * statistics.median(ours), 1e6 * statistics.median(lines)
        figures += [
            Figure(f"log of {count:,} keys, median", middle, "us", peer=plain),
            Figure(f"log of {count:,} keys, p99", 1e6 * p99(ours), "us", peer=1e6 * p99(lines)),
            Figure(f"log of {count:,} keys over plain JSON lines", middle / plain, "x", 4),
        ]
    return figures


def long_run(home: Path, steps: int) -> RunDir:
    """A run of `steps` x METRICS points with one spike, as track and its index process leave it."""
    name = f"long-{steps}"
    run = RunDir(home / "runs" / name)
    if run.exit.exists():
        return run
    run = create_run(home / "runs", name, experiment="scale", name=name, kind="track", argv=[])
    journal = Journal(run.journal, attempt=1, dumps=orjson.dumps)
    for step in range(1, steps + 1):
        spike = 50.0 if step == steps // 3 else 0.0
        journal.numbers(step, {f"m{n}": random.random() + spike for n in range(METRICS)})
    journal.event("run.end", step=steps, status="completed", reason="completed", code=0)
    journal.close()
    with Indexer(run, home / "experiments.db") as indexer:
        while indexer.step():
            pass
        indexer.publish(whole=True)
    run.exit.write_text("{}")
    return run


def show(options: argparse.Namespace) -> list[Figure]:
    home = options.home or Path(tempfile.mkdtemp())
    os.environ["ALBOR_HOME"] = str(home)
    run = long_run(home, options.steps)
    figures = []
    for words in ((), ("--points", "20000")):
        took, memory, out = measured(home, "runs", "show", run.id, "--json", *words)
        document = json.loads(out)
        points = document["points"]
        assert all(max(value for _, value, _ in found) > 50 for found in points.values())
        most = max(map(len, points.values()))
        what = f"show --json {' '.join(words)} of {options.steps:,} x {METRICS}"
        figures += [
            Figure(f"{what}: memory", memory, "MB", 60),
            Figure(f"{what}: time", took, "s"),
            Figure(f"{what}: points of a metric at most", most, "", 20000 if words else 2000),
            Figure(f"{what}: bytes", len(out) / 1e6, "MB"),
        ]
    return figures


def runs(options: argparse.Namespace) -> list[Figure]:
    home = options.home / "home" if (options.home / "home").is_dir() else options.home
    figures = []
    with albor(home) as session:
        first = session.until("runs ", 60) - session.began
        session.until(", the newest", 60)
        keys = ["\x1b[B"] * options.keys_pressed
        times = key_times(session, keys)
        session.press("s")
        session.pump(3.0)
        session.press("s")
        asked = time.monotonic()
        session.until("that match, of", 60)
        sorted_after = time.monotonic() - asked
        session.pump(3.0)
        memory = session.cost().rss_bytes / 2**20
    took, ls_memory, out = measured(home, "runs", "ls", "--json")
    total = json.loads(out)["total"]
    group_took, group_memory, grouped = measured(home, "runs", "ls", "--group", "--json")
    groups = json.loads(grouped)["groups"]
    return [
        *figures,
        Figure(f"cockpit on {total:,} runs: the list is up after", first, "s", 1),
        Figure("cockpit: memory after sorting all by loss", memory, "MB", 150),
        Figure("cockpit: key down, median", statistics.median(times), "ms", 100),
        Figure("cockpit: key down, p99", p99(times), "ms", 100),
        Figure("cockpit: key s until all are sorted by loss", sorted_after, "s"),
        Figure("runs ls --json (100 rows): time", took, "s"),
        Figure("runs ls --json (100 rows): memory", ls_memory, "MB"),
        Figure(f"runs ls --group --json: time ({len(groups)} groups shown)", group_took, "s"),
        Figure("runs ls --group --json: memory", group_memory, "MB"),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parts: Any = parser.add_subparsers(dest="part", required=True)
    part = parts.add_parser("log")
    part.add_argument("--keys", type=positive, nargs="*", default=[8, 100, 1000, 5000])
    part.add_argument("--rounds", type=positive, default=11)
    part = parts.add_parser("show")
    part.add_argument("--steps", type=positive, default=10_000_000)
    part.add_argument("--home", type=new_folder)
    part = parts.add_parser("runs")
    part.add_argument("--home", type=there, required=True)
    part.add_argument("--keys-pressed", type=positive, default=40)
    options = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.2f}")
    for figure in {"log": log, "show": show, "runs": runs}[options.part](options):
        print(figure.line())


if __name__ == "__main__":
    main()
