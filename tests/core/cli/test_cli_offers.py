"""What the commands offer works for the run they offer it for; what cannot work names what can."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest
from cli_user import tree_hash, valid, validate, wait_until

from albor_core.run.rundir import RunDir

LOOP = """
import signal, sys, time
from albor_core import track
run = track.start("mine", name="mine")
if "deaf" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if "dies" in sys.argv:
    run.log({"loss": 1.0})
    import os; os.kill(os.getpid(), 9)
while True:
    run.log({"loss": 1.0})
    print(run.path, flush=True)
    time.sleep(0.02)
"""
ONCE = ("--option", "max_restarts=0", "--option", "backoff_s=[0.05]")


@pytest.fixture
def loop(desk):
    """A tracked loop without a guard, by its way to end."""
    started = []

    def begin(*manner: str) -> RunDir:
        process = subprocess.Popen(
            [sys.executable, "-c", LOOP, *manner],
            cwd=desk.folder,
            env=desk.environment(),
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        assert process.stdout is not None
        if "dies" in manner:
            process.wait(60)
            return RunDir(
                next(path for path in (desk.home / "runs").glob("mine-*") if path.is_dir())
            )
        run = RunDir(type(desk.home)(process.stdout.readline().strip()))
        wait_until(run.state.is_file)
        return run

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def test_a_tracked_loop_without_a_guard_is_stopped(desk, loop):
    run = loop()
    document = valid(desk.albor("guard", "stop", run.id, "--json"))
    assert document["status"] == "done"
    assert document["detail"].startswith("stopped")
    assert not run.liveness().is_alive


def test_a_loop_that_does_not_hear_is_killed_when_that_is_asked_for(desk, loop):
    run = loop("deaf")
    first = desk.albor("guard", "stop", run.id, "--wait", "0.1", "--json")
    assert first.code == 75
    assert first.error["hint"] == f"albor guard stop {run.id} --signal INT"
    assert run.liveness().is_alive
    killed = valid(desk.albor("guard", "stop", run.id, "--signal", "KILL", "--json"))
    assert killed["status"] == "done"
    shown = valid(desk.albor("monitor", run.id, "--once", "--json"))
    assert shown["status"]["word"] == "stopped"


@pytest.mark.parametrize("verb", ["pause", "checkpoint"])
def test_what_needs_a_guard_is_refused_with_a_command_that_works(desk, loop, verb):
    run = loop()
    refused = desk.quick("guard", verb, run.id, "--json")
    assert (refused.code, refused.error["hint"]) == (3, f"albor guard stop {run.id}")
    assert refused.error["message"] == (
        f"cannot {verb} {run.id}: it has no guard, which {verb} needs"
    )


def test_a_dead_program_is_run_again_as_the_same_run_in_the_same_folder(desk):
    script = "import os, sys; open('ran', 'a').write(os.getcwd() + '\\n'); sys.exit(3)"
    words = ("guard", "run", "--name", "torn", *ONCE, "--", sys.executable, "-c", script)
    assert desk.albor(*words).code != 0
    elsewhere = desk.folder / "elsewhere"
    elsewhere.mkdir()
    again = desk.albor("guard", "retry", "torn", "--json", cwd=elsewhere)
    assert validate(again.document)["run"]["id"] == "torn"
    assert (desk.folder / "ran").read_text() == f"{desk.folder}\n" * 2
    attempts = RunDir(desk.home / "runs" / "torn").logs.glob("a*.log")
    assert [path.name for path in sorted(attempts)] == ["a0001.log", "a0002.log"]


@pytest.mark.parametrize("code", [0, 3], ids=["complete", "failed"])
def test_a_run_goes_on_with_its_own_command_alone(desk, code):
    """What is recorded of its code would not be what ran."""
    run, script = ("guard", "run", "--name", "own", "--resume-or-start", *ONCE, "--"), "own.py"
    (desk.folder / script).write_text(f"raise SystemExit({code})")
    desk.albor(*run, sys.executable, script)
    before = tree_hash(desk.home / "runs" / "own" / "guard")
    (desk.folder / "other.py").write_text("open('ran', 'w')")
    refused = desk.quick(*run, sys.executable, "other.py")
    assert refused.code == 2
    assert "cannot resume own: the run was started by another command" in refused.err
    assert "own.py" in refused.err and "another --name" in refused.err
    assert not (desk.folder / "ran").exists()
    assert tree_hash(desk.home / "runs" / "own" / "guard") == before


def test_a_command_that_names_its_folder_holds_no_secret_and_is_run_again(desk):
    """Every shell exports PWD."""
    script = desk.folder / "train.py"
    script.write_text("raise SystemExit(3)")
    words = ("guard", "run", "--name", "here", *ONCE, "--", sys.executable, script)
    assert desk.albor(*words, PWD=str(desk.folder)).code != 0
    run = RunDir(desk.home / "runs" / "here")
    assert run.metadata()["script"]["path"] == str(script)
    again = desk.albor("guard", "retry", "here", "--json", PWD=str(desk.folder))
    assert validate(again.document)["run"]["id"] == "here"
    assert [path.name for path in sorted(run.logs.glob("a*.log"))] == ["a0001.log", "a0002.log"]


def test_a_program_whose_guard_was_killed_gets_a_new_one_and_goes_on(desk):
    script = "import time; time.sleep(600)"
    words = ("guard", "run", "--name", "nap", "--detach", "--", sys.executable, "-c", script)
    assert desk.albor(*words).code == 0
    run = RunDir(desk.home / "runs" / "nap")
    wait_until(lambda: run.liveness().trainer)
    program, guard = run.liveness().trainer, run.liveness().guard
    import os
    import signal

    os.kill(guard, signal.SIGKILL)
    wait_until(lambda: run.liveness().guard is None)
    assert desk.albor("guard", "retry", "nap", "--detach").code == 0
    assert run.liveness().trainer == program
    assert desk.albor("guard", "stop", "nap").code == 0


def test_the_command_of_a_folder_that_is_not_of_this_home_is_not_run(desk):
    script = "import sys; open('ran', 'a').write('x'); sys.exit(3)"
    words = ("guard", "run", "--name", "torn", *ONCE, "--", sys.executable, "-c", script)
    assert desk.albor(*words).code != 0
    copied = desk.folder / "copied" / "torn"
    shutil.copytree(desk.home / "runs" / "torn", copied)
    before = tree_hash(copied)
    refused = desk.albor("guard", "retry", copied, "--json")
    assert (refused.code, refused.error["hint"]) == (8, "albor guard run -- CMD")
    assert "it was not launched from this home" in refused.error["message"]
    assert tree_hash(copied) == before
    assert (desk.folder / "ran").read_text() == "x"


def test_retry_names_what_works_for_runs_that_it_cannot_start(desk, loop, old_hand):
    tracked = loop("dies")
    wait_until(lambda: not tracked.liveness().is_alive)
    refused = desk.quick("guard", "retry", tracked.id, "--json")
    assert (refused.code, refused.error["hint"]) == (2, f"albor runs show {tracked.id}")
    complete = old_hand.quick("guard", "retry", "calm")
    assert (complete.code, "is complete" in complete.err) == (0, True)
    secret = ("guard", "run", "--name", "shy", *ONCE, "--", "false", "--password", "x")
    assert desk.albor(*secret).code != 0
    refused = desk.quick("guard", "retry", "shy", "--json")
    assert (refused.code, refused.error["hint"]) == (2, "albor guard run -- CMD")


def test_resume_says_how_a_program_that_is_not_the_trainer_goes_on(desk, loop):
    tracked = loop("dies")
    wait_until(lambda: not tracked.liveness().is_alive)
    assert desk.albor("guard", "run", "--name", "mute", *ONCE, "--", "false").code != 0
    before = tree_hash(desk.home)
    refused = desk.quick("train", "resume", tracked.id, "--json")
    assert (refused.code, refused.error["hint"]) == (2, f"albor runs show {tracked.id}")
    assert refused.error["message"] == (
        f"cannot resume {tracked.id}: it was tracked by its own program, which has to be started"
        " again"
    )
    refused = desk.quick("train", "resume", "mute", "--json")
    assert (refused.code, refused.error["hint"]) == (2, "albor guard retry mute")
    assert refused.error["message"] == (
        "cannot resume mute: it is a program of its own, not a run of `albor train`"
    )
    assert tree_hash(desk.home) == before


def test_the_doctor_does_not_send_a_tracked_run_to_the_trainer(desk, loop):
    tracked = loop("dies")
    wait_until(lambda: not tracked.liveness().is_alive)
    checks = desk.quick("doctor", "--json").document["checks"]
    (runs,) = (check for check in checks if check["name"] == "runs")
    assert (runs["detail"], runs["hint"]) == (
        f"1 lost: {tracked.id}",
        f"albor runs show {tracked.id}",
    )


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--brick", "forward"), "cannot use --brick without --budget"),
        (("--budget", "learn"), "or --budget without --brick"),
        (("--brick", "wheels", "--budget", "3"), "'wheels' is not a brick"),
        (("--brick", "data", "--budget", "fast"), "'fast' is not a step-time budget"),
    ],
)
def test_a_budget_that_makes_no_sense_is_refused_before_anything_is_sent(old_hand, words, why):
    refused = old_hand.quick("guard", "resume", "calm", *words, "--json")
    assert refused.code == 2
    assert why in refused.error["message"]
