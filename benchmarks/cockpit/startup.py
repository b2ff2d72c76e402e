"""How long a person waits: commands and the cockpit's first frame, each beside a bare interpreter.

    python benchmarks/cockpit/startup.py [--rounds 15]

Whole processes, interleaved round by round: a drifting machine hits all alike. Prints median, p99
and the difference to `python -c pass` of the same round, and the machine's load.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import pty
import select
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import time
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))
from arguments import positive

BIN = Path(sys.executable).parent
COMMANDS = {
    "python -c pass": [sys.executable, "-c", "pass"],
    "albor --help": [str(BIN / "albor"), "--help"],
    "albor runs ls --json": [str(BIN / "albor"), "runs", "ls", "--json"],
    "albor train validate": [str(BIN / "albor"), "train", "validate", "configs/demo.yaml"],
    "albor train plan": [str(BIN / "albor"), "train", "plan", "configs/demo.yaml"],
}
_NOT_INHERITED = ("COLUMNS", "LINES", "PYTHONDONTWRITEBYTECODE")
FRAME = b"albor demo"  # what the empty home screen says to type: not a blank screen, not a clear


def timed(argv: list[str], env: dict[str, str]) -> float:
    began = time.perf_counter()
    subprocess.run(argv, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    return time.perf_counter() - began


def first_frame(env: dict[str, str], rows: int = 45, cols: int = 160) -> float:
    """Seconds until `albor-tui` has painted its home screen on a pseudo-terminal."""
    began = time.perf_counter()
    pid, fd = pty.fork()
    if pid == 0:
        os.execve(BIN / "albor-tui", [str(BIN / "albor-tui")], env)
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))
    seen, took = b"", float("nan")
    while time.perf_counter() - began < 10:
        if select.select([fd], [], [], 0.2)[0]:
            try:
                seen += os.read(fd, 65536)
            except OSError:
                break
            if FRAME in seen:
                took = time.perf_counter() - began
                break
    os.write(fd, b"q")
    time.sleep(0.3)
    os.close(fd)
    os.waitpid(pid, 0)
    return took


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=positive, default=15)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as home:
        # an inherited size would win over the pseudo-terminal's own; users have their bytecode
        inherited = {k: v for k, v in os.environ.items() if k not in _NOT_INHERITED}
        env = {**inherited, "ALBOR_HOME": home, "TERM": "xterm-256color", "COLORTERM": "truecolor"}
        times: dict[str, list[float]] = {name: [] for name in (*COMMANDS, "albor-tui first frame")}
        for number in range(rounds + 1):
            for name, argv in COMMANDS.items():
                took = timed(argv, env)
                if number:  # the first round warms the page cache
                    times[name].append(took)
            took = first_frame(env)
            if number:
                times["albor-tui first frame"].append(took)
    bare = times["python -c pass"]
    print(f"{rounds} rounds, load {os.getloadavg()[0]:.2f}, {os.cpu_count()} cores")
    print(f"{'':24}{'median ms':>10}{'p99 ms':>10}{'over bare':>12}")
    for name, took in times.items():
        over = statistics.median(a - b for a, b in zip(took, bare, strict=True))
        worst = sorted(took)[min(len(took) - 1, round(0.99 * len(took)))]
        print(
            f"{name:24}{1e3 * statistics.median(took):10.0f}{1e3 * worst:10.0f}{1e3 * over:12.0f}"
        )


if __name__ == "__main__":
    main()
