"""What rank 0 learns of a rank that ends early, and when it gives up waiting for the others."""

import json
import os
import subprocess
import sys
import threading
from dataclasses import asdict

import pytest

from albor_core.run.rundir import RunDir
from albor_core.train.process.attempt import Attempt, Outcome
from albor_core.train.ranks import rank_processes
from albor_core.train.ranks.rank_processes import RankProcesses


class OddCrew(RankProcesses):
    """Its ranks run a line of Python instead of a trainer."""

    def __init__(self, folder, *programs):
        super().__init__(Attempt(RunDir(folder), 1, "n"), len(programs) + 1, [])
        self.programs = programs

    def _spawn(self, rank):
        reading, writing = os.pipe()
        process = subprocess.Popen(
            [
                sys.executable,
                "-c",
                f"import os, signal, time\nwords = {writing}\n{self.programs[rank - 1]}",
            ],
            pass_fds=(writing,),
        )
        os.close(writing)
        return rank_processes._Member(rank, process, reading)


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    """`start` writes into this process's own."""
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR",
                 "MASTER_PORT", "OMP_NUM_THREADS", "TORCH_CPP_LOG_LEVEL", "GLOO_SOCKET_IFNAME",
                 rank_processes.STORE_FD):  # fmt: skip
        monkeypatch.setenv(name, "0")
        monkeypatch.delenv(name)


SLEEP = "time.sleep(300)"  # what a rank runs; `close` kills it, nobody waits


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", "was killed by SIGKILL"),
        ("os._exit(3)", "ended with code 3"),
    ],
)
def test_a_silent_death_is_told_by_how_it_ended(tmp_path, program, said):
    ranks = OddCrew(tmp_path, SLEEP, program)
    ranks.start(lambda outcome: None)
    lost = ranks.loss(patience_s=20)
    assert (lost.reason, lost.code) == ("rank_lost", 1)
    assert lost.message.startswith("rank 2 (process ")
    assert lost.message.endswith(said)
    ranks.close(is_lost=True)
    assert all(member.process.poll() is not None for member in ranks._members)


def test_last_words_of_a_rank_are_those_of_the_life(tmp_path):
    words = Outcome("gpu_memory", 1, 7, "20 GiB too few", {"type": "OutOfMemoryError", "hint": "h"})
    text = json.dumps(asdict(words))
    ranks = OddCrew(tmp_path, f"os.write(words, {text.encode()!r}); os._exit(1)")
    ranks.start(lambda outcome: None)
    lost = ranks.loss(patience_s=20)
    assert lost == Outcome("gpu_memory", 1, 7, "rank 1: 20 GiB too few", words.error)
    ranks.close(is_lost=True)


def test_who_hangs_in_a_collective_is_given_up_on(tmp_path, monkeypatch):
    monkeypatch.setattr(rank_processes, "GRACE_S", 0.1)
    given_up = threading.Event()
    found = []
    ranks = OddCrew(tmp_path, "os._exit(1)")
    ranks.start(lambda outcome: (found.append(outcome), given_up.set()))
    assert given_up.wait(20)  # nobody called close
    assert found[0].reason == "rank_lost"
    ranks.close(is_lost=True)


def test_ranks_that_leave_in_their_own_time_are_no_loss(tmp_path):
    ranks = OddCrew(tmp_path, "time.sleep(0.2)", "pass")
    losses = []
    ranks._is_closing.set()  # as `close` does, before they are gone
    ranks.start(losses.append)
    ranks.close(is_lost=False)
    assert [member.process.returncode for member in ranks._members] == [0, 0]
    assert ranks.loss(patience_s=0) is None
    assert losses == []
