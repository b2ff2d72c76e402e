"""Kills, signals and restarts of the real program: the end must be the undisturbed one's bits."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest
from tiny_run import events, history, last_words, make_run, start, train, train_here, wait_until

from albor_core.checkpoint.folder import MODEL, list_checkpoints, verify
from albor_core.run.files.whole_file import write_json
from albor_core.run.journal import read_journal
from albor_core.run.rundir import read_json
from albor_core.run.state import read_state
from albor_core.train.resume.digest import digest

DETERMINED = (
    "train/loss",
    "train/loss_ema",
    "optim/lr",
    "optim/grad_norm",
    "train/tokens",
    "val/loss",
)
LOG_2 = {"training__log_interval": 2}  # so that checkpoints fall inside log intervals


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """The undisturbed run: digest, final weights, history."""
    with pytest.MonkeyPatch.context() as patch:  # made before any test has its own home
        patch.setenv("ALBOR_HOME", str(tmp_path_factory.mktemp("reference-home")))
        run = make_run(tmp_path_factory.mktemp("reference"), "reference", **LOG_2)
        code, stderr = train(run)
    assert (code, stderr) == (0, "")
    final = (list_checkpoints(run.checkpoints)[0] / MODEL).read_bytes()
    return digest(run), final, history(run, DETERMINED)


def sleeps(run, process):
    """Whether the trainer's stack says that an injected sleep has begun."""
    stacks = run.logs / "a0001.stacks"
    process.send_signal(signal.SIGUSR1)
    time.sleep(0.05)
    return "train/process/faults.py" in stacks.read_text()


def assert_same_end(run, reference):
    assert (list_checkpoints(run.checkpoints)[0] / MODEL).read_bytes() == reference[1]
    assert digest(run) == reference[0]
    said = history(run, DETERMINED)
    assert [(step, key, repr(value)) for step, key, value in said] == [
        (step, key, repr(value)) for step, key, value in reference[2]
    ]
    assert not list(run.checkpoints.glob("*.part"))
    assert not list(run.checkpoints.glob("*.del"))


@pytest.mark.slow
def test_kill_9_at_three_moments_ends_in_the_same_bits(tmp_path, reference):
    run = make_run(tmp_path, "killed", **LOG_2)
    plan = (
        "step:kill@3#1,ckpt:kill@10#2,step:kill@19#3"  # before any checkpoint, at one, after some
    )
    codes = [train(run, ALBOR_FAULTS=plan)[0] for _ in range(4)]
    assert codes == [-9, -9, -9, 0]
    resumed = [event["data"]["resumed_from"] for event in events(run, "run.start")]
    assert resumed[:3] == [None, None, 10]
    assert resumed[3] in (10, 15)  # a save takes as long as it takes
    assert_same_end(run, reference)


@pytest.mark.slow
def test_kill_9_from_outside_at_any_moment_ends_in_the_same_bits(tmp_path, reference):
    run = make_run(tmp_path, "shot", **LOG_2)
    for logged in (1, 9):
        process = start(run, ALBOR_FAULTS="step:sleep=0.02@0-24")
        wait_until(lambda: len(history(run, ("train/loss",))) >= logged)  # noqa: B023  used at once
        process.kill()
        process.communicate(timeout=30)
    assert train(run)[0] == 0
    assert_same_end(run, reference)


@pytest.mark.slow
def test_a_graceful_stop_saves_exits_143_and_goes_on_in_the_same_bits(tmp_path, reference):
    run = make_run(tmp_path, "asked", **LOG_2)
    process = start(run, ALBOR_FAULTS="step:sleep=0.1@0-24")
    wait_until(lambda: len(history(run, ("train/loss",))) >= 3)
    for _ in range(20):  # a storm is one request
        process.send_signal(signal.SIGTERM)
    _, stderr = process.communicate(timeout=30)
    words = last_words(run)
    assert (process.returncode, stderr) == (143, "")
    assert (words["reason"], words["code"], words["attempt"]) == ("stopped", 143, 1)
    assert digest(run)[0] == words["step"]
    assert read_state(run.state)["phase"] == "stopped"
    assert train(run)[0] == 0
    assert last_words(run)["attempt"] == 2
    assert_same_end(run, reference)


def test_three_resumes_in_one_epoch_at_its_edge_at_zero_and_at_the_end(tmp_path):
    whole, broken = (
        make_run(tmp_path / "a", "whole", **LOG_2),
        make_run(tmp_path / "b", "broken", **LOG_2),
    )
    train_here(whole)
    stops = (
        0,
        1,
        2,
        3,
        10,
        20,
        23,
        None,
        None,
    )  # an epoch is 10 steps; the last finds nothing to do
    for attempt, step in enumerate(stops, 1):
        train_here(broken, attempt=attempt, stop_after=step)
    end = digest(whole), (list_checkpoints(whole.checkpoints)[0] / MODEL).read_bytes()
    assert_same_end(broken, (*end, history(whole, DETERMINED)))


def test_an_evaluation_cut_short_by_a_stop_is_made_up_for(tmp_path):
    whole, broken = make_run(tmp_path / "a", "whole"), make_run(tmp_path / "b", "broken")
    train_here(whole)

    def stop_early(signals, run):
        signals.stop = signal.SIGTERM

    assert train_here(broken, during=stop_early, faults="step:sleep=0.5@0").step == 0
    train_here(broken, attempt=2)
    assert history(broken, ("val/loss",)) == history(whole, ("val/loss",))


def test_a_stop_in_the_last_evaluation_leaves_it_due(tmp_path):
    whole, broken = make_run(tmp_path / "a", "whole"), make_run(tmp_path / "b", "broken")
    train_here(whole)

    def stop_late(signals, run):
        wait_until(lambda: len(history(run, ("train/loss",))) == 24)
        signals.stop = signal.SIGTERM

    train_here(broken, stop_after=23)
    # the sleep holds step 24 until the stop is there; its evaluation is then cut short
    outcome = train_here(broken, attempt=2, during=stop_late, faults="data:sleep=0.1@24")
    if outcome.reason == "stopped":
        assert outcome.step == 24
        assert train_here(broken, attempt=3).reason == "completed"
    end = digest(whole), (list_checkpoints(whole.checkpoints)[0] / MODEL).read_bytes()
    assert_same_end(broken, (*end, history(whole, DETERMINED)))


def test_the_rewind_is_in_the_journal_before_the_first_step(tmp_path):
    run = make_run(tmp_path)
    train_here(run, stop_after=7)
    train_here(run, attempt=2, stop_after=9)
    kinds = [line.record for line in read_journal(run.journal) if line.record["attempt"] == 2]
    assert (kinds[0]["t"], kinds[0]["to"]) == ("r", 7)


def test_t8_a_stop_while_a_checkpoint_is_written_leaves_whole_ones_only(tmp_path, monkeypatch):
    whole, asked = make_run(tmp_path / "a", "whole"), make_run(tmp_path / "b", "asked")
    train_here(whole)
    real, in_save = os.fsync, threading.Event()

    def slowly(fd):
        in_save.set()
        time.sleep(0.1)  # some 0.6 s for the files of a checkpoint
        real(fd)

    def stop_in_save(signals, run):
        assert in_save.wait(30)
        assert list(run.checkpoints.glob("*.part"))
        signals.stop = signal.SIGTERM

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", slowly)
        outcome = train_here(asked, during=stop_in_save, faults="step:sleep=0.01@0-24")
    assert (outcome.code, outcome.reason) == (143, "stopped")
    assert digest(asked)[0] == outcome.step < 24
    for path in list_checkpoints(asked.checkpoints):
        verify(path)
    assert not list(asked.checkpoints.glob("*.part"))
    train_here(asked, attempt=2)
    end = digest(whole), (list_checkpoints(whole.checkpoints)[0] / MODEL).read_bytes()
    assert_same_end(asked, (*end, history(whole, DETERMINED)))


@pytest.mark.slow
def test_two_sigints_leave_at_once(tmp_path):
    run = make_run(tmp_path)
    process = start(run, ALBOR_FAULTS="data:sleep=30@3")
    wait_until(lambda: len(history(run, ("train/loss",))) >= 2)
    wait_until(lambda: sleeps(run, process))
    process.send_signal(signal.SIGINT)
    time.sleep(1)  # two signals before Python looks are one
    assert process.poll() is None
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=20)
    assert (process.returncode, stderr) == (130, "")
    assert time.monotonic() - began < 5


@pytest.mark.slow
def test_a_second_trainer_is_refused_with_8_and_touches_nothing(tmp_path):
    run = make_run(tmp_path)
    first = start(run, ALBOR_FAULTS="step:sleep=60@2")
    try:
        wait_until(lambda: len(history(run, ("train/loss",))) == 2)  # then it sleeps
        before = {p: p.stat().st_mtime_ns for p in run.path.rglob("*") if p != run.state}
        second = start(run)
        _, stderr = second.communicate(timeout=30)
        assert second.returncode == 8
        assert str(first.pid) in stderr
        assert {p: p.stat().st_mtime_ns for p in run.path.rglob("*") if p != run.state} == before
    finally:
        first.kill()
        first.communicate(timeout=30)


@pytest.mark.slow
def test_commands_and_stack_dumps_arrive_by_signal(tmp_path):
    run = make_run(tmp_path)
    process = start(run, ALBOR_FAULTS="step:sleep=0.05@0-24")
    try:
        wait_until(lambda: len(history(run, ("train/loss",))) >= 2)
        write_json(run.guard / "cmd.json", {"id": "c1", "cmd": "pause"})
        process.send_signal(signal.SIGUSR2)
        wait_until(lambda: (read_state(run.state) or {}).get("phase") == "paused")
        process.send_signal(signal.SIGUSR1)
        stacks = run.logs / "a0001.stacks"
        wait_until(lambda: "loop.py" in stacks.read_text())
        write_json(run.guard / "cmd.json", {"id": "c2", "cmd": "resume"})
        process.send_signal(signal.SIGUSR2)
        _, stderr = process.communicate(timeout=180)
        assert (process.returncode, stderr) == (0, "")
        assert read_json(run.guard / "cmd_done.json")["id"] == "c2"
    finally:
        process.kill()


@pytest.mark.slow
def test_every_end_has_its_code_and_last_words(tmp_path):
    run = make_run(tmp_path)
    code, stderr = train(run, ALBOR_FAULTS="step:raise@4")
    words = last_words(run)
    assert (code, words["code"], words["reason"], words["step"]) == (1, 1, "exception", 4)
    assert words["error"]["type"] == "InjectedError"
    assert "faults.py" in words["error"]["where"]
    assert "Traceback" in stderr
    assert events(run, "run.end")[-1]["data"]["status"] == "failed"
    for shard in (tmp_path / "train").glob("*"):
        shard.unlink()
    code, stderr = train(run)
    assert (code, last_words(run)["reason"]) == (7, "data")
    assert "Traceback" not in stderr
    run.config_resolved.write_text("{}")
    code, stderr = train(run)
    assert (code, last_words(run)["reason"]) == (2, "config")
    assert read_state(run.state)["phase"] == "failed"


def test_a_life_that_ends_before_it_could_go_on_ended_where_it_would_have_gone_on(tmp_path):
    run = make_run(tmp_path, training__checkpoint={"save_every": 2, "keep": 2})
    train(run, ALBOR_FAULTS="step:raise@5")
    for shard in (tmp_path / "train").glob("*"):
        shard.unlink()
    assert train(run)[0] == 7
    assert last_words(run)["step"] == events(run, "run.end")[-1]["step"] == 4
    assert read_state(run.state)["global_step"] == 4


def test_t21_a_gpu_that_is_too_small_is_no_bug_and_comes_with_advice(tmp_path, monkeypatch):
    import torch

    from albor_core.run.state import StateWriter
    from albor_core.train import __main__ as trainer
    from albor_core.train.loop import Training

    def too_large(self, **_):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")

    run = make_run(tmp_path)
    monkeypatch.setattr(Training, "run", too_large)
    monkeypatch.setattr(StateWriter, "publish", lambda self, **_: None)
    monkeypatch.setattr(trainer.SignalRequests, "install", lambda self, attempt: None)
    assert trainer.main([str(run.path)]) == 1
    words = last_words(run)
    assert words["reason"] == "gpu_memory"
    assert "gradient_accumulation" in words["error"]["hint"]
    assert "20.00 GiB" in words["message"]


def test_the_guards_lock_and_number_are_taken_over(tmp_path):
    from albor_core.train.process.attempt import begin

    run = make_run(tmp_path)
    environ = {"ALBOR_RUN_LOCK_FD": "99", "ALBOR_ATTEMPT": "7", "ALBOR_NONCE": "abc"}
    attempt = begin(run, environ)
    assert (attempt.number, attempt.nonce) == (7, "abc")
    assert not run.run_lock.exists()  # the file was not opened: closing it would drop the lock


def test_digest_of_a_run_without_checkpoint_exits_3(tmp_path):
    run = make_run(tmp_path)
    argv = [sys.executable, "-m", "albor_core.train.resume.digest", str(run.path)]
    done = subprocess.run(
        argv, capture_output=True, text=True, timeout=180, env=os.environ, check=False
    )
    assert done.returncode == 3
    assert "no checkpoint" in done.stderr
