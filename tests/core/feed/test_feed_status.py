"""Liveness is asked of the kernel: these tests hold real locks in real processes."""

from __future__ import annotations

import json
import math
import shutil
import signal
import subprocess
import sys
import time

import pytest

from albor_core.feed.run.files import RunFiles
from albor_core.feed.run.status import Evidence, judge, run_status
from albor_core.feed.run.store_follower import without_files
from albor_core.feed.view.run_view import RunView
from albor_core.run import liveness as liveness_of_files
from albor_core.run.files.whole_file import write_json
from albor_core.run.home.new_run import create_run
from albor_core.run.liveness import Liveness, boot_id
from albor_core.run.state import Freshness

HOLDER = """
import json, os, sys, time
from pathlib import Path
from albor_core.run.liveness import take_lock
from albor_core.run.rundir import RunDir
from albor_core.run.state import StateWriter
run, attempt, locks, phase = RunDir(Path(sys.argv[1])), int(sys.argv[2]), sys.argv[3], sys.argv[4]
held = [take_lock({"t": run.run_lock, "g": run.guard_lock}[name]) for name in locks]
if phase != "none":
    writer = StateWriter(run.state, run_id=run.id, attempt=attempt, nonce=f"n{attempt}")
    writer.fields = {"global_step": 7, "max_steps": 10, "loss": 2.5, "eta_seconds": 60.0}
    writer.phase(phase, limit_s=60.0)
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.setenv("ALBOR_HOME", str(tmp_path / "home"))
    return create_run(
        tmp_path / "out", "r-1", experiment="e", name="n", kind="train", argv=["albor"]
    )


@pytest.fixture
def hold(run):
    """Start a process that holds locks ("t" trainer, "g" guard) and has written a state."""
    processes = []

    def start(locks, phase="training", attempt=1):
        process = subprocess.Popen(
            [sys.executable, "-c", HOLDER, str(run.path), str(attempt), locks, phase],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        processes.append(process)
        assert process.stdout.readline() == b"ready\n"
        return process

    yield start
    for process in processes:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


def guard_says(run, state, attempt=1, **fields):
    body = {"schema": "albor.guard/1", "state": state, "attempt": attempt, "run_id": run.id}
    write_json(run.guard / "guard.json", {**body, "boot_id": boot_id(), **fields})


def exits(run, reason, code, attempt=1, message=""):
    body = {"schema": "albor.exit/1", "attempt": attempt, "reason": reason, "code": code}
    write_json(run.exit, {**body, "message": message, "wall": time.time()})


def kill(process):
    process.send_signal(signal.SIGKILL)
    process.wait()


def test_a_held_trainer_lock_is_running_and_names_its_holder(run, hold):
    process = hold("t")
    status = run_status(run)
    assert (status.word, status.trainer_pid, status.guard_pid) == ("running", process.pid, None)


def test_a_killed_trainer_never_looks_alive_whatever_its_state_file_says(run, hold):
    kill(hold("t"))
    assert json.loads(run.state.read_bytes())["phase"] == "training"
    status = run_status(run)
    assert (status.word, status.is_alive) == ("lost", False)


def test_both_killed_is_lost(run, hold):
    guard_says(run, "running")
    for process in (hold("t"), hold("g", "none")):
        kill(process)
    assert run_status(run).word == "lost"


def test_a_live_run_never_looks_dead_whatever_old_files_say(run, hold):
    exits(run, "completed", 0)
    guard_says(run, "failed")
    hold("tg", attempt=2)
    assert run_status(run).word == "running"


def test_a_trainer_whose_guard_died_is_unguarded(run, hold):
    guard_says(run, "running")
    hold("t")
    assert run_status(run).word == "unguarded"


def test_a_paused_run_is_paused_only_while_it_lives(run, hold):
    process = hold("t", "paused")
    assert run_status(run).word == "paused"
    kill(process)
    assert run_status(run).word == "lost"


@pytest.mark.parametrize(("phase", "eta_s"), [("training", 60.0), ("paused", None)])
def test_a_paused_run_has_no_time_of_arrival(run, hold, phase, eta_s):
    hold("tg", phase)
    assert RunFiles(run).view().eta_s == eta_s


def test_a_silent_trainer_is_stalled_by_our_own_clock(run, hold):
    hold("t")
    now = [time.monotonic()]
    freshness = Freshness(clock=lambda: now[0])
    assert run_status(run, freshness=freshness).word == "running"
    now[0] += 61  # its own limit is 60 s
    status = run_status(run, freshness=freshness)
    assert status.word == "stalled"
    assert "no news for 1m" in status.detail


def test_a_new_life_is_not_judged_by_the_state_of_the_old_one(run, hold):
    kill(hold("t"))
    state = json.loads(run.state.read_bytes())
    state["mono_ns"] = 1  # so old that it would look stalled
    write_json(run.state, state)
    guard_says(run, "running", attempt=2)
    hold("tg", "none")
    status = run_status(run)
    assert (status.word, status.detail) == ("running", "attempt 2: no news yet")


def test_a_guard_in_backoff_is_restarting_and_says_when(run, hold):
    until = time.monotonic_ns() + 30 * 10**9
    guard_says(run, "backoff", backoff={"index": 0, "until_mono_ns": until}, class_last="oom")
    hold("g", "none")
    status = run_status(run)
    assert status.word == "restarting"
    assert status.detail.startswith("attempt 2 in ") and status.detail.endswith("after oom")


def test_a_guard_killed_while_it_waited_vanished_and_not_the_life_that_it_told_of(run):
    guard_says(run, "backoff", class_last="killed", reason="killed: SIGKILL (137)")
    status = run_status(run)
    assert (status.word, status.detail) == (
        "lost",
        "its guard vanished before attempt 2; attempt 1: killed: SIGKILL (137)",
    )


def test_a_guard_that_has_not_started_anything_is_queued(run, hold):
    guard_says(run, "preflight", attempt=0)
    hold("g", "none")
    assert run_status(run).word == "queued"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("reason", "code", "word"),
    [
        ("completed", 0, "completed"),
        ("early_stopped", 0, "completed"),
        ("stopped", 143, "stopped"),
        ("andon", 4, "stopped"),
        ("exception", 1, "failed"),
        ("nan_limit", 4, "stopped"),
        ("gradient_missing", 4, "stopped"),
        ("no_checkpoint", 6, "failed"),
    ],
)
def test_last_words_name_the_end(run, hold, reason, code, word):
    kill(hold("t"))
    exits(run, reason, code, message="because")
    assert run_status(run).word == word


def test_last_words_of_an_earlier_life_are_not_believed(run, hold):
    exits(run, "completed", 0, attempt=1)
    guard_says(run, "done", attempt=1)
    kill(hold("t", attempt=2))
    assert run_status(run).word == "lost"


def test_a_failure_whose_guard_is_gone_says_so(run, hold):
    guard_says(run, "running")
    kill(hold("t"))
    exits(run, "exception", 1, message="boom")
    status = run_status(run)
    assert (status.word, status.detail) == ("failed", "exception: boom; its guard is gone")


@pytest.mark.parametrize("judged", ["OSError: no route", "OSError: no route, after 1 restart"])
def test_an_exception_is_told_in_its_own_words_and_why_it_was_the_end(run, judged):
    error = {"type": "OSError", "message": "no route\nat all"}
    body = {"schema": "albor.exit/1", "attempt": 1, "reason": "exception", "code": 1}
    write_json(run.exit, {**body, "message": "no route", "error": error})
    assert run_status(run).detail == "OSError: no route"
    guard_says(run, "failed", reason=judged)
    assert run_status(run).detail == judged


@pytest.mark.parametrize(("said", "word"), [("done", "completed"), ("failed", "failed")])
def test_the_guards_verdict_counts_when_everybody_has_left(run, said, word):
    guard_says(run, said, class_last="cuda", reason="gave up after 3 lives")
    status = run_status(run)
    detail = "" if word == "completed" else "gave up after 3 lives"
    assert (status.word, status.detail) == (word, detail)


@pytest.mark.parametrize("state", [[], {}, None, 3])
def test_a_guard_whose_state_is_no_word_says_nothing_of_the_end(run, state):
    guard_says(run, state)
    exits(run, "completed", 0)
    assert run_status(run).word == "completed"
    assert run_status(run, ended="failed").word == "completed"


def test_a_young_directory_is_queued_and_an_old_one_lost(run):
    assert run_status(run).word == "queued"
    meta = json.loads(run.run_json.read_bytes())
    write_json(run.run_json, {**meta, "created": time.time() - 3600})
    assert run_status(run).word == "lost"
    assert run_status(run, ended="completed").word == "completed"


def test_garbage_files_are_no_news_and_no_crash(run, hold):
    hold("t", "none")
    for content in (
        b"",
        b"{",
        b"[]",
        b'{"schema":"albor.state/1","attempt":"x","phase":3}',
        b"\xff",
    ):
        for path in (run.state, run.exit, run.guard / "guard.json"):
            path.write_bytes(content)
        assert run_status(run).word in ("running", "unguarded")
        assert RunFiles(run).view() is not None


def test_the_view_of_a_live_run_is_live_and_of_a_dead_one_is_not(run, hold):
    process = hold("t")
    files = RunFiles(run)
    view = files.view()
    assert (view.status, view.is_live, view.step, view.progress) == ("running", True, 7, 0.7)
    assert view.age_s < 60
    kill(process)
    view = files.view()
    assert (view.status, view.is_live, view.phase, view.loss) == ("lost", False, None, 2.5)


def test_an_unreadable_state_of_a_live_run_is_not_shown_as_live(run, hold):
    hold("t")
    files = RunFiles(run)
    assert files.view().is_live
    run.state.unlink()
    view = files.view()
    assert (view.status, view.is_live, view.loss) == ("running", False, None)
    assert view.age_s is not None  # how long ago the last news was


def test_looking_at_a_run_never_disturbs_its_locks(run, hold):
    process = hold("tg")
    for _ in range(50):
        assert run_status(run).trainer_pid == process.pid


def test_a_run_of_another_kernel_is_alive_while_its_state_moves(run):
    meta = json.loads(run.run_json.read_bytes())
    write_json(run.run_json, {**meta, "host": "elsewhere"})
    state = {"schema": "albor.state/1", "attempt": 1, "phase": "training", "boot_id": "other"}
    write_json(run.state, {**state, "wall": time.time()})
    assert run_status(run).word == "running"
    then = time.time() - 3600
    write_json(run.state, {**state, "wall": then})
    status = run_status(run)
    assert status.word == "unknown"  # it may have completed at home since
    assert f"since {time.strftime('%H:%M', time.localtime(then))}" in status.detail
    assert "elsewhere" in status.detail
    exits(run, "completed", 0)
    assert run_status(run).word == "completed"


@pytest.mark.parametrize(
    ("attempt", "age_s", "word"), [(2, 1.0, "paused"), (2, 9_999.0, "paused"), (1, 1.0, "running")]
)
def test_a_program_that_its_guard_stopped_by_a_signal_is_paused_and_never_stalled(
    attempt, age_s, word
):
    evidence = Evidence(
        locks=Liveness(trainer=1, guard=2),
        state={"phase": "training", "attempt": 2, "boot_id": boot_id()},
        guard={"state": "paused", "attempt": attempt},
        exit=None,
        age_s=age_s,
    )
    assert judge(evidence).word == word


def test_a_program_whose_folder_was_taken_away_is_at_work_until_it_ends(run, hold):
    process = hold("t")
    shutil.rmtree(run.path)
    status = run_status(run)
    assert (status.word, status.trainer_pid) == ("running", process.pid)
    assert status.detail == (
        f"its folder is gone, and process {process.pid} goes on without it: what it logs is lost"
    )
    row = RunView(id=run.id, name="n", path=str(run.path), status="loading")
    assert without_files(row, run).status == "running"
    process.communicate()
    liveness_of_files._deleted = (-math.inf, {})
    assert without_files(row, run).detail == "its folder is gone, no end was recorded"
    assert run_status(run).word == "lost"
    assert run_status(run, ended="completed").word == "completed"


def test_a_folder_that_is_there_again_is_no_deleted_one(run, hold):
    hold("t")
    shutil.rmtree(run.path)
    run.path.mkdir()
    assert run_status(run).word != "running"
