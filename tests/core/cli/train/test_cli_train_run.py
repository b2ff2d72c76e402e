"""`albor train run CONFIG --name X` in a job that is ended and started again."""

from __future__ import annotations

import signal

import pytest
from cli_user import step_now, validate, wait_until

from albor_core.store.query.reader import Reader

JOB = {"SLURM_JOB_ID": "11", "SLURM_JOB_NODELIST": "n1"}


@pytest.mark.slow
def test_a_requeued_training_is_one_run_with_each_step_once(user):
    words = ("train", "run", "tiny.yaml", "--name", "x")
    run = user.run("x")
    first = user.start(*words, **JOB)
    wait_until(lambda: step_now(run) >= 2)
    first.send_signal(signal.SIGTERM)
    _, said = first.communicate(timeout=90)
    assert first.returncode == 143, said
    assert "continues without this terminal" not in said
    again = user.albor(*words, **JOB, SLURM_RESTART_COUNT="1")
    assert again.code == 0, again.err
    with Reader(run.store) as reader:
        assert [point[0] for point in reader.points("x", "train/loss")] == [*range(1, 41)]
    third = user.albor(*words, "--json")
    assert (third.code, "nothing to do" in third.err) == (0, True)
    assert validate(third.document)["outcome"] == "ended"
    other = user.albor(*words, "--seed", "99")
    assert other.code == 2 and "training.seed" in other.err
    shown = user.albor("runs", "show", "x")
    assert "job of 2: slurm job 11 on n1, restart 1" in shown.out
    assert len([line for line in user.albor("runs", "ls").out.splitlines() if "x " in line]) == 1
