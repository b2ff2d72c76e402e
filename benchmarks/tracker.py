"""What logging costs a training loop: Albor beside others, in one run, step by step.

    python benchmarks/tracker.py [--steps 20000] [--rounds 3]

Eight random doubles a step. Each writer is a process of its own, in turns, round by round, so that
a drifting machine hits all alike. Printed: microseconds a call (median and p99 of all rounds, and
of the round with the lowest median), bytes a step on disk after the end, extra memory, and steps
lost to kill -9 among those whose call had returned. Peers that are not installed are named.

`jsonl` is the floor: json.dumps and one write a step, no index. `sqlite` commits its eight rows a
step (WAL, synchronous=NORMAL), as a tracker without a journal must to lose nothing.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import random
import resource
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

KEYS = ("train/loss", "train/acc", "optim/lr", "optim/grad_norm")
KEYS += ("perf/tokens_per_s", "perf/mfu", "perf/step_ms", "val/loss")
Log = Callable[[dict[str, float], int], None]


@contextmanager
def albor(folder: Path) -> Iterator[Log]:
    from albor_core import track

    with track.start("bench", dir=folder) as run:
        yield run.log


@contextmanager
def jsonl(folder: Path) -> Iterator[Log]:
    fd = os.open(folder / "log.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    yield (
        lambda values, step: (
            os.write(fd, json.dumps({"step": step, **values}).encode() + b"\n") and None
        )
    )
    os.close(fd)


@contextmanager
def sqlite(folder: Path) -> Iterator[Log]:
    db = sqlite3.connect(folder / "log.db", isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = NORMAL")
    db.execute("CREATE TABLE m (key TEXT, step INTEGER, value REAL, PRIMARY KEY (key, step))")

    def log(values: dict[str, float], step: int) -> None:
        db.execute("BEGIN")
        db.executemany("INSERT INTO m VALUES (?,?,?)", [(k, step, v) for k, v in values.items()])
        db.execute("COMMIT")

    yield log
    db.close()


@contextmanager
def trackio(folder: Path) -> Iterator[Log]:
    os.environ["TRACKIO_DIR"] = str(folder)
    import trackio as peer

    peer.init(project="bench", embed=False)
    yield lambda values, step: peer.log(values, step=step)
    peer.finish()


@contextmanager
def wandb(folder: Path) -> Iterator[Log]:
    import wandb as peer

    run = peer.init(mode="offline", dir=folder, settings=peer.Settings(silent=True))
    yield lambda values, step: run.log(values, step=step)
    run.finish()


@contextmanager
def tensorboard(folder: Path) -> Iterator[Log]:
    from tensorboardX import SummaryWriter

    writer = SummaryWriter(str(folder))

    def log(values: dict[str, float], step: int) -> None:
        for key, value in values.items():
            writer.add_scalar(key, value, step)

    yield log
    writer.close()


WRITERS = {f.__name__: f for f in (albor, jsonl, sqlite, trackio, wandb, tensorboard)}
NEEDS = {"trackio": "trackio", "wandb": "wandb", "tensorboard": "tensorboardX"}


def worker(name: str, folder: Path, steps: int, *, acknowledge: bool) -> None:
    """Log `steps` steps and print what each cost; or, to be killed, each step that returned."""
    source = random.Random(1)
    rows = [{key: source.random() for key in KEYS} for _ in range(min(steps, 20_000))]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    took: list[int] = []
    with WRITERS[name](folder) as log:
        if acknowledge:
            for step in range(1, 10**9):
                log(rows[step % len(rows)], step)
                os.write(1, b"%d\n" % step)
        for step, row in enumerate(rows, 1):
            began = time.perf_counter_ns()
            log(row, step)
            took.append(time.perf_counter_ns() - began)
    extra = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    sys.stdout.write(json.dumps({"ns": took, "extra_kib": extra}))


def start(name: str, folder: Path, steps: int, *more: str) -> subprocess.Popen[bytes]:
    home = folder / "home"
    home.mkdir()
    return subprocess.Popen(
        [sys.executable, __file__, "--worker", name, str(folder), "--steps", str(steps), *more],
        env={**os.environ, "ALBOR_HOME": str(home), "WANDB_MODE": "offline"},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )


def measure(name: str, steps: int) -> dict[str, object]:
    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".bench-") as temporary:
        folder = Path(temporary)
        out, _ = start(name, folder, steps).communicate()
        if name == "albor":
            wait_for_index(folder)
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        return {**json.loads(out), "bytes": size / steps}


def wait_for_index(folder: Path) -> None:
    """Until the index process has read all and gone: its stores count too."""
    from albor_core.run.liveness import lock_holder
    from albor_core.run.rundir import runs_in

    (run,) = runs_in(folder)
    deadline = time.monotonic() + 60
    while lock_holder(run.index_lock) is not None and time.monotonic() < deadline:
        time.sleep(0.05)


def lost_to_kill(name: str, kills: int) -> tuple[int, int]:
    """Steps acknowledged and not there afterwards, and steps that are there twice, over all kills.

    Only for writers whose files can be read here.
    """
    lost = doubled = 0
    chance = random.Random(2)
    for _ in range(kills):
        with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".bench-") as temporary:
            folder = Path(temporary)
            process = start(name, folder, 20_000, "--acknowledge")
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(chance.random() * 0.3)
            process.send_signal(signal.SIGKILL)
            told = process.stdout.read().split(b"\n")[:-1]
            process.wait()
            found = steps_of(name, folder)
            lost += max(0, (int(told[-1]) if told else 1) - len(set(found)))
            doubled += len(found) - len(set(found))
    return lost, doubled


def steps_of(name: str, folder: Path) -> list[int]:
    if name == "sqlite":
        with sqlite3.connect(folder / "log.db") as db:
            return [row[0] for row in db.execute("SELECT step FROM m WHERE key = ?", KEYS[:1])]
    if name == "jsonl":
        lines = (folder / "log.jsonl").read_bytes().split(b"\n")[:-1]
        return [json.loads(line)["step"] for line in lines]
    from albor_core.run.rundir import runs_in
    from albor_core.store.reader import Reader
    from albor_core.store.settle import settle

    (run,) = runs_in(folder)
    settle(run, timeout_s=60)
    wait_for_index(folder)
    with Reader(run.store) as reader:
        return [point[0] for point in reader.points(run.id, KEYS[0])]


def at(sorted_ns: list[int], share: float) -> float:
    return sorted_ns[min(len(sorted_ns) - 1, int(share * len(sorted_ns)))] / 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--worker", nargs=2, metavar=("WRITER", "DIR"), help=argparse.SUPPRESS)
    parser.add_argument("--acknowledge", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        name, folder = options.worker
        worker(name, Path(folder), options.steps, acknowledge=options.acknowledge)
        return
    missing = [n for n, module in NEEDS.items() if importlib.util.find_spec(module) is None]
    names = [name for name in WRITERS if name not in missing]
    rounds: dict[str, list[dict[str, object]]] = {name: [] for name in names}
    load = os.getloadavg()[0]
    for _ in range(options.rounds):
        for name in names:
            rounds[name].append(measure(name, options.steps))
    head = ("writer", "p50 us", "p99 us", "best p50", "best p99", "B/step", "extra MB", "lost/dbl")
    print(("{:>10} " * len(head)).format(*head))
    medians = {}
    for name, found in rounds.items():
        series = sorted((sorted(one["ns"]) for one in found), key=lambda ns: at(ns, 0.5))
        every = sorted(ns for one in series for ns in one)
        medians[name] = at(every, 0.5)
        kills = "-" if name in NEEDS else "{}/{}".format(*lost_to_kill(name, options.kills))
        numbers = (at(every, 0.5), at(every, 0.99), at(series[0], 0.5), at(series[0], 0.99))
        size = sum(float(one["bytes"]) for one in found) / len(found)
        extra = max(float(one["extra_kib"]) for one in found) / 1024
        cells = [f"{number:.1f}" for number in (*numbers, size, extra)]
        print(("{:>10} " * len(head)).format(name, *cells, kills))
    for name in names[1:]:
        print(f"albor / {name}: {medians['albor'] / medians[name]:.2f} of its median")
    print(f"not installed: {' '.join(missing) or 'none'}; load {load:.1f}, {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
