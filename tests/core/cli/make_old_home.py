"""An ALBOR_HOME as an older version wrote it, and what today's commands say of it.

Both are made by hand, from a checkout of the version that they are to be of:

    make_old_home.py archive     old_home/home.tar.xz: once per version that later ones must open
    make_old_home.py documents   old_home/*.json: after a change that is meant; then read git diff

The archive is best made where it learns nothing of the machine: `unshare --uts sh -c 'hostname
old-host; PYTHONPATH=CHECKOUT PYTHON make_old_home.py archive'`, as root, with the Python of a
virtual environment outside any home, because runs record its path.

Everything lies below /tmp/albor-old-home while it is made, because runs record where they are;
`unpack` moves it. It holds, made through the command line and the public API alone:

- home/   the global store and the pointers;
- work/   shards, the configs, the programs, and the run directories in work/runs:
    old-train    a tiny model on the CPU, with checkpoints, a validation loss and an alert; pinned
    old-rate     the same with another learning rate: something to compare it with
    old-track    a tracked loop: many metrics, NaN, Inf, a text, tags, notes, a goal
  and, in home/runs:
    old-crash    a guarded program that failed twice, with its crash reports
    csv-...      an imported CSV file

A document is what a command of `COMMANDS` printed, with its exit code; resume.json has the losses
of `RESUME`.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import sqlite3
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Container, Iterator
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

ROOT = Path("/tmp/albor-old-home")
WORK = "work"
DOCUMENTS = Path(__file__).with_name("old_home")
ARCHIVE = DOCUMENTS / "home.tar.xz"
# not in the journals, whose lines have checksums and may say where a run was once
HAS_PATHS = {".json", ".yaml", ".txt"}
SEQ_LEN, VOCAB = 16, 32
COMMANDS = {
    "runs-ls": "runs ls --json",
    "runs-ls-filter": "runs ls --json tag:keep val/loss:min<9",
    "runs-ls-group": "runs ls --json --group",
    "runs-show-train": "runs show old-train --points all --json",
    "runs-show-track": "runs show old-track --points all --json",
    "runs-show-crash": "runs show old-crash --points all --json",
    "runs-show-import": "runs show {imported} --points all --json",
    "runs-diff": "runs diff old-train old-rate --json",
    "runs-diff-odd": "runs diff old-train old-track old-crash --json",
    "runs-digest": "runs digest old-train --json",
    "alerts-ls": "alerts ls --json",
    "alerts-rules": "alerts rules old-train --json",
    "checkpoints-ls": "checkpoints ls old-train --json",
    "checkpoints-verify": "checkpoints verify old-train --json",
    "guard-report": "guard report old-crash --json",
    "guard-status-crash": "guard status old-crash --json",
    "guard-status-train": "guard status old-train --json",
    "db-check": "db check --thorough --json",
}
RESUME = "train resume old-train --allow-config-change --json"
MORE_STEPS = ('"max_steps": 40', '"max_steps": 46')  # in config.yaml of the run, before RESUME
TRACKED = """
import math
from albor_core import track

config = {"lr": 0.01, "optimizer": {"name": "sgd", "momentum": 0.9}, "layers": [4, 8], "note": None}
with track.start("old", name="old-track", dir="runs", config=config, max_steps=60,
                 goals={"score": "max"}) as run:
    for step in range(1, 61):
        loss = 3.0 / step + 0.01 * math.sin(step)
        values = {"loss": loss, "lr": 0.01 / step, "score": step / 60, "by": {"head": -loss}}
        if step == 7:
            values["loss"] = math.nan
        if step == 9:
            values["score"] = math.inf
        if step % 20 == 0:
            values["val_loss"] = loss + 0.1
        run.log(values, step)
        if step == 30:
            run.event("data.epoch", epoch=1)
            run.sample("a sample of what it says", prompt="a", step=step)
    run.log({"loss": 0.06, "late": 1}, 50)
"""
FAILING = """
import sys
print("line one", flush=True)
print("reading shard 3", file=sys.stderr, flush=True)
raise ValueError("the shard is not what it was")
"""


def albor(
    *words: object, codes: Container[int] = (0,), root: Path = ROOT
) -> subprocess.CompletedProcess[str]:
    home = {"ALBOR_HOME": str(root / "home"), "OMP_NUM_THREADS": "1", "HOME": str(root / "user")}
    who = {"LOGNAME": "somebody", "PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    done = subprocess.run(
        [sys.executable, "-P", "-m", "albor_core.cli", *map(str, words)],
        cwd=root / "work",
        env={"PATH": "/usr/bin:/bin", **home, **who},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
    )
    if done.returncode not in codes:
        sys.exit(f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done


def write_shards(folder: Path, sequences: int, seed: int) -> None:
    """Random walks over the vocabulary."""
    steps = np.random.default_rng(seed).integers(1, 4, size=(sequences, SEQ_LEN))
    ids = (steps.cumsum(axis=1) % VOCAB).astype(np.uint32)
    folder.mkdir(parents=True)
    table = pa.table({"input_ids": pa.array(list(ids), pa.list_(pa.uint32()))})
    pq.write_table(table, folder / "shard-00000.parquet")


def config(lr: float) -> str:
    model = {
        "path": ".",
        "mode": "transformer",
        "architecture": {
            "hidden_size": 16,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "num_key_value_heads": 1,
            "intermediate_size": 16,
            "vocab_size": VOCAB,
            "max_position_embeddings": SEQ_LEN,
        },
    }
    training = {
        "epochs": 20,
        "max_steps": 40,
        "warmup_steps": 4,
        "grad_clip": 1.0,
        "output_dir": "runs",
        "checkpoint": {"save_every": 10},
        "eval_interval": 5,
        "eval_batches": 2,
        "num_threads": 1,
        "device": "cpu",
    }
    document = {
        "model": model,
        "data": {"train": "shards/train", "val": "shards/val", "batch_size": 4, "seq_len": SEQ_LEN},
        "optimizer": {"name": "adamw", "lr": lr},
        "training": training,
        "monitoring": {
            "tracking": {"experiment": "old"},
            "system": {"interval": 100},
            "alerts": [{"condition": "loss > 1", "action": "warn", "message": "above one"}],
        },
        "guard": {"poll_s": 0.05, "backoff_s": [0.05], "grace_s": 20},
    }
    return json.dumps(document, indent=1) + "\n"


def make_runs() -> None:
    work = ROOT / "work"
    write_shards(work / "shards" / "train", 60, seed=1)
    write_shards(work / "shards" / "val", 8, seed=2)
    for name, lr in (("old-train", 0.01), ("old-rate", 0.0001)):
        (work / f"{name}.yaml").write_text(config(lr))
        albor("train", "apply", f"{name}.yaml", "--name", name, "--json")
    (work / "loop.py").write_text(TRACKED)
    environ = {**os.environ, "ALBOR_HOME": str(ROOT / "home"), "HOME": str(ROOT / "user")}
    subprocess.run([sys.executable, "loop.py"], cwd=work, env=environ, check=True, timeout=120)
    (work / "fails.py").write_text(FAILING)
    quick = ("--restarts", 1, "--option", "backoff_s=[0.05]", "--option", "poll_s=0.05")
    guarded = ("guard", "run", "--name", "old-crash", "--experiment", "old", *quick)
    albor(*guarded, "--", sys.executable, "fails.py", codes=range(256))
    rows = [f"{step},{2 / step},{0.5 if step % 2 else ''}" for step in range(1, 31)]
    (work / "old.csv").write_text("\n".join(["step,loss,accuracy", *rows]) + "\n")
    albor("runs", "import", "old.csv", "--experiment", "elsewhere", "--json")


def annotate() -> None:
    albor("runs", "tag", "old-train", "keep", "first")
    albor("runs", "note", "old-train", "the one of the paper: lr 0.01")
    albor("runs", "tag", "old-track", "keep", "swept")
    albor("runs", "note", "old-track", "a second look\nin two lines")
    albor("runs", "pin", "old-train")
    albor("runs", "rename", "old-rate", "a tenth of a tenth")
    albor("alerts", "ack", "old-rate", "all")


def wait_for_the_index() -> None:
    """Until no process works below ROOT: what is packed must not be half of a transaction."""
    deadline = time.monotonic() + 60
    while at_work := [line for line in _command_lines() if str(ROOT).encode() in line]:
        if time.monotonic() > deadline:
            sys.exit(f"still at work: {at_work}")
        time.sleep(0.1)
    for store in ROOT.rglob("experiments.db"):
        with closing(sqlite3.connect(store)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        for leftover in store.parent.glob("experiments.db-*"):
            leftover.unlink()


def _command_lines() -> Iterator[bytes]:
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if int(process.name) != os.getpid():
                yield (process / "cmdline").read_bytes()


def forget_the_machine() -> None:
    """Kernel and boot become those of no machine, in as many bytes: stores hold them too."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_bytes().strip()
    kernel = platform.release().encode()
    for path in filter(Path.is_file, ROOT.rglob("*")):
        raw = path.read_bytes()
        new = raw.replace(boot, b"00000000-0000-4000-8000-000000000000")
        new = new.replace(kernel, b"0.0.0-old".ljust(len(kernel), b"-")[: len(kernel)])
        if new != raw:
            if path.suffix == ".jsonl":
                sys.exit(f"{path}: its lines have checksums")
            path.write_bytes(new)


def pack() -> None:
    with tarfile.open(ARCHIVE, "w:xz", preset=9) as tar:
        for name in ("home", "work"):
            tar.add(ROOT / name, name, filter=_owned_by_nobody)


def resumed(run: Path, command: Callable[..., Any]) -> Iterator[tuple[str, float]]:
    """Step (as JSON has it) and loss of what `RESUME` adds to the run."""
    config, journal = run / "config.yaml", run / "journal.jsonl"
    before = journal.stat().st_size
    text = config.read_text()
    assert MORE_STEPS[0] in text
    config.write_text(text.replace(*MORE_STEPS))
    command(*RESUME.split())
    for line in journal.read_bytes()[before:].splitlines():
        record = json.loads(line)
        if record["t"] == "m" and "train/loss" in record["v"]:
            yield str(record["step"]), record["v"]["train/loss"]


def _owned_by_nobody(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def make_archive() -> None:
    shutil.rmtree(ROOT, ignore_errors=True)
    for name in ("home", "work", "user"):
        (ROOT / name).mkdir(parents=True)
    make_runs()
    annotate()
    wait_for_the_index()
    forget_the_machine()
    pack()
    shutil.rmtree(ROOT)


def unpack(folder: Path) -> None:
    """The old home below `folder`, as if it had been made there."""
    with tarfile.open(ARCHIVE) as tar:
        tar.extractall(folder, filter="data")
    for path in (p for name in ("home", "work") for p in (folder / name).rglob("*")):
        if path.is_symlink() or path.parent.parent.name == "checkpoints":
            continue  # manifests have hashes
        if path.suffix in HAS_PATHS:
            path.write_text(path.read_text().replace(str(ROOT), str(folder)))
        elif path.name == "experiments.db":
            with closing(sqlite3.connect(path)) as store, store:
                store.execute(
                    "UPDATE runs SET path = replace(path, ?, ?)", (str(ROOT), str(folder))
                )


def neutral(text: str, place: str) -> str:
    """What a command said of a home in `place`, with paths that no machine has."""
    text = text.replace(place, str(ROOT))  # journals, whose lines have checksums, say ROOT as it is
    return text.replace(f"{ROOT}/{WORK}/", f"{ROOT}/files/")


def make_documents() -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        unpack(folder)
        for name, line in COMMANDS.items():
            argv = line.format(imported=imported(folder)).split()
            done = albor(*argv, codes=range(256), root=folder)
            out = json.loads(neutral(done.stdout, place))
            write(name, {"argv": argv, "code": done.returncode, "out": out})
        run = folder / "work" / "runs" / "old-train"
        write("resume", dict(resumed(run, partial(albor, root=folder))))


def imported(folder: Path) -> str:
    (pointer,) = (folder / "home" / "runs").glob("csv-*.json")
    return pointer.stem


def write(name: str, document: dict[str, Any]) -> None:
    text = json.dumps(document, indent=1, sort_keys=True) + "\n"
    (DOCUMENTS / f"{name}.json").write_text(text)


if __name__ == "__main__":
    {"archive": make_archive, "documents": make_documents}[sys.argv[1]]()
