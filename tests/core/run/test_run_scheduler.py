"""Which job a process belongs to, and what follows from it."""

import pytest
from click.testing import CliRunner

from albor_core.cli.main import cli
from albor_core.run.errors import UsageError
from albor_core.run.program.scheduler import SchedulerJob, current_job


@pytest.mark.parametrize(
    "environ, text",
    [
        ({}, "None"),
        ({"SLURM_JOB_ID": "11", "SLURM_JOB_NODELIST": "n[1-2]"}, "slurm job 11 on n[1-2]"),
        (
            {"SLURM_JOB_ID": "11", "SLURMD_NODENAME": "n1", "SLURM_RESTART_COUNT": "2"},
            "slurm job 11 on n1, restart 2",
        ),
        ({"LSB_JOBID": "7", "LSB_HOSTS": "b a b"}, "lsf job 7 on a b"),
        ({"SLURM_JOB_ID": "", "KUBERNETES_SERVICE_HOST": ""}, "None"),
    ],
)
def test_a_job_is_known_by_its_environment(environ, text):
    assert str(current_job(environ)) == text


def test_a_pod_is_a_job_only_where_its_first_process_waits_for_us(monkeypatch):
    environ = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "HOSTNAME": "train-x", "NODE_NAME": "n4"}
    for is_waited_for, job in (
        (True, SchedulerJob("kubernetes", "train-x", None, "n4")),
        (False, None),
    ):
        monkeypatch.setattr(
            "albor_core.run.program.scheduler._is_waited_for_by_init",
            lambda found=is_waited_for: found,
        )
        assert current_job(environ) == job


def test_a_later_life_of_a_job_proves_the_end_of_the_earlier():
    first, second = SchedulerJob("slurm", "11", 0, "n1"), SchedulerJob("slurm", "11", 1, "n2")
    assert second.follows(first.document())
    assert not first.follows(second.document())
    assert not second.follows(second.document())
    assert not second.follows(SchedulerJob("slurm", "12", 0, "n1").document())


@pytest.mark.parametrize(
    "words",
    [
        ("guard", "run", "--detach", "--", "true"),
        ("train", "apply", "x.yaml", "--detach"),
        ("train", "resume", "x", "--detach"),
    ],
)
def test_nothing_is_detached_from_a_job(monkeypatch, words, tmp_path):
    monkeypatch.setenv("SLURM_JOB_ID", "11")
    monkeypatch.setenv("ALBOR_HOME", str(tmp_path / "home"))
    result = CliRunner().invoke(cli, words)
    assert isinstance(result.exception, UsageError)
    assert "cannot detach inside slurm job 11" in result.exception.message
    assert "leave --detach out" in result.exception.hint
    assert not (tmp_path / "home").exists()
