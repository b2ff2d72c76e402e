"""`albor attention` as people and programs use it: what it lists, its exit code, seen and muted.

Each trouble is made by a program of its own. A look right after the fact must list it, with its
word: whoever watches looks once a second.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cli_user import User, strict, validate, wait_until

from albor_core.feed.run.offers import subject_of_run
from albor_core.run.files.whole_file import write_json
from albor_core.run.guard_state import read_guard
from albor_core.run.rundir import RunDir, read_json
from albor_core.store.query.resolve import find_run

Program = subprocess.Popen[str]
Scene = Callable[[str], Program]
LAST = 39  # step of the programs before they wait
PROGRAM = """
import math, os, sys
from albor_core import track
kind = sys.argv[1]
with track.start(experiment="scenes", name=kind, max_steps=1000) as run:
    for step in range(1, 40):
        run.log({"loss": 1 / step}, step=step)
    print("at work", flush=True)
    sys.stdin.readline()
    if kind == "killed":
        os.kill(os.getpid(), 9)
    if kind == "crashed":
        raise RuntimeError("CUDA out of memory. Tried to allocate 2.50 GiB")
    if kind == "nan":
        run.log({"loss": math.nan}, step=step + 1)
        for later in range(step + 2, step + 9):
            run.log({"loss": 1.0}, step=later)
        print("said", flush=True)
        sys.stdin.readline()
"""


@pytest.fixture
def scene(desk: User) -> Iterator[Scene]:
    """Start a program that is at its work; all are ended with the test."""
    started: list[Program] = []

    def start(kind: str) -> Program:
        program = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, kind],
            cwd=desk.folder,
            env=desk.environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        started.append(program)
        assert program.stdout is not None and program.stdout.readline() == "at work\n"
        return program

    yield start
    for program in started:
        program.kill()
        program.communicate()


def go_on(program: Program) -> None:
    assert program.stdin is not None
    program.stdin.write("\n")
    program.stdin.flush()


def listed(desk: User, *words: str) -> dict[str, Any]:
    """The open entries of runs, by the name of the run."""
    found = desk.quick("attention", *words, "--json")
    document = validate(found.document)
    assert found.code == (4 if document["open"] else 0)
    return {one["run_name"]: one for one in document["items"] if one["is_open"] and one["run_id"]}


def kinds(desk: User) -> dict[str, str]:
    return {name: item["kind"] for name, item in listed(desk).items()}


def hang(run: RunDir, seconds: float, limit_s: float | None = None) -> None:
    """Have a run's last news be `seconds` old, as if its program had stood still since, and its
    steps have taken a fifth of a second before; `limit_s` is what its phase may take. Seconds are
    fewer than the machine may have been up: no news is older than that.
    """
    wait_until(lambda: (read_json(run.state) or {}).get("global_step") == LAST)  # no more comes
    state = {**(read_json(run.state) or {}), "step_ms": 200.0}
    state["mono_ns"] -= int(seconds * 1e9)
    assert state["mono_ns"] > 0
    state["phase_limit_s"] = limit_s
    write_json(run.state, state)


@pytest.mark.slow
def test_each_broken_program_is_listed_by_the_next_look_and_its_neighbours_are_not(
    desk: User, scene: Scene
) -> None:
    names = ("healthy", "done", "killed", "crashed", "nan", "silent", "hung")
    programs = {name: scene(name) for name in names}
    assert kinds(desk) == {}
    for name in ("done", "killed", "crashed"):
        go_on(programs[name])
        programs[name].wait(60)
    assert kinds(desk) == {"killed": "lost", "crashed": "died"}
    go_on(programs["nan"])
    assert programs["nan"].stdout is not None and programs["nan"].stdout.readline() == "said\n"
    assert kinds(desk)["nan"] == "non_finite"
    hang(find_run("silent"), 100)
    hang(find_run("hung"), 100, limit_s=50)
    found = listed(desk)
    assert {name: item["kind"] for name, item in found.items()} == {
        "killed": "lost",
        "crashed": "died",
        "nan": "non_finite",
        "silent": "silent",
        "hung": "hung",
    }
    assert "out of memory" in found["crashed"]["summary"]
    assert "GPU's memory" in found["crashed"]["cause"]
    assert found["nan"]["summary"] == "train/loss is NaN at step 40"
    assert found["hung"]["severity"] == "critical"
    document = desk.quick("attention", "--json").document
    unwatched = {find_run(name).id for name in ("healthy", "silent", "nan", "hung")}
    assert unwatched <= {*document["not_watched"]}, "no rule watches them, which is said"
    assert not document["quiet"]
    shown = desk.quick("attention")
    assert shown.code == 4
    assert "hung" in shown.out and "next: albor guard stop" in shown.out


@pytest.mark.slow
def test_lists_pages_and_lines_of_a_run_use_the_same_words(desk: User, scene: Scene) -> None:
    for name in ("hung", "silent"):
        scene(name)
        hang(find_run(name), 100, limit_s=50 if name == "hung" else None)
    wait_until(lambda: desk.quick("runs", "ls", "--json").document["total"] == 2)
    table = desk.quick("runs", "ls", "--columns", "name,status").out
    assert "hung" in table and "silent 1m" in table and "stalled" not in table
    found = validate(desk.quick("runs", "ls", "status:hung", "--json").document)["runs"]
    assert [row["name"] for row in found] == ["hung"]
    page = desk.quick("runs", "show", "hung").out
    assert f"{find_run('hung').id}  hung" in page
    assert "needs you   hung: no news for" in page and "watched     not watched" in page
    shown = validate(desk.quick("runs", "show", "hung", "--json").document)
    assert [item["kind"] for item in shown["attention"]] == ["hung"]
    line = desk.quick("monitor", "hung", "--once").out
    assert "hung" in line and "stalled" not in line
    streamed = validate(desk.quick("monitor", "silent", "--once", "--json").document)
    assert [item["kind"] for item in streamed["attention"]] == ["silent"]
    assert streamed["watched"] == "not watched"


@pytest.mark.slow
def test_a_restart_and_a_guard_that_is_gone_are_listed(desk: User, tmp_path: Path) -> None:
    mark = tmp_path / "second"
    code = (
        "import pathlib, sys, time\n"
        f"mark = pathlib.Path({str(mark)!r})\n"
        "if not mark.exists(): mark.touch(); sys.exit('boom')\n"
        "time.sleep(600)\n"
    )
    words = ("guard", "run", "--name", "again", "--detach", "--option", "backoff_s=[0.05]")
    started = desk.albor(*words, "--", sys.executable, "-c", code)
    assert started.code == 0, started
    run = find_run("again")
    try:
        wait_until(lambda: (read_guard(run) or {}).get("attempt") == 2)
        wait_until(lambda: subject_of_run(run).word == "running")
        item = listed(desk)["again"]
        assert (item["kind"], item["word"]) == ("restarted", "restarted")
        assert item["summary"].startswith("once within the hour: ")
        assert item["command"] == "albor guard report again"
        assert desk.quick("guard", "report", "again").code == 0, "the command works"
        guard = subject_of_run(run).guard
        assert guard
        os.kill(guard, signal.SIGKILL)
        wait_until(lambda: subject_of_run(run).guard is None)
        assert "unguarded" in {item["kind"] for item in items_of(desk)}
    finally:
        stopped = desk.albor("guard", "stop", "again")
    assert stopped.code == 0, stopped
    assert [one["kind"] for one in items_of(desk) if one["kind"] != "restarted"] == [], (
        "a run that its user stopped is no trouble"
    )


def items_of(desk: User) -> list[dict[str, Any]]:
    document = desk.quick("attention", "--json").document
    return [item for item in document["items"] if item["run_id"]]


def test_without_runs_nothing_needs_a_person(desk: User) -> None:
    assert listed(desk) == {}
    document = desk.quick("attention", "--json").document
    assert (document["fine"], document["not_watched"]) == ([], [])


@pytest.mark.slow
def test_what_is_seen_or_muted_is_left_out_and_shown_when_asked(desk: User, scene: Scene) -> None:
    for name in ("killed", "crashed"):
        program = scene(name)
        go_on(program)
        program.wait(60)
    found = listed(desk)
    seen = desk.quick("attention", "ack", found["killed"]["id"], "--json")
    assert seen.code == 0 and validate(seen.document)["entries"] == [found["killed"]["id"]]
    assert [*listed(desk)] == ["crashed"]
    muted = desk.quick("attention", "mute", "crashed", "--for", "1h", "--json")
    assert muted.code == 0 and len(validate(muted.document)["entries"]) == 1
    assert listed(desk) == {}
    quiet = desk.quick("attention")
    assert "killed" not in quiet.out
    everything = desk.quick("attention", "--all")
    assert "seen by" in everything.out and "muted for" in everything.out
    again = desk.quick("attention", "ack", "killed", "--json")
    assert again.document["entries"] == [], "nothing of it is open"


@pytest.mark.slow
def test_only_the_runs_that_are_named_are_looked_at(desk: User, scene: Scene) -> None:
    for name in ("killed", "crashed"):
        program = scene(name)
        go_on(program)
        program.wait(60)
    assert [*listed(desk, "killed")] == ["killed"]
    assert sorted(listed(desk, "killed", "crashed")) == ["crashed", "killed"]


@pytest.mark.slow
def test_a_run_that_this_home_does_not_know_is_no_all_clear(
    desk: User, scene: Scene, tmp_path: Path
) -> None:
    for name in ("killed", "crashed"):
        program = scene(name)
        go_on(program)
        program.wait(60)
    path = find_run("killed").path
    stranger = User(desk.folder, tmp_path / "another-home")
    assert [*listed(stranger, str(path))] == ["killed"], "by its folder it is found"
    assert stranger.quick("attention", "ack", path).code == 0
    assert listed(stranger, str(path)) == {}
    both = stranger.quick("attention", path, find_run("crashed").path, "--json")
    assert both.code == 3 and "not registered" in both.error["message"]


@pytest.mark.slow
def test_a_watcher_gets_a_line_for_what_comes_and_goes(desk: User, scene: Scene) -> None:
    program = scene("killed")
    watcher = desk.start("attention", "--watch", "--json")
    deadline = threading.Timer(90, watcher.kill)
    deadline.start()
    try:
        assert watcher.stdout is not None
        first = validate(strict(watcher.stdout.readline()))
        assert first["schema"] == "albor.attention/1"
        go_on(program)
        came = next_of_run(watcher, "killed")
        assert (came["change"], came["item"]["kind"]) == ("new", "lost")
        assert desk.quick("attention", "ack", "killed").code == 0
        assert next_of_run(watcher, "killed")["change"] == "gone"
        watcher.send_signal(signal.SIGINT)
        assert watcher.wait(60) == 130
    finally:
        deadline.cancel()
        watcher.kill()
        watcher.communicate()


def next_of_run(watcher: Program, name: str) -> dict[str, Any]:
    """The next change of a run, among those of the machine."""
    assert watcher.stdout is not None
    while line := watcher.stdout.readline():
        change = validate(strict(line))
        if change["item"]["run_name"] == name:
            return change
    raise AssertionError("the watcher ended")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("ack", "no/such@1"), 3, "cannot find an entry 'no/such@1'"),
        (("ack", "nothing"), 3, "nothing"),
        (("nothing",), 3, "nothing"),
        (("mute", "x/y@1", "--for", "soon"), 2, "'soon' is not a stretch of time"),
        (("mute", "x/y@1", "--for", "0m"), 2, "'0m' is not a stretch of time"),
        (("mute", "x/y@1", "--for", "60w"), 2, "a year is the longest"),
        (("mute", "x/y@1"), 2, "--for"),
    ],
)
def test_a_mistake_is_one_message_with_a_next_command(
    desk: User, words: tuple[str, ...], code: int, said: str
) -> None:
    result = desk.quick("attention", *words, "--json")
    assert (result.code, said in result.error["message"]) == (code, True), result
    assert result.error["hint"].startswith("albor ")


def test_a_damaged_file_of_marks_is_passed_over(desk: User) -> None:
    desk.home.mkdir(parents=True, exist_ok=True)
    (desk.home / "attention.json").write_text("[1")
    assert desk.quick("attention").code in (0, 4)
    assert json.loads((desk.home / "attention.json").read_text())["looked"]
