"""Ranks as processes: one that dies takes the attempt with it, and the guard starts a new one."""

import os
import signal
import time

import pytest
from tiny_run import events, history, last_words, make_run, ranks_of, start, train, wait_until

from albor_core.checkpoint.folder import MODEL, list_checkpoints
from albor_core.run.rundir import read_json
from albor_core.run.state import read_state
from albor_core.train.resume.digest import digest

pytestmark = pytest.mark.slow

TWO = {
    "training__distributed": {"world_size": 2},
    "training__max_steps": 10,
    "training__eval_interval": 10,
    "training__checkpoint": {"save_every": 3},
    "optimizer__eps": 1e-4,
}
LIMIT_S = 90.0


def final_bytes(run):
    return (list_checkpoints(run.checkpoints)[0] / MODEL).read_bytes(), digest(run)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ALBOR_HOME", str(tmp_path_factory.mktemp("undisturbed-home")))
        run = make_run(tmp_path_factory.mktemp("undisturbed"), "undisturbed", **TWO)
        code, stderr = train(run)
    assert (code, stderr) == (0, "")
    assert last_words(run)["reason"] == "completed"
    assert ranks_of(run) == {}
    return run


def guarded(run, faults, **options):
    """Start `run` under a guard that is quick to act."""
    from albor_core.guard.launch import write_launch
    from albor_core.launch import local
    from albor_core.launch.start import start

    options = {"backoff_s": [0.05, 0.1], "poll_s": 0.1, **options}

    def quick(run, **kwargs):
        kwargs["options"] = {**kwargs["options"], **options}
        kwargs["env"] = {**kwargs["env"], "ALBOR_FAULTS": faults, "OMP_NUM_THREADS": "1"}
        write_launch(run, **{**kwargs, "index": False})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local, "write_launch", quick)
        start(run)


def until_step(run, step):
    """The other rank's pid when that many steps are done."""
    wait_until(lambda: len(history(run, ("train/loss",))) >= step, LIMIT_S)
    found = ranks_of(run)
    assert list(found) == [1]
    assert run.liveness().trainer not in (None, found[1])  # rank 0 is who is known
    return found[1]


def assert_done_in_two_lives(run, undisturbed):
    wait_until(lambda: not run.liveness().is_alive, LIMIT_S)
    assert read_json(run.guard / "guard.json")["state"] == "done"
    assert last_words(run)["attempt"] == 2
    assert [e["data"]["resumed_from"] for e in events(run, "run.start")] == [None, 3]
    assert final_bytes(run) == final_bytes(undisturbed)
    assert ranks_of(run) == {}
    (report,) = [read_json(path) for path in run.crash_reports.glob("*.json")]
    return report


# long enough for a rank to be met alive, with a checkpoint behind it
SLOW_STEPS = "step:sleep=0.3@4-6#1"


def test_a_rank_killed_under_the_guard_costs_an_attempt_and_no_bit(tmp_path, undisturbed):
    run = make_run(tmp_path, "shot", **TWO)
    guarded(run, SLOW_STEPS)
    os.kill(until_step(run, 4), signal.SIGKILL)
    report = assert_done_in_two_lives(run, undisturbed)
    assert "rank 1" in str(report)
    assert "SIGKILL" in str(report)


def test_a_rank_that_hangs_is_the_hang_of_the_run(tmp_path, undisturbed):
    run = make_run(tmp_path, "stuck", **TWO, guard__stale_s=15)
    guarded(run, SLOW_STEPS, stale_s=15.0, grace_s=1.0)
    os.kill(until_step(run, 4), signal.SIGSTOP)
    report = assert_done_in_two_lives(run, undisturbed)
    assert report["class"] == "hang"


def test_a_graceful_stop_of_rank_0_saves_once_and_all_leave(tmp_path, undisturbed):
    run = make_run(tmp_path, "asked", **TWO)
    process = start(run, ALBOR_FAULTS="step:sleep=0.1@0-10")
    wait_until(lambda: len(history(run, ("train/loss",))) >= 2, LIMIT_S)
    os.kill(ranks_of(run)[1], signal.SIGTERM)  # as a terminal would: it is rank 0's to obey
    process.send_signal(signal.SIGTERM)
    _, stderr = process.communicate(timeout=LIMIT_S)
    assert (process.returncode, stderr) == (143, "")
    assert ranks_of(run) == {}
    assert digest(run)[0] == last_words(run)["step"]
    assert read_state(run.state)["phase"] == "stopped"
    assert train(run)[0] == 0
    assert final_bytes(run) == final_bytes(undisturbed)


def test_no_rank_outlives_rank_0(tmp_path):
    run = make_run(tmp_path, "headless", **TWO)
    process = start(run, ALBOR_FAULTS="step:sleep=60@2")  # it never wakes: see the kill below
    wait_until(lambda: len(history(run, ("train/loss",))) >= 2, LIMIT_S)
    assert ranks_of(run)
    process.kill()
    process.communicate(timeout=30)
    wait_until(lambda: not ranks_of(run), 10)


def test_what_stops_a_rank_is_said_in_its_words(tmp_path):
    run = make_run(tmp_path, "odd", **TWO)
    for shard in (tmp_path / "train").glob("*"):
        shard.unlink()
    began = time.monotonic()
    code, stderr = train(run)
    assert (code, last_words(run)["reason"]) == (7, "data")
    assert "Traceback" not in stderr
    assert ranks_of(run) == {}
    assert time.monotonic() - began < LIMIT_S
