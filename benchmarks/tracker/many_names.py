"""More metric names than a run has room for: what is said, what stays, what an export costs.

    python benchmarks/tracker/many_names.py [--names 12000] [--rows 5] [--rounds 3]

A program of its own logs NAMES metrics, ROWS times, and after the first row `val_loss`, which comes
behind all of them. Shown are what it says on stderr and when, what `runs show` and `doctor` say,
and whether val/loss is there. Then runs of 5,000 and of 10,000 names are exported as JSON lines in
turns: processor seconds of the whole process, the least of ROUNDS, and the work of the store as
SQLite counts it, in virtual machine steps. Exit 1 where nothing was said at the first refused name,
val/loss is not there, or twice the names take more than 2.2 times the steps.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from albor_core.run.rundir import RunDir
from albor_core.run.values.metrics import MAX_NAMES
from albor_core.store.index.catch_up import drain_index
from albor_core.store.query.export import pages
from albor_core.store.query.reader import Reader

sys.path.append(str(Path(__file__).resolve().parents[1]))
from arguments import positive

MOST = 2.2
TICK = 100  # steps of SQLite's machine between two counts
PROGRAM = """
import sys
from albor_core import track

names, rows = map(int, sys.argv[1:])
with track.start("names", id=f"names-{names}", console=False) as run:
    for step in range(1, rows + 1):
        for start in range(0, names, 1_000):
            run.log({f"layer/{i}": i / step for i in range(start, min(names, start + 1_000))}, step)
            if step == 1:
                print(f"row 1: {min(names, start + 1_000):,} names logged", file=sys.stderr)
        run.log({"val_loss": 1 / step}, step)
"""


def logged(names: int, rows: int) -> tuple[RunDir, str]:
    """A run with so many names, and what its program said on stderr."""
    words = [sys.executable, "-c", PROGRAM, str(names), str(rows)]
    done = subprocess.run(words, stderr=subprocess.PIPE, text=True, check=True)
    run = RunDir(Path(os.environ["ALBOR_HOME"]) / "runs" / f"names-{names}")
    drain_index(run)
    return run, done.stderr


def printed(*words: str) -> str:
    command = [sys.executable, "-m", "albor_core.cli", *words]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False).stdout


def exported(run: RunDir) -> tuple[float, int]:
    """Processor seconds of an export in a process of its own, and its bytes."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    out = run.path / "out.jsonl"
    with out.open("wb") as file:
        command = [sys.executable, "-m", "albor_core.cli", "runs", "export", run.id]
        subprocess.run([*command, "--format", "jsonl"], stdout=file, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return used, out.stat().st_size


def machine_steps(run: RunDir) -> int:
    """Virtual machine steps of SQLite in an export."""
    steps = 0

    def tick() -> int:
        nonlocal steps
        steps += TICK
        return 0

    made = Reader.__enter__

    def enter(reader: Reader) -> Reader:
        opened = made(reader)
        reader._db.set_progress_handler(tick, TICK)
        return opened

    Reader.__enter__ = enter  # type: ignore[method-assign]
    try:
        assert sum(map(len, pages(run)))
    finally:
        Reader.__enter__ = made  # type: ignore[method-assign]
    return steps


def crowded(names: int, rows: int) -> bool:
    run, said = logged(names, rows)
    print(said.rstrip())
    shown = [
        line for line in printed("runs", "show", run.id).splitlines() if "metric names" in line
    ]
    looked = [line for line in printed("doctor").splitlines() if run.id in line]
    with Reader(run.store) as reader:
        kept = reader.summary(run.id)
    print(f"runs show: {' '.join(shown).strip()}", *looked, sep="\n")
    print(f"store: {len(kept):,} names, val/loss {'there' if 'val/loss' in kept else 'NOT there'}")
    lines = said.splitlines()
    at = next((i for i, line in enumerate(lines) if "metric names" in line), None)
    logged_before = sum("names logged" in line for line in lines[:at]) * 1_000
    print(f"told after {logged_before:,} names" if at is not None else "NOT told")
    return at is not None and logged_before == MAX_NAMES and "val/loss" in kept and bool(shown)


def grows(rows: int, rounds: int) -> bool:
    runs = [logged(names, rows)[0] for names in (MAX_NAMES // 2, MAX_NAMES)]
    seconds: list[list[float]] = [[], []]
    size = [0, 0]
    for _ in range(rounds):
        for which, run in enumerate(runs):
            used, size[which] = exported(run)
            seconds[which].append(used)
    steps = [machine_steps(run) for run in runs]
    for which, run in enumerate(runs):
        least = min(seconds[which])
        print(f"export {run.id}: {size[which]:,} bytes, {least:.2f} s, {steps[which]:,} steps")
    ratio = steps[1] / steps[0]
    spent = min(seconds[1]) / min(seconds[0])
    print(f"twice the names: {spent:.2f} times the seconds, {ratio:.2f} times the steps of SQLite")
    return ratio <= MOST


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--names", type=positive, default=12_000)
    parser.add_argument("--rows", type=positive, default=5)
    parser.add_argument("--rounds", type=positive, default=3)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["ALBOR_HOME"] = folder
        is_told = crowded(asked.names, asked.rows)
        is_linear = grows(asked.rows, asked.rounds)
    print(json.dumps({"told": is_told, "linear": is_linear}))
    return 0 if is_told and is_linear else 1


if __name__ == "__main__":
    raise SystemExit(main())
