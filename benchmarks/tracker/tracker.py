"""What logging costs a training loop: Albor beside others, in one run, step by step.

    python benchmarks/tracker/tracker.py [--steps 20000] [--rounds 3] [--kills 50] [--peers DIR]
    python benchmarks/tracker/tracker.py --rebuild 1000000

Eight random doubles a step. Each writer is a process of its own, in turns, round by round, so that
a drifting machine hits all alike. Printed: microseconds a call (median and p99 of all rounds, and
of the round with the lowest median), bytes a step on disk after the end, extra memory, and steps
lost and doubled by kill -9 among those whose call had returned.

`jsonl` is the floor: json.dumps and one write a step, no index. `sqlite` commits its eight rows a
step (WAL, synchronous=NORMAL), as a tracker without a journal must to lose nothing. Peers have an
environment each, DIR/PEER/bin/python, made by `python -m venv DIR/PEER` and `pip install PEER` for
trackio, wandb, tensorboardX and mlflow; one that is not there is looked for in this interpreter.
They are killed `--peer-kills` times, 1 to 3 s after the first step (the rest within half a second:
they are as fast then as ever); mlflow, at milliseconds a call, logs a twentieth of the steps.

`--rebuild N` measures instead how long a run of N steps of one series takes to be indexed again
from its journal.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from writers import PEERS, WRITERS

sys.path.append(str(Path(__file__).resolve().parents[1]))
from arguments import from_zero, positive, there

SLOW = {"mlflow": 20}  # a fraction of the steps
_SETTLE_S = 3.0  # for helper processes of peers that outlive the killed one


@dataclass
class Contestant:
    """A writer, the interpreter that runs it, and what it cost in each round."""

    name: str
    python: str
    steps: int
    rounds: list[list[int]] = field(default_factory=list)  # nanoseconds a call
    sizes: list[float] = field(default_factory=list)  # bytes a step
    extra_mib: float = 0.0
    kills: str = "-"

    def command(self, verb: str, folder: Path, *more: object) -> list[str]:
        script = str(Path(__file__).with_name("writers.py"))
        return [self.python, script, verb, self.name, str(folder), *map(str, more)]

    def race(self) -> None:
        """One round."""
        with scratch() as folder:
            done = subprocess.run(
                self.command("log", folder, self.steps),
                env=environment(folder),
                capture_output=True,
                check=True,
            )
            if self.name == "albor":
                wait_for_index(folder)
            size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        found = json.loads(done.stdout[done.stdout.rindex(b'{"ns"') :])  # peers talk before it
        self.rounds.append(found["ns"])
        self.sizes.append(size / self.steps)
        self.extra_mib = max(self.extra_mib, found["extra_kib"] / 1024)

    def suffer(self, kills: int) -> None:
        """Be killed at random moments; count acknowledged steps that are gone, and doubles."""
        lost, doubled, told = [], 0, 0
        chance = random.Random(2)
        for _ in range(kills):
            acknowledged, found = self._killed(
                chance.uniform(1, 3) if self.name in PEERS else chance.uniform(0, 0.5)
            )
            lost.append(acknowledged - len(set(found) & set(range(1, acknowledged + 1))))
            doubled += len(found) - len(set(found))
            told += acknowledged
        if lost:
            worst = f", at worst {max(lost)}" if any(lost) else ""
            self.kills = f"{sum(lost)} of {told:,} lost in {kills} kills{worst}; {doubled} doubled"

    def _killed(self, delay_s: float) -> tuple[int, list[int]]:
        with scratch() as folder:
            told, tell = os.pipe()
            process = subprocess.Popen(
                [
                    "/bin/sh",
                    "-c",
                    f'exec "$@" 3>&{tell}',
                    "sh",
                    *self.command("acknowledge", folder),
                ],
                env=environment(folder),
                pass_fds=(tell,),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            os.close(tell)
            with os.fdopen(told, "rb") as pipe:
                first = pipe.readline()
                assert first, f"{self.name} logged nothing"
                time.sleep(delay_s)
                process.send_signal(signal.SIGKILL)
                process.wait()
                lines = (first + drained(pipe.fileno(), pipe.peek())).split(b"\n")[:-1]
            if self.name in PEERS:
                time.sleep(_SETTLE_S)
            asked = subprocess.run(
                self.command("steps", folder),
                env=environment(folder),
                capture_output=True,
                check=True,
            )
        return int(lines[-1]), json.loads(asked.stdout)


def drained(fd: int, begun: bytes) -> bytes:
    """What is left in a pipe whose writer is dead, though its children may hold it open."""
    os.set_blocking(fd, False)
    parts = [begun]
    try:
        while part := os.read(fd, 1 << 16):
            parts.append(part)
    except BlockingIOError:
        pass
    return b"".join(parts)


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder on this disk: /tmp may be memory."""
    with tempfile.TemporaryDirectory(
        dir=Path.cwd(), prefix=".bench-", ignore_cleanup_errors=True
    ) as folder:
        yield Path(folder)


def environment(folder: Path) -> dict[str, str]:
    home = folder / "home"
    home.mkdir(exist_ok=True)
    quiet = {"WANDB_MODE": "offline", "HF_HUB_OFFLINE": "1", "MLFLOW_DISABLE_TELEMETRY": "true"}
    return {**os.environ, "ALBOR_HOME": str(home), "TRACKIO_DIR": str(folder), **quiet}


def wait_for_index(folder: Path) -> None:
    """Until all is indexed and the index process has gone: the stores count too."""
    from albor_core.run.home.runs import runs_in
    from albor_core.run.liveness import lock_holder
    from albor_core.store.index.catch_up import drain_index

    (run,) = runs_in(folder)
    assert drain_index(run, timeout_s=120), "still indexed after two minutes"
    while lock_holder(run.index_lock) is not None:
        time.sleep(0.05)


def rebuilt(steps: int) -> None:
    """Time `rebuild` on a run of one series."""
    import orjson

    from albor_core.run.home.new_run import create_run
    from albor_core.run.journal import Journal
    from albor_core.store.query.reader import Reader
    from albor_core.store.upkeep.rebuild import rebuild

    with scratch() as folder:
        os.environ["ALBOR_HOME"] = str(folder / "home")
        run = create_run(
            folder, "long", experiment="bench", name="long", kind="track", argv=[], facts={}
        )
        journal = Journal(run.journal, attempt=1, dumps=orjson.dumps)
        source = random.Random(1)
        for step in range(1, steps + 1):
            assert journal.numbers(step, {"train/loss": source.random()})
        journal.close()
        report = rebuild(None, [run])
        with Reader(run.store) as reader:
            summary = reader.summary(run.id)["train/loss"]
        assert (summary.count, report.problems) == (steps, []), report
        print(f"{steps:,} steps of one series indexed again in {report.seconds:.1f} s")


def at(sorted_ns: list[int], share: float) -> float:
    return sorted_ns[min(len(sorted_ns) - 1, int(share * len(sorted_ns)))] / 1000


def contestants(steps: int, peers: Path | None) -> Iterator[Contestant]:
    for name in WRITERS:
        own = peers / name / "bin" / "python" if peers is not None else None
        if name not in PEERS or (own is None and importlib.util.find_spec(name)):
            yield Contestant(name, sys.executable, steps // SLOW.get(name, 1))
        elif own is not None and own.exists():
            yield Contestant(name, str(own), steps // SLOW.get(name, 1))
        else:
            print(f"not installed: {name}")


def show(found: list[Contestant]) -> None:
    head = ("writer", "steps", "p50 us", "p99 us", "best p50", "best p99", "B/step", "extra MB")
    print(("{:>13}" + "{:>10}" * 7).format(*head), "  kill -9: acknowledged steps")
    medians = {}
    for one in found:
        series = sorted((sorted(ns) for ns in one.rounds), key=lambda ns: at(ns, 0.5))
        every = sorted(ns for part in series for ns in part)
        medians[one.name] = at(every, 0.5)
        numbers = (at(every, 0.5), at(every, 0.99), at(series[0], 0.5), at(series[0], 0.99))
        cells = [f"{x:.1f}" for x in (*numbers, statistics.mean(one.sizes), one.extra_mib)]
        print(f"{one.name:>13}", ("{:>10}" * 7).format(one.steps, *cells), " ", one.kills)
    for name, median in medians.items():
        if name != "albor":
            print(f"albor costs {medians['albor'] / median:.3f} of {name}'s median")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=positive, default=20_000)
    parser.add_argument("--rounds", type=positive, default=3)
    parser.add_argument("--kills", type=from_zero, default=5)
    parser.add_argument("--peer-kills", type=from_zero, default=5)
    parser.add_argument("--peers", type=there, help="folder with an environment per peer")
    parser.add_argument("--rebuild", type=positive, metavar="STEPS")
    options = parser.parse_args()
    if options.rebuild:
        rebuilt(options.rebuild)
        return
    found = list(contestants(options.steps, options.peers))
    load = os.getloadavg()[0]
    for _ in range(options.rounds):
        for one in found:
            one.race()
    for one in found:
        one.suffer(options.peer_kills if one.name in PEERS else options.kills)
    show(found)
    print(f"load {load:.1f} at the start, {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
