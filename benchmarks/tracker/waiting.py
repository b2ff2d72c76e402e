"""What `albor runs wait` costs while nothing happens, and how soon it answers.

    python benchmarks/tracker/waiting.py [--rounds 15] [--idle-s 10]

A tracked loop logs a step only when it is told to. Each round starts the command, lets it sleep,
has the loop log the value that it waits for and takes the time from the return of `log` to the
command's answer, its interpreter's end included. The idle stretch counts the wake-ups of a waiting
command by the kernel's own count (voluntary context switches) while the loop's index process is at
work beside it. Promised: no wake-up between events, an answer within 1 s.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))
from arguments import above_zero, positive

ALBOR = [sys.executable, "-P", "-m", "albor_core.cli", "runs", "wait"]
LOOP = """
import sys, time
from albor_core import track
run = track.start("waiting")
run.log({"loss": 9.0}, step=1)
print(run.id, flush=True)
for line in sys.stdin:
    run.log({"loss": 1.0}, step=int(line))
    print(time.time(), flush=True)
"""


def switches(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("voluntary_ctxt")).split()[1])


def asleep(pid: int) -> None:
    """Returns once the command sleeps in poll(2), as the kernel says."""
    while Path(f"/proc/{pid}/syscall").read_text().split()[0] not in ("7", "73", "271"):
        time.sleep(0.01)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=positive, default=15)
    parser.add_argument("--idle-s", type=above_zero, default=10.0)
    told = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        environment = {**os.environ, "ALBOR_HOME": home}
        loop = subprocess.Popen(
            [sys.executable, "-P", "-c", LOOP],
            env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert loop.stdin is not None and loop.stdout is not None
        run = loop.stdout.readline().strip()

        def wait(until: str) -> subprocess.Popen[str]:
            started = subprocess.Popen(
                [*ALBOR, run, "--until", until, "--json"],
                env=environment, stdout=subprocess.PIPE, text=True,
            )  # fmt: skip
            asleep(started.pid)
            return started

        idle = wait("step>=1000000")
        before = switches(idle.pid)
        time.sleep(told.idle_s)
        woken = switches(idle.pid) - before
        idle.kill()
        idle.communicate()
        delays, wakeups = [], []
        for step in range(2, told.rounds + 2):
            waiter = wait(f"step>={step}")
            loop.stdin.write(f"{step}\n")
            loop.stdin.flush()
            logged = float(loop.stdout.readline())
            out, _ = waiter.communicate()
            delays.append(time.time() - logged)
            wakeups.append(json.loads(out)["wakeups"])
        loop.stdin.close()
        loop.wait()
    print(f"wake-ups in {told.idle_s:g} s without an event: {woken} (promised 0)")
    print(
        f"answer after the event, {told.rounds} rounds: median {statistics.median(delays):.3f} s,"
        f" most {max(delays):.3f} s (promised 1 s); wake-ups a wait: at most {max(wakeups)}"
    )


if __name__ == "__main__":
    main()
