"""The writers that `tracker.py` compares, each a program of its own in its own interpreter.

    python benchmarks/tracker/writers.py log WRITER DIR STEPS     what each call cost, as JSON
    python benchmarks/tracker/writers.py acknowledge WRITER DIR   each step that returned, to a kill
    python benchmarks/tracker/writers.py steps WRITER DIR         the steps that DIR has, as JSON

Only the standard library is imported up here: this file also runs in the peers' environments, which
have no Albor.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import sqlite3
import struct
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))
from arguments import from_zero

KEYS = ("train/loss", "train/acc", "optim/lr", "optim/grad_norm")
KEYS += ("perf/tokens_per_s", "perf/mfu", "perf/step_ms", "val/loss")
Log = Callable[[dict[str, float], int], object]


@contextmanager
def albor(folder: Path) -> Iterator[Log]:
    from albor_core import track

    with track.start("bench", dir=folder) as run:
        yield run.log


@contextmanager
def jsonl(folder: Path) -> Iterator[Log]:
    fd = os.open(folder / "log.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    yield lambda values, step: os.write(fd, json.dumps({"step": step, **values}).encode() + b"\n")
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

    with _talk_on_stderr():
        peer.init(project="bench", embed=False)
    yield lambda values, step: peer.log(values, step=step)
    with _talk_on_stderr():
        peer.finish()


@contextmanager
def wandb(folder: Path) -> Iterator[Log]:
    import wandb as peer

    run = peer.init(mode="offline", dir=folder, settings=peer.Settings(silent=True))
    yield lambda values, step: run.log(values, step=step)
    run.finish()


@contextmanager
def tensorboardX(folder: Path) -> Iterator[Log]:
    from tensorboardX import SummaryWriter

    writer = SummaryWriter(str(folder))

    def log(values: dict[str, float], step: int) -> None:
        for key, value in values.items():
            writer.add_scalar(key, value, step)

    yield log
    writer.close()


@contextmanager
def mlflow(folder: Path) -> Iterator[Log]:
    import mlflow as peer

    peer.set_tracking_uri(f"sqlite:///{folder / 'mlflow.db'}")
    with peer.start_run():
        yield lambda values, step: peer.log_metrics(values, step=step)


WRITERS = {f.__name__: f for f in (albor, jsonl, sqlite, trackio, wandb, tensorboardX, mlflow)}
PEERS = ("trackio", "wandb", "tensorboardX", "mlflow")


@contextmanager
def _talk_on_stderr() -> Iterator[None]:
    """What a peer prints is no part of our document."""
    kept, sys.stdout = sys.stdout, sys.stderr
    try:
        yield
    finally:
        sys.stdout = kept


def log(name: str, folder: Path, steps: int) -> None:
    """Log `steps` steps and print what each cost and what memory it took."""
    rows = _rows(steps)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    took: list[int] = []
    with WRITERS[name](folder) as write:
        for step, row in enumerate(rows, 1):
            began = time.perf_counter_ns()
            write(row, step)
            took.append(time.perf_counter_ns() - began)
    extra = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    sys.stdout.write(json.dumps({"ns": took, "extra_kib": extra}))


def acknowledge(name: str, folder: Path) -> None:
    """Log until killed; each step is said once its call has returned."""
    rows = _rows(1000)
    with WRITERS[name](folder) as write:
        for step in range(1, 10**9):
            write(rows[step % len(rows)], step)
            os.write(3, b"%d\n" % step)  # 3: peers may print what they like


def _rows(count: int) -> list[dict[str, float]]:
    source = random.Random(1)
    return [{key: source.random() for key in KEYS} for _ in range(count)]


# -- what is there afterwards ----------------------------------------------------------------------


def steps(name: str, folder: Path) -> list[int]:
    """Every record of the first metric, by its step; twice where it is there twice."""
    return READERS[name](folder)


def _of_albor(folder: Path) -> list[int]:
    from albor_core.run.home.runs import runs_in
    from albor_core.run.journal import read_journal
    from albor_core.store.index.catch_up import drain_index
    from albor_core.store.query.reader import Reader

    (run,) = runs_in(folder)
    assert drain_index(run, timeout_s=120), "still indexed after two minutes"
    with Reader(run.store) as reader:
        found = [point[0] for point in reader.points(run.id, KEYS[0])]
    records = [line.record for line in read_journal(run.journal)]
    said = [one["step"] for one in records if one is not None and one["t"] == "m"]
    assert found == sorted(set(said)), "the store differs from the journal"
    return said  # a step said twice would be one row


def _of_jsonl(folder: Path) -> list[int]:
    lines = (folder / "log.jsonl").read_bytes().split(b"\n")[:-1]
    return [json.loads(line)["step"] for line in lines]


def _of_table(pattern: str, question: str) -> Callable[[Path], list[int]]:
    def read(folder: Path) -> list[int]:
        found: list[int] = []
        for path in folder.glob(pattern):
            with sqlite3.connect(path) as db:
                found += [row[0] for row in db.execute(question)]
        return found

    return read


def _of_wandb(folder: Path) -> list[int]:
    from wandb.proto import wandb_internal_pb2

    found = []
    for path in folder.glob("wandb/offline-run-*/*.wandb"):
        for raw in _leveldb_records(path.read_bytes()):
            record = wandb_internal_pb2.Record.FromString(raw)
            if record.HasField("history"):
                found.append(record.history.step.num)
    return found


def _leveldb_records(raw: bytes) -> Iterator[bytes]:
    """Whole records of a log in LevelDB's format (github.com/google/leveldb/doc/log_format.md),
    behind seven bytes that W&B puts first; they count as part of the first block.
    """
    at, parts = 7, b""
    while at + 7 <= len(raw):
        if 32768 - at % 32768 < 7:  # no header begins so near the end of a block
            at += 32768 - at % 32768
            continue
        length, kind = struct.unpack_from("<HB", raw, at + 4)
        if at + 7 + length > len(raw):
            return  # half a record at the end
        part = raw[at + 7 : at + 7 + length]
        parts = parts + part if kind in (3, 4) else part  # first and full ones begin anew
        if kind in (1, 4):
            yield parts
        at += 7 + length


def _of_tensorboardx(folder: Path) -> list[int]:
    from tensorboardX.proto import event_pb2

    found = []
    for path in folder.glob("events.*"):
        raw, at = path.read_bytes(), 0
        while at + 12 <= len(raw):
            (length,) = struct.unpack_from("<Q", raw, at)
            if at + 16 + length > len(raw):
                break
            event = event_pb2.Event.FromString(raw[at + 12 : at + 12 + length])
            found += [event.step for value in event.summary.value if value.tag == KEYS[0]]
            at += 16 + length
    return found


READERS = {
    "albor": _of_albor,
    "jsonl": _of_jsonl,
    "sqlite": _of_table("log.db", f"SELECT step FROM m WHERE key = '{KEYS[0]}'"),
    "trackio": _of_table("*.db", "SELECT step FROM metrics"),
    "wandb": _of_wandb,
    "tensorboardX": _of_tensorboardx,
    "mlflow": _of_table("mlflow.db", f"SELECT step FROM metrics WHERE key = '{KEYS[0]}'"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("verb", choices=("log", "acknowledge", "steps"))
    parser.add_argument("writer")
    parser.add_argument("folder", type=Path)
    parser.add_argument("steps", type=from_zero, nargs="?", default=0, help="of log")
    asked = parser.parse_args()
    if asked.verb == "log":
        log(asked.writer, asked.folder, asked.steps)
    elif asked.verb == "acknowledge":
        acknowledge(asked.writer, asked.folder)
    else:
        sys.stdout.write(json.dumps(steps(asked.writer, asked.folder)))


if __name__ == "__main__":
    main()
