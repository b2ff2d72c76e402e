"""What recording the console costs a program: with it and without, in turns, beside each other.

    python benchmarks/tracker/console.py [--lines 200000] [--rounds 5]

Lines: `print` of one short line in a loop, to where a program's output goes: a pipe that is read, a
file, a terminal that is read, each line handed over at once (flush) or not. Until the last line was
printed, and until the run was closed, by when all of it is in the log and was shown. Start: from
before `track.start` until it has returned, in a process that has the tracker imported already; end:
of `close`, with nothing printed. Medians of all rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import pty
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))
from arguments import positive

PROGRAM = """
import json, os, sys, time
from albor_core import track
lines, flush, told = int(sys.argv[1]), sys.argv[2] == "flush", sys.argv[3]
begun = time.perf_counter()
run = track.start(console=sys.argv[4] == "with")
started = time.perf_counter()
for number in range(lines):
    print("step", number, "loss 2.345", flush=flush)
sys.stdout.flush()
printed = time.perf_counter()
run.close()
closed = time.perf_counter()
with open(told, "w") as file:
    json.dump({"start": started - begun, "print": printed - started, "all": closed - started}, file)
"""


@contextmanager
def place(kind: str, folder: Path) -> Iterator[int]:
    """Somewhere to print to."""
    if kind == "file":
        fd = os.open(folder / "out.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        yield fd
        os.close(fd)
        return
    ours, theirs = pty.openpty() if kind == "terminal" else os.pipe()
    reader = threading.Thread(target=swallow, args=(ours,))
    reader.start()
    yield theirs
    os.close(theirs)
    reader.join()
    os.close(ours)


def scratch() -> tempfile.TemporaryDirectory[str]:
    """A folder that the index process of a run may still write into while it is removed."""
    return tempfile.TemporaryDirectory(ignore_cleanup_errors=True)


def swallow(fd: int) -> None:
    """Read all there is."""
    try:
        while os.read(fd, 1 << 16):
            pass
    except OSError:  # the other side of a terminal is gone
        return


def measure(kind: str, lines: int, flush: bool, console: bool) -> dict[str, float]:
    """One program: seconds."""
    with scratch() as name, place(kind, Path(name)) as out:
        told = Path(name) / "told.json"
        words = ["flush" if flush else "-", str(told), "with" if console else "without"]
        subprocess.run(
            [sys.executable, "-c", PROGRAM, str(lines), *words],
            stdout=out,
            env={**os.environ, "ALBOR_HOME": str(Path(name) / "home")},
            check=True,
        )
        found: dict[str, float] = json.loads(told.read_text())
    return found


def both(
    rounds: int, kind: str, lines: int, flush: bool
) -> tuple[dict[str, float], dict[str, float]]:
    """Medians without and with the console."""
    found: dict[bool, list[dict[str, float]]] = {False: [], True: []}
    for _ in range(rounds):
        for console in found:
            found[console].append(measure(kind, lines, flush, console))
    without, with_it = (
        {key: statistics.median(one[key] for one in ones) for key in ones[0]}
        for ones in found.values()
    )
    return without, with_it


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lines", type=positive, default=200_000)
    parser.add_argument("--rounds", type=positive, default=5)
    given = parser.parse_args()
    print(f"{given.lines:,} lines, medians of {given.rounds} rounds{'':18}without      with")
    for kind in ("pipe", "file", "terminal"):
        for flush in (False, True):
            without, with_it = both(given.rounds, kind, given.lines, flush)
            for key, what in (("print", "printed"), ("all", "printed, recorded and shown")):
                speeds = [given.lines / one[key] / 1000 for one in (without, with_it)]
                how = f"{kind}{', each line at once' if flush else ''}: {what}"
                print(f"{how:54}{speeds[0]:7,.0f} {speeds[1]:9,.0f} thousand lines/s")
    for kind in ("pipe", "terminal"):
        without, with_it = both(2 * given.rounds, kind, 0, flush=False)
        for key, what in (("start", "track.start"), ("all", "close")):
            times = [one[key] * 1000 for one in (without, with_it)]
            print(f"{kind + ': ' + what:54}{times[0]:7.1f} {times[1]:9.1f} ms")


if __name__ == "__main__":
    main()
