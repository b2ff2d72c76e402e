"""`--stop-after N`: a run is taken so far, and goes on from there as if undisturbed."""

from __future__ import annotations

import os
import signal

import pytest
from cli_user import FEW_STEPS, crash_reports, steps_logged, wait_until

from albor_core.run.rundir import read_json

pytestmark = pytest.mark.slow


def digest(user, run):
    return user.quick("runs", "digest", run, "--json").document["digest"]


def test_a_run_leaves_after_the_step_it_was_told_and_a_resume_ends_where_it_would_have(
    user, old_hand
):
    result = user.albor("train", "apply", "tiny.yaml", "--name", "calm", "--stop-after", 5)
    assert result.code == 0, result
    assert "stopped" in result.err and "--stop-after 5" in result.err
    assert "next: albor train resume calm" in result.err
    run = user.run("calm")
    assert steps_logged(run) == list(range(6)) and crash_reports(run) == []
    (row,) = user.quick("runs", "ls", "--json").document["runs"]
    assert (row["status"], row["attempts"]) == ("stopped", 1)
    assert read_json(run.guard / "guard.json")["exit_code"] == 0
    assert user.albor("train", "resume", "calm", "--stop-after", 7).code == 0
    assert steps_logged(run) == list(range(8))
    assert user.albor("train", "resume", "calm").code == 0
    assert digest(user, "calm") == digest(old_hand, "calm")


def test_a_life_that_died_before_the_step_is_started_again_and_leaves_after_it(user):
    result = user.albor(
        *("train", "run", "tiny.yaml", "--name", "shot", "--stop-after", 5),
        ALBOR_FAULTS="step:kill@3#1",
    )
    assert result.code == 0, result
    run = user.run("shot")
    assert max(steps_logged(run)) == 5 and len(crash_reports(run)) == 1


def test_a_life_at_work_cannot_be_told_where_to_stop(user):
    run = user.apply("long", ALBOR_FAULTS=FEW_STEPS)
    wait_until(lambda: run.liveness().trainer)
    refused = user.albor("train", "run", "tiny.yaml", "--name", "long", "--stop-after", 5)
    assert refused.code == 8 and "already guarded" in refused.err
    guard = run.liveness().guard
    os.kill(guard, signal.SIGKILL)
    wait_until(lambda: run.liveness().guard is None)
    refused = user.albor("train", "resume", "long", "--stop-after", 5)
    assert refused.code == 8 and "cannot stop long after step 5" in refused.err
    assert "albor guard stop long" in refused.err
    assert run.liveness().trainer


@pytest.mark.parametrize("text", ["0", "-1", "soon"])
def test_a_step_that_cannot_be_is_refused(user, text):
    result = user.quick("train", "apply", "tiny.yaml", "--stop-after", text)
    assert result.code == 2 and "--stop-after" in result.err
    assert not (user.folder / "runs").exists()
