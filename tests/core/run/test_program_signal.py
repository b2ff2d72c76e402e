"""Stopping a program that has no guard: the right process, or none at all."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from albor_core.feed.run.status import run_status
from albor_core.run.control import person
from albor_core.run.errors import InUseError
from albor_core.run.files.whole_file import write_json
from albor_core.run.liveness import start_ticks
from albor_core.run.program.stop_unguarded import signal_program
from albor_core.run.rundir import RunDir, read_json

TRACKED = """
import signal, sys, time
from albor_core import track
run = track.start("loop", dir=sys.argv[1], name="loop")
if sys.argv[2] == "deaf":
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
run.log({"loss": 1.0}, step=3)
while not (run.path / "training_state.json").is_file():
    time.sleep(0.01)
print(run.path, flush=True)
while True:
    time.sleep(0.01)
"""
LIMIT_S = 20.0


class Loop:
    """A tracked loop in a process of its own."""

    def __init__(self, folder: Path, manner: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", TRACKED, str(folder), manner],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.run = RunDir(Path(self.process.stdout.readline().strip()))


@pytest.fixture
def begin(tmp_path, monkeypatch):
    monkeypatch.setenv("ALBOR_HOME", str(tmp_path / "home"))
    loops: list[Loop] = []

    def make(manner: str = "plain") -> Loop:
        loops.append(Loop(tmp_path / "runs", manner))
        return loops[-1]

    yield make
    for loop in loops:
        loop.process.kill()
        loop.process.wait()


def reaped(loop: Loop) -> int:
    return loop.process.wait(LIMIT_S)


@pytest.mark.parametrize("name", ["TERM", "INT"])
def test_a_tracked_program_ends_by_the_signal_and_is_stopped(begin, name):
    loop = begin()
    assert signal_program(loop.run, name, wait_s=LIMIT_S)
    reaped(loop)
    found = run_status(loop.run)
    assert found.word == "stopped"
    assert found.detail.endswith(f", asked by {person('cli')}")


def test_a_deaf_program_outlives_term_and_int_and_a_killed_one_counts_as_stopped(begin):
    loop = begin("deaf")
    for name in ("TERM", "INT"):
        assert not signal_program(loop.run, name, wait_s=0.05)
        assert loop.process.poll() is None
    assert signal_program(loop.run, "KILL", wait_s=LIMIT_S)
    assert reaped(loop) == -signal.SIGKILL
    found = run_status(loop.run)
    assert (found.word, found.detail) == ("stopped", f"killed by SIGKILL, asked by {person('cli')}")
    assert read_json(loop.run.exit)["code"] == 137


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"start_ticks": 1}, "is not the one that its files name"),
        ({"host": "elsewhere"}, "is of elsewhere"),
        ({"boot_id": "another"}, "is of an earlier boot of"),
        ({"pid": None}, "no file of it names its process"),
        ({"pid": 2**22 + 1}, "is gone"),
    ],
)
def test_a_process_that_is_not_provably_the_runs_own_is_not_signalled(begin, changes, why):
    loop = begin()
    signal_program(loop.run, "TERM", wait_s=LIMIT_S)
    reaped(loop)
    stranger = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        state = read_json(loop.run.state)
        named = {**state, "pid": stranger.pid, "start_ticks": start_ticks(stranger.pid)}
        write_json(loop.run.state, {**named, **changes})
        with pytest.raises(InUseError, match=why):
            signal_program(loop.run, "KILL", wait_s=0.1)
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_a_process_that_has_let_go_of_the_run_is_not_signalled(begin):
    loop = begin()
    signal_program(loop.run, "TERM", wait_s=LIMIT_S)
    reaped(loop)
    stranger = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        state = read_json(loop.run.state)
        named = {"pid": stranger.pid, "start_ticks": start_ticks(stranger.pid)}
        write_json(loop.run.state, {**state, **named})
        with pytest.raises(InUseError, match="no longer holds the run's lock"):
            signal_program(loop.run, "TERM", wait_s=0.1)
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()
