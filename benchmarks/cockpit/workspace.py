"""Many runs on one screen: what a toggle, a key and watching cost in a terminal of 160x45.

    python benchmarks/cockpit/workspace.py [--runs 100] [--live 50] [--watch 40] [--history HOME]

Toggle: that many ended runs of twelve metrics on one screen; from `space` on the legend to the end
of the last frame that follows it. Key: a list of 10,000 runs with five of its own metrics as
columns, from a key to the end of the first frame after it; `--history HOME` is a home made by
make_history.py. Watching: that many runs which log twelve metrics once a second, all of them on one
screen; CPU, memory and bytes of the cockpit. Each figure stands beside its bar; the load is
printed, since timings on a busy machine say nothing.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("benchmarks/cockpit", "benchmarks", "tests/tui")
sys.path[:0] = [str(ROOT), *(str(ROOT / part) for part in PARTS)]

from arguments import above_zero, positive, there  # noqa: E402
from cockpit import FRAME_END, WARM_S, Figure, albor, key_times, p99, speed, watched  # noqa: E402
from pty_session import PtySession  # noqa: E402

from albor_core.feed.workspace.views import View, ViewsFile  # noqa: E402
from albor_core.run.home.new_run import create_run  # noqa: E402
from albor_core.run.journal import Journal  # noqa: E402
from albor_core.store.index.indexer import Indexer  # noqa: E402
from albor_core.store.query.reader import Reader  # noqa: E402

METRICS = 12
STEPS = 1000
SETTLED_S = 1.0  # without a frame: nothing else moves on a screen of ended runs
LIVE = """
import random, sys, time
from albor_core import track
runs = [track.start("live", id=f"live{n:03}", console=False) for n in range(int(sys.argv[1]))]
print("started", flush=True)
step = 0
while True:
    for run in runs:
        run.log({f"part{k}/value": random.random() + 9 / (1 + step / 100) for k in range(12)})
    step += 1
    time.sleep(1.0)
"""


def ended_runs(home: Path, count: int) -> None:
    """Runs of one sweep as track and their index processes leave them."""
    for number in range(count):
        name = f"run{number:03}"
        run = create_run(home / "runs", name, experiment="sweep", name=name, kind="track", argv=[])
        journal = Journal(run.journal, attempt=1)
        journal.event("run.start", step=0)
        journal.append("p", key="lr", value=10.0 ** -(number % 4 + 1))
        for step in range(STEPS):
            level = random.random() + 9 / (1 + step / 100)
            journal.metrics(step, {f"part{k}/value": level + k for k in range(METRICS)})
        journal.event("run.end", status="completed", reason="completed", code=0)
        journal.close()
        with Indexer(run, home / "experiments.db") as indexer:
            indexer.drain()


def open_workspace(session: PtySession) -> None:
    """From the list to all of its runs on one screen, with their charts drawn."""
    session.until("runs ", 60)
    session.pump(WARM_S)
    session.press("a")
    session.pump(1.0)
    session.press("w")
    session.until(" Solo ", 60)
    session.until(lambda s: "loading" not in s.text(), 60)
    session.pump(WARM_S)


def settle_times(session: PtySession, keys: list[str]) -> list[float]:
    """Milliseconds from each key to the end of the last frame that follows it."""
    times = []
    for key in keys:
        start = len(session.recording)
        pressed = session.press(key)
        session.until_bytes(FRAME_END, 10, start)
        while time.monotonic() - session.recording[-1].at < SETTLED_S:
            session.pump(0.05)
        times.append(1e3 * (session.recording[-1].at - pressed))
    return times


def toggling(home: Path, count: int) -> Iterator[Figure]:
    ended_runs(home, count)
    with albor(home) as session:
        open_workspace(session)
        times = settle_times(session, [" ", "\x1b[B"] * min(20, count - 1))[::2]
        memory = session.cost().rss_bytes / 2**20
    what = f"{count} runs x {METRICS} metrics, space"
    yield Figure(f"{what}: median", statistics.median(times), "ms", 100)
    yield Figure(f"{what}: p99", p99(times), "ms", 250)
    yield Figure(f"{count} runs x {METRICS} metrics: memory", memory, "MB")


def listing(home: Path) -> Iterator[Figure]:
    home = home / "home" if (home / "home").is_dir() else home
    with Reader(home / "experiments.db") as reader:
        names = "SELECT name FROM keys WHERE name <> '_wall' GROUP BY name ORDER BY count(*) DESC"
        rows = reader.query(lambda db: db.execute(f"{names} LIMIT 5").fetchall())
    columns = tuple(name for (name,) in rows)
    ViewsFile(home / "views.yaml").save("five columns", View(columns=columns))
    with albor(home, "--view", "five columns") as session:
        session.until("runs ", 60)
        session.pump(WARM_S)
        times = key_times(session, ["\x1b[B"] * 30 + ["\x1b[6~"] * 15 + ["\x1b[A"] * 30)
    yield Figure("list with five own columns, a key: median", statistics.median(times), "ms", 50)
    yield Figure("list with five own columns, a key: p99", p99(times), "ms")


@contextmanager
def live_runs(home: Path, count: int) -> Iterator[None]:
    environ = {**os.environ, "ALBOR_HOME": str(home), "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        [sys.executable, "-c", LIVE, str(count)],
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdout is not None
    try:
        process.stdout.readline()
        yield
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


def watching(home: Path, count: int, seconds: float) -> Iterator[Figure]:
    with live_runs(home, count), albor(home) as session:
        open_workspace(session)
        mine = watched(session, seconds)
    what = f"{count} live runs"
    yield Figure(f"{what}: CPU", mine.cpu_percent, "%", 8)
    yield Figure(f"{what}: memory", mine.rss_mb, "MB", 100)
    yield Figure(f"{what}: terminal output", mine.bytes_s, "B/s", 2048)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=positive, default=100)
    parser.add_argument("--live", type=positive, default=50)
    parser.add_argument("--watch", type=above_zero, default=40.0, metavar="SECONDS")
    parser.add_argument("--history", type=there, help="a home made by make_history.py")
    options = parser.parse_args()
    print(f"load before {os.getloadavg()[0]:.2f}, {os.cpu_count()} cores, {speed()}", flush=True)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        os.environ["ALBOR_HOME"] = str(Path(scratch) / "ended")
        for figure in toggling(Path(scratch) / "ended", options.runs):
            print(figure.line(), flush=True)
        for figure in listing(options.history) if options.history else ():
            print(figure.line(), flush=True)
        for figure in watching(Path(scratch) / "live", options.live, options.watch):
            print(figure.line(), flush=True)
    print(f"load after {os.getloadavg()[0]:.2f}, {speed()}")


if __name__ == "__main__":
    main()
