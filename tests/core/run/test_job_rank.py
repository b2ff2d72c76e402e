"""Which rank of which job a process is, by what launchers and libraries say."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from albor_core.run.program.job_rank import job_rank


def _words(text):
    return dict(word.split("=") for word in text.split())


@pytest.mark.parametrize(
    ("words", "place"),
    [
        ("RANK=1 WORLD_SIZE=4", (1, 4)),
        ("RANK=0 WORLD_SIZE=4 LOCAL_RANK=0", (0, 4)),
        ("OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=4", (3, 4)),
        ("PMI_RANK=2 PMI_SIZE=8", (2, 8)),
        ("MV2_COMM_WORLD_RANK=1 MV2_COMM_WORLD_SIZE=2", (1, 2)),
        ("PMIX_RANK=2", (2, None)),
        ("PMIX_RANK=2 SLURM_NTASKS=4", (2, 4)),
        ("PMIX_RANK=0 SLURM_NTASKS=4", (0, 4)),
        ("JAX_PROCESS_ID=1 JAX_NUM_PROCESSES=2", (1, 2)),
        ("JAX_PROCESS_INDEX=1 JAX_PROCESS_COUNT=2", (1, 2)),
        ("LOCAL_RANK=1 WORLD_SIZE=2", (1, 2)),
        ("LOCAL_RANK=1 LOCAL_WORLD_SIZE=2", (1, 2)),
        ("LOCAL_RANK=0 NODE_RANK=1 WORLD_SIZE=4 LOCAL_WORLD_SIZE=2", (2, 4)),
    ],
)
def test_a_rank_is_known_by_whatever_started_it(words, place):
    found = job_rank(_words(words))
    assert (found.rank, found.size) == place


@pytest.mark.parametrize(
    "words",
    [
        "SLURM_PROCID=1 SLURM_NTASKS=4",
        "RANK=1 WORLD_SIZE=1",
        "RANK=0 WORLD_SIZE=1 OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=4",
        "RANK=0 WORLD_SIZE=1 LOCAL_RANK=3 LOCAL_WORLD_SIZE=4",
        "PMI_RANK=0 PMI_SIZE=1",
        "PMIX_RANK=0",
        "PMIX_RANK=0 SLURM_NTASKS=1",
        "LOCAL_RANK=2",
        "LOCAL_RANK=2 WORLD_SIZE=1",
        "RANK=3",
        "RANK=x WORLD_SIZE=4",
        "RANK=5 WORLD_SIZE=4",
        "RANK=-1 WORLD_SIZE=4",
    ],
)
def test_a_process_without_others_is_none(words):
    assert job_rank(_words(words)) is None


def test_a_group_that_torch_formed_wins_over_what_was_inherited(monkeypatch):
    torch = SimpleNamespace(is_available=lambda: True, is_initialized=lambda: True,
                            get_rank=lambda: 2, get_world_size=lambda: 3)  # fmt: skip
    monkeypatch.setitem(sys.modules, "torch.distributed", torch)
    found = job_rank(_words("RANK=0 WORLD_SIZE=1"))
    assert (found.rank, found.size) == (2, 3)
    torch.is_initialized = lambda: False
    assert job_rank({}) is None


def test_a_job_that_jax_joined_has_its_place(monkeypatch):
    state = SimpleNamespace(client=object(), process_id=1, num_processes=2)
    monkeypatch.setitem(sys.modules, "jax._src.distributed", SimpleNamespace(global_state=state))
    assert job_rank({}).rank == 1
    state.client = None
    assert job_rank({}) is None


def test_the_ranks_of_a_job_have_its_name_on_each_host_and_two_jobs_have_two():
    def job(words):
        return job_rank(_words(f"RANK=1 WORLD_SIZE=4 {words}")).job

    assert job("MASTER_ADDR=n1 MASTER_PORT=1") == job("MASTER_ADDR=n1 MASTER_PORT=1")
    names = [
        job(words)
        for words in ("MASTER_ADDR=n1 MASTER_PORT=1", "MASTER_ADDR=n1 MASTER_PORT=2", "",
                      "MASTER_ADDR=n1 MASTER_PORT=1 SLURM_JOB_ID=8", "TORCHELASTIC_RUN_ID=ab")
    ]  # fmt: skip
    assert len(set(names)) == len(names)
    assert job("MASTER_ADDR=localhost MASTER_PORT=1") == job("MASTER_ADDR=127.0.0.1 MASTER_PORT=2")


def test_a_restart_of_the_ranks_has_the_same_agent_and_counts():
    words = "RANK=0 WORLD_SIZE=2 TORCHELASTIC_RUN_ID=none TORCHELASTIC_RESTART_COUNT="
    first, second = (job_rank(_words(f"{words}{count}")) for count in (0, 2))
    assert (first.agent, first.restart) == (second.agent, 0)
    assert second.restart == 2
