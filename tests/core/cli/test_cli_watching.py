"""Runs that are watched, one of each kind, by the processes that a user would have."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
from cli_user import SLOW_STEPS
from tiny_run import wait_until

from albor_core.run.files.watch_file import is_watched, read_watch
from albor_core.run.journal import read_journal
from albor_core.run.liveness import lock_holder
from albor_core.run.rundir import RunDir, read_json
from albor_core.store.file.paths import local_store
from albor_core.store.query.reader import Reader

TRACKED = """
import sys
from albor_core import track
with track.start(experiment="e", name="mine", dir="runs") as run:
    print(run.path, flush=True)
    for step in range(1, 4):
        run.log({"loss": 2.0}, step=step)
    run.log({"loss": float("nan")}, step=4)
    sys.stdin.readline()
"""
GUARDED = """
import time
from albor_core import track
with track.start() as run:
    for step in range(1, 100000):
        run.log({"loss": 2.0 if step < 120 else 50.0}, step=step)
        time.sleep(0.02)
"""


def told(run, name="andon.alert"):
    try:
        lines = [line.record for line in read_journal(run.system)]
    except OSError:
        return []
    return [line["data"] for line in lines if line and line.get("name") == name]


def test_a_tracked_program_is_watched_whatever_becomes_of_its_index_process(desk):
    with subprocess.Popen(
        [sys.executable, "-c", TRACKED], cwd=desk.folder, env=desk.environment(),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as program:  # fmt: skip
        run = RunDir(desk.folder / program.stdout.readline().strip())
        wait_until(lambda: told(run))
        wait_until(lambda: read_watch(run))
        first = read_watch(run)
        assert is_watched(run, first)
        assert (first.acts, first.why_tells_only) == (False, "no guard")
        assert first.samples_machine
        os.kill(first.pid, signal.SIGKILL)
        wait_until(lambda: (read_watch(run) or first).pid != first.pid)
        wait_until(lambda: lock_holder(run.index_lock))
        program.communicate("\n")
    wait_until(lambda: lock_holder(run.index_lock) is None)
    assert [alert["id"] for alert in told(run)] == ["not-finite-train-loss@1.4"]
    with Reader(local_store(run)) as reader:
        assert [alert.id for alert in reader.alerts(run.id)] == ["not-finite-train-loss@1.4"]
        assert reader.summary(run.id)["program/rss_bytes"].axis == "step"
    assert not is_watched(run, read_watch(run))


def test_a_rule_of_the_user_stops_a_guarded_program(desk):
    (desk.home / "rules.yaml").write_text("rules:\n  - {condition: loss > 10, action: stop}\n")
    words = ("guard", "run", "--name", "foreign", "--", sys.executable, "-c", GUARDED)
    result = desk.albor(*words)
    run = RunDir(desk.home / "runs" / "foreign")
    (alert,) = [alert for alert in told(run) if alert["action"] == "stop"]  # health tells its own
    assert alert["step"] == 120
    (act,) = told(run, "andon.act")
    assert act["done"]
    assert result.code == 4
    assert (read_json(run.guard_json) or {})["state"] == "stopped"


def test_a_rule_on_the_machine_has_the_trainer_save(user):
    user.home.mkdir(exist_ok=True)
    rule = "rules:\n  - {condition: disk_free < 900000TB, action: checkpoint}\n"
    (user.home / "rules.yaml").write_text(rule)
    run = user.apply("saved", "--set", "training.checkpoint.save_every=1000",
                     "--set", "training.max_steps=400", ALBOR_FAULTS=SLOW_STEPS)  # fmt: skip
    wait_until(lambda: told(run, "andon.act"))
    assert told(run, "andon.act")[0]["done"]
    wait_until(lambda: list(run.checkpoints.glob("step-*")))
    assert read_watch(run).by == "loop"


@pytest.mark.parametrize("text", ["rules: [loss >> 10]", "rules: {", "\x00"])
def test_damaged_rules_are_told_and_the_run_is_watched_all_the_same(desk, text):
    (desk.home / "rules.yaml").write_text(text)
    with subprocess.Popen(
        [sys.executable, "-c", TRACKED], cwd=desk.folder, env=desk.environment(),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as program:  # fmt: skip
        run = RunDir(desk.folder / program.stdout.readline().strip())
        wait_until(lambda: told(run) and read_watch(run))
        assert any("rules.yaml" in problem for problem in read_watch(run).problems)
        program.communicate("\n")
