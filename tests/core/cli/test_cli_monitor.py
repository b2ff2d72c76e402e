"""`albor monitor --json`: documents line by line while a run lives, an end with a known code."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from cli_user import strict, validate, wait_until

from albor_core.run.home.new_run import create_run
from albor_core.run.rundir import RunDir

ROOT = Path(__file__).resolve().parents[3]
LOGS = """
import sys, time
from albor_core import track
with track.start(experiment="e", name=sys.argv[1]) as run:
    print(run.id, flush=True)
    step = 0
    while sys.stdin.readline().strip() == "on":
        step += 1
        run.log({"loss": 1 / step, "odd": float("nan")}, step=step)
        print(step, flush=True)
"""


class Loop:
    """A training loop of somebody's, that goes on step by step as it is told."""

    def __init__(self, desk, name):
        self.process = subprocess.Popen(
            [sys.executable, "-c", LOGS, name], cwd=ROOT, text=True,
            env=desk.environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        self.run = RunDir(desk.home / "runs" / self.process.stdout.readline().strip())

    def step(self):
        self.tell("on")
        return int(self.process.stdout.readline())

    def tell(self, word):
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()


@pytest.fixture
def loop(desk):
    started = []

    def start(name):
        started.append(Loop(desk, name))
        return started[-1]

    yield start
    for one in started:
        one.process.kill()
        one.process.communicate()


def validated(line):
    return validate(strict(line))


def rest_of(stream):
    """What it says until its end; `communicate` would lose what was read ahead of a line."""
    out, err = stream.stdout.read(), stream.stderr.read()
    stream.wait(timeout=60)
    return out, err


QUICK = ("--json", "--interval", "0.05")


def test_every_line_is_a_document_until_the_run_ends_with_its_end(desk, loop):
    one = loop("a")
    stream = desk.start("monitor", one.run.id, *QUICK)
    seen = []
    for _ in range(3):
        step = one.step()
        while not seen or seen[-1]["now"]["step"] != step:
            seen.append(validated(stream.stdout.readline()))
            assert seen[-1]["status"]["is_active"]
    one.tell("off")
    out, err = rest_of(stream)
    assert (stream.returncode, err) == (0, "")
    rest = [validated(line) for line in out.splitlines()]
    assert (rest[-1]["status"]["word"], rest[-1]["status"]["is_active"]) == ("completed", False)
    assert [document["now"]["step"] for document in rest][-1] == 3
    assert {document["run"]["id"] for document in [*seen, *rest]} == {one.run.id}


def test_a_killed_run_ends_the_stream_as_lost(desk, loop):
    one = loop("a")
    one.step()
    stream = desk.start("monitor", one.run.id, *QUICK)
    validated(stream.stdout.readline())
    one.process.kill()
    one.process.wait()
    out, _ = rest_of(stream)
    assert stream.returncode == 0
    assert validated(out.splitlines()[-1])["status"]["word"] == "lost"


def test_all_active_runs_are_followed_those_that_come_later_too(desk, loop):
    first = loop("a")
    first.step()
    stream = desk.start("monitor", *QUICK)
    validated(stream.stdout.readline())
    second = loop("b")
    second.step()
    ids = set()
    while ids != {first.run.id, second.run.id}:
        ids.add(validated(stream.stdout.readline())["run"]["id"])
    second.run.path.rename(desk.folder / "elsewhere")  # one of them goes away: the other stays
    assert {validated(stream.stdout.readline())["run"]["id"] for _ in range(20)} >= {first.run.id}
    for one in (first, second):
        one.process.kill()
        one.process.wait()
    out, _ = rest_of(stream)
    assert stream.returncode == 0
    assert all(validated(line) for line in out.splitlines())


def test_a_run_that_is_resumed_is_followed_again(desk, hold):
    """Among all active runs, one of which stays alive throughout."""
    made = [
        create_run(desk.folder / "out", name, experiment="e", name=name, kind="track", argv=[],
                   facts={"git": {"commit": None, "dirty": False}, "versions": {}})
        for name in ("stays", "pauses")
    ]  # fmt: skip
    holders = [hold(run.run_lock) for run in made]
    stream = desk.start("monitor", *QUICK)

    def heard(name, *, is_active):
        for _ in range(1000):  # looks of 50 ms, two documents each
            document = validated(stream.stdout.readline())
            if (document["run"]["id"], document["status"]["is_active"]) == (name, is_active):
                return
        raise AssertionError(name)

    heard("pauses", is_active=True)
    holders[1].communicate()
    heard("pauses", is_active=False)
    holders[1] = hold(made[1].run_lock)
    heard("pauses", is_active=True)
    for holder in holders:
        holder.communicate()
    rest_of(stream)
    assert stream.returncode == 0


def test_a_folder_that_goes_away_is_not_found(desk, loop):
    one = loop("a")
    one.step()
    stream = desk.start("monitor", one.run.id, *QUICK)
    validated(stream.stdout.readline())
    one.run.path.rename(desk.folder / "elsewhere")
    out, _ = rest_of(stream)
    assert stream.returncode == 3
    assert validated(out.splitlines()[-1])["error"]["code"] == "not_found"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, -15)])
def test_an_interrupted_stream_ends_on_a_whole_line(desk, loop, number, code):
    one = loop("a")
    one.step()
    stream = desk.start("monitor", one.run.id, *QUICK)
    validated(stream.stdout.readline())
    stream.send_signal(number)
    out, err = rest_of(stream)
    assert (stream.returncode, "Traceback" in err) == (code, False)
    assert all(validated(line) for line in out.splitlines())
    assert wait_until(lambda: one.run.liveness().is_alive)  # watching is not touching


@pytest.mark.parametrize(
    ("words", "code"),
    [((), 0), (("nobody",), 3), (("--interval", "0"), 2), (("--interval", "nan"), 2)],
)
def test_what_it_says_of_nothing(desk, words, code):
    result = desk.quick("monitor", *words, "--json")
    assert result.code == code
    assert result.out == "" if code == 0 else result.error["message"]
