"""`albor runs wait` as a script uses it: one document, an exit code, and nothing else to live."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from cli_user import validate, wait_until

from albor_core.run.liveness import lock_holder
from albor_core.run.rundir import RunDir

PROGRAM = """
import sys
from albor_core import track
run = track.start("wait", name="loop")
run.log({"loss": 3.0}, step=1)
print(run.path, flush=True)
for line in sys.stdin:
    step, loss = line.split()
    run.log({"loss": float(loss)}, step=int(step))
    print("logged", flush=True)
run.close()
"""


@pytest.fixture
def loop(desk):
    """A tracked program that logs what it is told to."""
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", PROGRAM],
        env=desk.environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    process.run = RunDir(Path(process.stdout.readline().strip()))
    yield process
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        pipe.close()


def say(process, step, loss):
    process.stdin.write(f"{step} {loss}\n")
    process.stdin.flush()
    assert process.stdout.readline() == "logged\n"


def is_asleep(waiter):
    """In poll(2), as the kernel says; it may be a moment before it is."""
    return Path(f"/proc/{waiter.pid}/syscall").read_text().split()[0] in ("7", "73", "271")


def answer(waiter):
    out, err = waiter.communicate(timeout=60)
    assert "Traceback" not in err, err
    return waiter.returncode, validate(json.loads(out)), err


def test_it_answers_though_the_index_process_is_dead(desk, loop):
    waiter = desk.start("runs", "wait", loop.run.id, "--until", "loss<1", "--json")
    wait_until(lambda: is_asleep(waiter))
    index = wait_until(lambda: lock_holder(loop.run.index_lock))
    os.kill(index, signal.SIGKILL)
    say(loop, 2, 0.5)
    code, found, _ = answer(waiter)
    assert (code, found["met"], found["run"]) == (0, True, loop.run.id)
    assert (found["value"], found["step"], found["condition"]) == (0.5, 2, "loss<1")
    assert (found["wakeups"], found["interval_s"]) == (1, None)


def test_a_wait_for_the_end_sleeps_while_the_loop_logs(desk, loop):
    waiter = desk.start("runs", "wait", loop.run.id, "--json")
    wait_until(lambda: is_asleep(waiter))
    for step in range(2, 200):
        say(loop, step, 1.0)
    loop.stdin.close()
    code, found, _ = answer(waiter)
    assert (code, found["outcome"], found["runs"][0]["status"]) == (0, "met", "completed")
    assert found["wakeups"] <= 2, "its lock was let go, its process ended"


def test_a_killed_program_ends_the_wait_and_cannot_meet_it(desk, loop):
    waiter = desk.start("runs", "wait", loop.run.id, "--until", "step>=1000", "--json")
    wait_until(lambda: is_asleep(waiter))
    loop.kill()
    code, found, _ = answer(waiter)
    assert (code, found["met"], found["outcome"]) == (1, False, "ended")
    assert found["runs"][0]["status"] == "lost"


def test_the_time_is_up_with_75_and_one_document(desk, loop):
    found = desk.albor("runs", "wait", loop.run.id, "--timeout", "0.1s", "--json")
    assert (found.code, validate(found.document)["outcome"]) == (75, "timeout")
    assert found.document["runs"][0]["status"] == "running"


def test_people_read_a_line_for_each_run(desk, loop):
    found = desk.quick("runs", "wait", loop.run.id, "--until", "loss >= 3")
    assert (found.code, found.out) == (0, f"{loop.run.id}: loss >= 3 (3) at step 1\n")
    assert found.err == ""


def test_interrupted_it_leaves_with_130_and_the_run_goes_on(desk, loop):
    waiter = desk.start("runs", "wait", loop.run.id)
    wait_until(lambda: is_asleep(waiter))
    waiter.send_signal(signal.SIGINT)
    out, err = waiter.communicate(timeout=60)
    assert (waiter.returncode, out) == (130, "") and "Traceback" not in err
    say(loop, 2, 1.0)


def test_mistakes_are_refused_before_anything_is_waited_for(desk, loop):
    for words, code in (
        (("missing",), 3),
        ((loop.run.id, "--until", "loss <"), 2),
        ((loop.run.id, "--timeout", "soon"), 2),
        ((), 2),
    ):
        refused = desk.quick("runs", "wait", *words, "--json")
        assert refused.code == code and refused.error["message"], words
