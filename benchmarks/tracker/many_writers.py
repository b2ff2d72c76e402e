"""Many programs that log at once: whether every step of every one is there afterwards.

    python benchmarks/tracker/many_writers.py [--writers 300] [--steps 200]

All of them begin at the same moment, log as fast as they can and end. Printed: what a `log` cost
while all wrote, how long until the store of all runs had the end of every one, and what is missing
of steps, rows and ends. Exit 1 where anything is.
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

from albor_core import history

sys.path.append(str(Path(__file__).resolve().parents[1]))
from arguments import positive

WRITER = """
import json, sys, time
from albor_core import track
number, steps = int(sys.argv[1]), int(sys.argv[2])
run = track.start("many", name=f"w{number}", id=f"w{number}", console=False)
print("ready", flush=True)
sys.stdin.readline()
costs = []
for step in range(1, steps + 1):
    began = time.perf_counter()
    run.log({"loss": 1.0 / step, "lr": 1e-3}, step=step)
    costs.append(time.perf_counter() - began)
run.finish()
print(json.dumps(sorted(costs)), flush=True)
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--writers", type=positive, default=300)
    parser.add_argument("--steps", type=positive, default=200)
    args = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f} before, {os.cpu_count()} processors")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
        os.environ["ALBOR_HOME"] = home
        return write(args.writers, args.steps, Path(home))


def write(writers: int, steps: int, home: Path) -> int:
    began = time.monotonic()
    programs = [
        subprocess.Popen(
            [sys.executable, "-P", "-c", WRITER, str(number), str(steps)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(writers)
    ]
    for program in programs:
        assert program.stdout is not None
        program.stdout.readline()
    print(f"{writers} runs begun in {time.monotonic() - began:.1f} s")
    began = time.monotonic()
    for program in programs:
        assert program.stdin is not None
        program.stdin.write("\n")
        program.stdin.flush()
    told = [program.communicate() for program in programs]
    costs = sorted(cost for out, _ in told for cost in json.loads(out.splitlines()[-1]))
    print(
        f"log: {statistics.median(costs) * 1e6:.1f} us median,"
        f" {costs[int(len(costs) * 0.99)] * 1e3:.2f} ms p99; all ended"
        f" {time.monotonic() - began:.1f} s after the start"
    )
    failed = sum(program.returncode != 0 for program in programs)
    said = {line for _, err in told for line in err.splitlines()}
    rows = settled(writers, began)
    short = [row["id"] for row in rows if row["last_step"] != steps or not ended(row)]
    print(
        f"programs that failed {failed}, lines on stderr {len(said)}, runs in the list"
        f" {len(rows)} of {writers}, without their end or last step {len(short)}"
    )
    for line in sorted(said)[:5]:
        print(f"  {line}")
    missing = sum(steps - len(run.metrics().to_list()) for run in history.runs())
    print(f"steps missing {missing} of {writers * steps:,}")
    return int(bool(failed or said or short or missing or len(rows) != writers))


def settled(writers: int, began: float) -> list[dict[str, object]]:
    """The list once every run has ended in it, or after five minutes."""
    words = [
        sys.executable,
        "-P",
        "-m",
        "albor_core.cli",
        "runs",
        "ls",
        "--json",
        "--limit",
        "100000",
    ]
    while True:
        done = subprocess.run(words, capture_output=True, text=True)
        rows = json.loads(done.stdout).get("runs", [])
        ends = sum(map(ended, rows))
        if ends == writers or time.monotonic() - began > 300:
            print(f"the list has all ends {time.monotonic() - began:.1f} s after the start")
            return list(rows)
        time.sleep(0.5)


def ended(row: dict[str, object]) -> bool:
    return row["status"] == "completed"


if __name__ == "__main__":
    sys.exit(main())
