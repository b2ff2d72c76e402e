"""The promises of the guard, seen from the command line, with the real trainer under it."""

from __future__ import annotations

import json
import os
import pty
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cli_user import (
    ALBOR,
    LOSSY,
    SLOW_STEPS,
    crash_reports,
    records,
    step_now,
    steps_logged,
    strict,
    trainer_pid,
    wait_for_end,
    wait_until,
)

from albor_core.checkpoint.folder import MODEL, list_checkpoints
from albor_core.run.files.whole_file import write_json
from albor_core.run.rundir import read_json

pytestmark = pytest.mark.slow
LONG = ("--set", "training.max_steps=1300")


def final_weights(run):
    return (list_checkpoints(run.checkpoints)[0] / MODEL).read_bytes()


def attempts(user, run):
    """The attempts of a run that is over, once its index process has read them all."""

    def told():
        found = user.quick("runs", "show", run.path, "--json").document["attempts"]
        return found if found and found[-1]["exit_class"] is not None else None

    return wait_until(told, 20)


def test_kill_9_at_five_random_moments_ends_in_the_weights_of_the_undisturbed_run(user, old_hand):
    chance = random.Random(int(os.environ.get("ALBOR_SEED", "20261")))
    # moments are chance, so several in a row may come before a new checkpoint
    patience = ("--set", "guard.max_no_progress=9")
    run = user.apply("shot", *patience, ALBOR_FAULTS="step:sleep=0.03@1-100")
    killed = set()
    for _ in range(5):
        goal = len(steps_logged(run)) + chance.randint(1, 12)
        wait_until(lambda: len(steps_logged(run)) >= goal)  # noqa: B023  used at once
        time.sleep(chance.random() * 0.1)
        pid = trainer_pid(run)
        assert pid is not None, "the run was over before the last shot"
        killed.add(pid)
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: trainer_pid(run) not in (None, pid))  # noqa: B023
    assert wait_for_end(run)["exit_code"] == 0
    assert len(killed) == 5
    assert final_weights(run) == final_weights(old_hand.run("calm"))
    shown = user.quick("runs", "show", "shot", "--json").document
    assert [step for step, _, _ in shown["points"]["train/loss"]] == list(range(1, 41))
    calm = old_hand.quick("runs", "show", "calm", "--json").document
    for key in ("train/loss", "val/loss", "optim/lr", "optim/grad_norm", "train/tokens"):
        assert [point[:2] for point in shown["points"][key]] == [
            point[:2] for point in calm["points"][key]
        ]
    assert [attempt["signal"] for attempt in shown["attempts"]] == ["SIGKILL"] * 5 + [None]
    assert len(crash_reports(run)) == 5
    assert shown["status"] == "completed"


@pytest.mark.parametrize(("spoils", "code"), [("", 0), (",loss:x100@20-1000", 4)])
def test_whoever_waits_is_told_how_the_run_ended_though_its_guard_was_killed(user, spoils, code):
    words = ("train", "apply", "tiny.yaml", "--name", "alone", "--set", LOSSY, "--json")
    waiting = user.start(*words, ALBOR_FAULTS="step:sleep=0.05@1-100000" + spoils)
    run = user.run("alone")
    wait_until(lambda: step_now(run) >= 2)
    os.kill(run.liveness().guard, signal.SIGKILL)
    out, err = waiting.communicate(timeout=90)
    assert (waiting.returncode, strict(out)["exit_code"]) == (code, code), err
    assert strict(out)["exit"]["code"] == code


def test_a_killed_guard_leaves_the_trainer_alone_and_resume_adopts_it(user):
    run = user.apply("orphan", *LONG, ALBOR_FAULTS=SLOW_STEPS)
    wait_until(lambda: step_now(run) >= 2)
    pid, guard = trainer_pid(run), run.liveness().guard
    os.kill(guard, signal.SIGKILL)
    wait_until(lambda: run.liveness().guard is None)
    before = step_now(run)
    wait_until(lambda: step_now(run) > before)
    assert user.quick("guard", "status", run.path, "--json").document["status"]["word"] == (
        "unguarded"
    )
    refused = user.quick("guard", "pause", run.path)
    assert refused.code == 3
    assert "albor train resume" in refused.err
    resumed = user.albor("train", "resume", run.path, "--detach")
    assert resumed.code == 0, resumed
    status = user.quick("guard", "status", run.path, "--json").document
    assert status["status"]["word"] == "running"
    assert (status["status"]["trainer_pid"], status["guard"]["adopted"]) == (pid, True)
    before = step_now(run)
    wait_until(lambda: step_now(run) > before)
    assert trainer_pid(run) == pid
    assert {record["attempt"] for record in records(run)} == {1}


def test_a_trainer_whose_guard_was_killed_is_stopped_and_resumed(user):
    run = user.apply("lone", *LONG, ALBOR_FAULTS=SLOW_STEPS)
    wait_until(lambda: step_now(run) >= 2)
    os.kill(run.liveness().guard, signal.SIGKILL)
    wait_until(lambda: run.liveness().guard is None)
    stopped = user.albor("guard", "stop", run.path)
    assert stopped.code == 0, stopped
    assert not run.liveness().is_alive
    at = step_now(run)
    assert (run.checkpoints / f"step-{at:08}").is_dir()
    resumed = user.albor("train", "resume", run.path, "--stop-after", at + 1, ALBOR_FAULTS="")
    assert resumed.code == 0, resumed
    assert step_now(run) == at + 1
    assert set(steps_logged(run)) == set(range(at + 2))
    assert not list(run.crash_reports.glob("*"))
    ends = [json.loads(line) for line in run.attempts.read_text().splitlines()]
    ends = [line for line in ends if line["t"] == "attempt.end"]
    assert [(line["class"], line["action"]) for line in ends] == [("stopped", "stop")] * 2


def terminal(user, *words, **environ):
    """`albor` on a terminal of its own: the process and our end of the line."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        ["setsid", "-c", *ALBOR, *map(str, words)],
        cwd=user.folder,
        env=user.environment(**environ),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    return process, ours


def read_all(line):
    heard = b""
    while True:
        try:
            piece = os.read(line, 4096)
        except OSError:  # EIO: the other end is closed
            return heard.decode()
        if not piece:
            return heard.decode()
        heard += piece


def test_a_closed_terminal_changes_nothing_for_the_run(user):
    words = ("train", "apply", "tiny.yaml", "--name", "far", *LONG)
    process, line = terminal(user, *words, ALBOR_FAULTS=SLOW_STEPS)
    run = user.run("far")
    wait_until(lambda: step_now(run) >= 1)
    pid = trainer_pid(run)
    os.close(line)
    process.wait(timeout=20)
    before = step_now(run)
    wait_until(lambda: step_now(run) >= before + 5)
    assert (trainer_pid(run), run.liveness().guard is not None) == (pid, True)


def test_the_first_ctrl_c_leaves_and_says_how_to_watch_and_stop(user):
    process, line = terminal(
        user, "train", "apply", "tiny.yaml", "--name", "left", *LONG, ALBOR_FAULTS=SLOW_STEPS
    )
    run = user.run("left")
    wait_until(lambda: run.liveness().trainer)
    for _ in range(20):  # a storm is one wish
        os.write(line, b"\x03")
    heard = read_all(line)
    assert process.wait(timeout=20) == 0
    assert "albor-tui left" in heard and "albor guard stop left" in heard
    assert "Traceback" not in heard
    wait_until(lambda: step_now(run) >= 1)
    stopped = user.quick("guard", "stop", run.path, "--json")
    assert stopped.document["status"] == "done"
    assert read_json(run.exit)["reason"] == "stopped"
    assert wait_for_end(run)["exit_code"] == 143


def test_stop_on_interrupt_stops_the_run_with_a_checkpoint(user):
    words = ("train", "apply", "tiny.yaml", "--name", "ended", "--stop-on-interrupt", *LONG)
    process, line = terminal(user, *words, ALBOR_FAULTS=SLOW_STEPS)
    run = user.run("ended")
    wait_until(lambda: step_now(run) >= 2)
    os.write(line, b"\x03")
    heard = read_all(line)
    assert process.wait(timeout=40) == 143, heard
    assert read_json(run.exit)["reason"] == "stopped"
    step = read_json(run.exit)["step"]
    assert list_checkpoints(run.checkpoints)[0].name == f"step-{step:08d}"


def test_a_frozen_trainer_is_reported_as_a_hang_and_restarted(user):
    limits = ("stale_s=3", "eval_limit_s=3", "checkpoint_limit_s=3", "grace_s=1")
    patience = [word for limit in limits for word in ("--set", f"guard.{limit}")]
    run = user.apply("frozen", *patience, ALBOR_FAULTS="step:sleep=0.05@1-40")
    wait_until(lambda: step_now(run) >= 7)
    os.kill(trainer_pid(run), signal.SIGSTOP)
    assert wait_for_end(run)["exit_code"] == 0
    (report,) = crash_reports(run)
    assert (report["class"], report["action"]) == ("hang", "restart")
    assert [attempt["exit_class"] for attempt in attempts(user, run)] == ["hang", "done"]


def test_a_crash_before_step_1_is_diagnosed_and_a_refused_config_is_not_retried(user):
    run = user.apply(
        "segv", *LONG, ALBOR_FAULTS="step:segv@0#1,step:sleep=0.1@1-40#2,step:exit=9@0#4"
    )
    wait_until(lambda: step_now(run) >= 1, timeout_s=60)
    environment = Path(f"/proc/{trainer_pid(run)}/environ").read_bytes().split(b"\0")
    assert b"CUDA_LAUNCH_BLOCKING=1" in environment
    (report,) = crash_reports(run)
    assert report["exit"]["signal"] == "SIGSEGV"
    assert report["policy"]["diagnostic_next"] is True
    assert user.quick("guard", "stop", run.path).code == 0
    wait_for_end(run)
    resolved = read_json(run.config_resolved)
    write_json(run.config_resolved, {**resolved, "optimizer": {**resolved["optimizer"], "lr": -1}})
    refused = user.quick("train", "resume", run.path, "--json")
    assert (refused.code, refused.error["problems"][0]["field"]) == (2, "optimizer.lr")
    assert not run.liveness().is_alive  # refused before there was a guard; one that meets it:
    guard = [sys.executable, "-m", "albor_core.guard", str(run.path)]
    assert subprocess.run(guard, env=user.environment(), timeout=60, check=False).returncode == 2
    assert "optimizer.lr" in read_json(run.exit)["message"]
    ends = [(a["exit_class"], a["diagnostic"], a["action"]) for a in attempts(user, run)]
    assert ends == [
        ("crash", False, "restart"),
        ("stopped", True, "stop"),
        ("config", False, "fail"),
    ]


def test_a_loss_that_explodes_ends_the_run_with_4_and_no_restart(user):
    result = user.albor(
        "train",
        "apply",
        "tiny.yaml",
        "--name",
        "boom",
        "--json",
        "--set",
        LOSSY,
        ALBOR_FAULTS="loss:x10@12",
    )
    assert result.code == 4
    assert (result.document["exit"]["reason"], result.document["exit"]["step"]) == ("andon", 12)
    assert [a["exit_class"] for a in attempts(user, user.run("boom"))] == ["andon"]
    (alert,) = user.quick("alerts", "ls", "boom", "--json").document["alerts"]
    assert (alert["severity"], alert["action"], alert["message"]) == (
        "error",
        "stop",
        "Loss exploded",
    )
    assert user.quick("alerts", "ack", "boom", alert["id"], "--json").code == 0
    assert user.quick("alerts", "ls", "--open", "--json").document["alerts"] == []
    assert user.quick("guard", "status", "boom", "--json").document["status"]["word"] == "stopped"


def test_a_healthy_run_that_starts_at_10_4_is_not_stopped_and_the_plan_says_when_the_rule_arms(
    user,
):
    words = ("tiny.yaml", "--set", LOSSY, "--set", "model.architecture.vocab_size=32768")
    words += ("--set", "optimizer.lr=0.01", "--set", "training.warmup_steps=15")
    words += ("--set", "training.max_steps=18")  # later on one odd batch of 128 tokens may be at 12
    plan = user.quick("train", "plan", *words)
    assert plan.code == 0
    assert (
        "loss > 10" in plan.out and "arms" in plan.out and "step 15" in " ".join(plan.out.split())
    )
    result = user.albor("train", "apply", *words, "--name", "fine", "--json")
    assert result.code == 0, result
    shown = user.quick("runs", "show", "fine", "--json").document
    losses = [value for _, value, _ in shown["points"]["train/loss"]]
    assert losses[0] > 10.3 and losses[-1] < 10
    assert shown["alerts"] == []


def test_a_slow_data_brick_pauses_the_run_visibly_until_a_person_lets_it_go_on(user):
    budget = ("--set", "monitoring.bricks={data_ms: 50}")
    run = user.apply("slow", *budget, ALBOR_FAULTS="data:sleep=0.5@6-9")
    wait_until(lambda: (read_json(run.state) or {}).get("phase") == "paused")
    seen = user.albor("monitor", run.path, "--once", "--json").document
    assert (seen["status"]["word"], seen["state"]["phase"]) == ("paused", "paused")

    def pauses():
        alerts = user.quick("alerts", "ls", "slow", "--json").document["alerts"]
        return [alert for alert in alerts if alert["action"] == "pause"]

    assert "data" in wait_until(pauses, 20)[0]["message"]
    cockpit = user.cockpit("--once", user.folder / "runs")
    assert cockpit.code == 0 and "paused" in cockpit.out and "slow" in cockpit.out
    for _ in range(4):  # once for each slow step at most
        assert user.quick("guard", "resume", run.path).code == 0
        wait_until(
            lambda: (
                not run.liveness().is_alive
                or step_now(run) > 9
                or (read_json(run.state) or {}).get("phase") == "paused"
            )
        )
        if not run.liveness().is_alive or step_now(run) > 9:
            break
    assert wait_for_end(run)["exit_code"] == 0
    assert read_json(run.exit)["reason"] == "completed"


def test_a_disk_that_takes_no_checkpoints_costs_no_step(user):
    """RLIMIT_FSIZE below the size of a checkpoint, above that of every other file."""
    done = subprocess.run(
        [
            "bash",
            "-c",
            f"ulimit -f 100; exec {' '.join(ALBOR)} train apply tiny.yaml --name full"
            " --set training.max_steps=12",
        ],
        cwd=user.folder,
        env=user.environment(),
        capture_output=True,
        text=True,
        timeout=120,
    )
    run = user.run("full")
    failed = [record for record in records(run) if record.get("name") == "checkpoint.failed"]
    assert sorted({*steps_logged(run)}) == list(range(13))
    assert failed
    assert done.returncode != 0, "the last checkpoint is missing: that is no success"
    assert "Traceback" not in done.stderr
    assert "checkpoint" in read_json(run.exit)["message"]
    again = user.albor("train", "resume", run.path, "--json")
    assert again.code == 0, again


def test_a_live_run_can_be_watched_but_not_started_twice(user):
    run = user.apply("live", *LONG, ALBOR_FAULTS=SLOW_STEPS)
    wait_until(lambda: step_now(run) >= 2)
    for words in (("train", "resume", run.path), ("train", "apply", "tiny.yaml", "--name", "live")):
        refused = user.quick(*words)
        assert refused.code == 8
        assert "live" in refused.err and "next:" in refused.err
    stream = user.start("monitor", run.path, "--json", "--interval", "0.2")
    documents = [strict(stream.stdout.readline()) for _ in range(3)]
    assert [d["schema"] for d in documents] == ["albor.monitor/1"] * 3
    assert documents[0]["state"]["global_step"] <= documents[2]["state"]["global_step"]
    assert user.quick("guard", "pause", run.path).code == 0
    held = step_now(run)
    assert user.quick("guard", "checkpoint", run.path).code == 0
    assert step_now(run) == held
    assert user.quick("guard", "resume", run.path).code == 0
    assert user.quick("guard", "stop", run.path).code == 0
    rest = [strict(line) for line in stream.communicate(timeout=30)[0].splitlines()]
    assert rest[-1]["status"]["word"] == "stopped"  # a stream ends with the end


def test_a_run_directory_deleted_under_a_live_run_ends_it_and_nothing_lingers(user):
    import shutil

    run = user.apply("gone", *LONG, ALBOR_FAULTS=SLOW_STEPS)
    wait_until(lambda: step_now(run) >= 1)
    pids = [trainer_pid(run), run.liveness().guard]
    shutil.rmtree(run.path, ignore_errors=True)
    shutil.rmtree(run.path, ignore_errors=True)  # what was written in between
    try:
        wait_until(lambda: not any(map(alive, pids)), timeout_s=30)
    finally:
        for pid in filter(alive, pids):
            os.kill(pid, signal.SIGKILL)
    assert user.quick("runs", "ls").code == 0
    assert user.quick("monitor").code == 0


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False
