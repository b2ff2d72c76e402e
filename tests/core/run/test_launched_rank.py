"""Which rank a process is, by the environment of torchrun or srun."""

import pytest

from albor_core.run.errors import UsageError
from albor_core.run.program.launched_rank import first_host, handed_rank, launched_rank

RUN = {
    "RANK": "3",
    "WORLD_SIZE": "4",
    "LOCAL_RANK": "1",
    "MASTER_ADDR": "n1",
    "MASTER_PORT": "29500",
}
STEP = {
    "SLURM_JOB_ID": "41234567",
    "SLURM_STEP_ID": "0",
    "SLURM_PROCID": "1",
    "SLURM_NTASKS": "2",
    "SLURM_LOCALID": "0",
    "SLURM_STEP_NODELIST": "n[003-004]",
}


def test_torchrun_says_who_this_is_and_where_all_meet():
    found = launched_rank(RUN)
    assert (found.rank, found.world_size, found.local_rank) == (3, 4, 1)
    assert (found.address, found.port, found.has_store) == ("n1", 29500, False)
    agent = launched_rank(
        {**RUN, "TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": "2"}
    )
    assert (agent.has_store, agent.restart) == (True, 2)
    assert handed_rank({"ALBOR_LAUNCHED": agent.text()}) == agent


def test_srun_says_who_this_is_and_the_job_where_all_meet():
    found = launched_rank(STEP)
    assert (found.launcher, found.rank, found.world_size) == ("srun", 1, 2)
    assert found.address == "n003"
    assert found.port == launched_rank({**STEP, "SLURM_PROCID": "0"}).port
    told = launched_rank({**STEP, "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "1234"})
    assert (told.address, told.port) == ("10.0.0.1", 1234)


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"MASTER_ADDR": "n1", "MASTER_PORT": "1"},  # of a job's script, for its steps
        {name: value for name, value in STEP.items() if name != "SLURM_STEP_ID"},  # that script
        {**STEP, "SLURM_STEP_ID": "4294967291"},
        {**RUN, "WORLD_SIZE": "1", "RANK": "0"},
        {**STEP, "SLURM_NTASKS": "1", "SLURM_PROCID": "0"},
    ],
)
def test_a_process_of_its_own_is_no_rank(environ):
    assert launched_rank(environ) is None


@pytest.mark.parametrize("absent", ["RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR"])
def test_variables_that_are_half_there_are_refused_by_name(absent):
    half = {name: value for name, value in RUN.items() if name != absent}
    with pytest.raises(UsageError, match=f"{absent} not") as refused:
        launched_rank(half)
    assert "unset" in refused.value.hint


def test_numbers_that_are_none_are_refused_by_name():
    with pytest.raises(UsageError, match="WORLD_SIZE is not a number: 'four'"):
        launched_rank({**RUN, "WORLD_SIZE": "four"})
    with pytest.raises(UsageError, match="RANK is 4, WORLD_SIZE 4"):
        launched_rank({**RUN, "RANK": "4"})


@pytest.mark.parametrize(
    ("nodes", "first"),
    [
        ("n[003-007,9],m1", "n003"),
        ("gpu-a1,gpu-a2", "gpu-a1"),
        ("rack1-n[01,03]-ib", "rack1-n01-ib"),
        ("", ""),
    ],
)
def test_the_first_host_of_a_node_list(nodes, first):
    assert first_host(nodes) == first
