"""`albor train run` as the ranks of torchrun: two agents on this machine stand for two hosts."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import sys

import pytest
from cli_user import SLOW_STEPS, records, step_now, valid, wait_until

from albor_core.guard.process.processes import environment_of, process_table
from albor_core.run.exit import read_exit
from albor_core.run.rundir import read_json
from albor_core.train.resume.digest import digest

pytestmark = pytest.mark.slow
LIMIT_S = 180


def free_port():
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as server:
        return server.getsockname()[1]


def losses(run):
    told = {}
    for record in records(run):
        if record["t"] == "m" and "train/loss" in record["v"]:
            told[record["step"]] = record["v"]["train/loss"]
    return told


class Hosts:
    """Two hosts, each with a folder of its own; the runs are on a disk that both see."""

    def __init__(self, user):
        self.user, self.port, self.agents = user, free_port(), []
        self.second = user.folder.parent / "second"
        self.second.mkdir()
        shutil.copy(user.folder / "tiny.yaml", self.second)

    def start(self, *words, config="tiny.yaml", **environ):
        """An agent on each host, with a rank each."""
        for node, folder in enumerate((self.user.folder, self.second)):
            agent = [
                *(sys.executable, "-m", "torch.distributed.run", "--nnodes", "2"),
                *("--nproc-per-node", "1", "--node-rank", str(node)),
                *("--master-addr", "127.0.0.1", "--master-port", str(self.port)),
                *("-m", "albor_core.cli", "train", "run", config, "--name", "x"),
            ]
            chosen = words[node] if words else ()
            self.agents.append(
                subprocess.Popen(
                    [*agent, *chosen],
                    cwd=folder,
                    env=self.user.environment(**environ),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                )
            )

    def end(self):
        """(exit code, output) of each agent, once both are over."""
        found = []
        for agent in self.agents:
            said, _ = agent.communicate(timeout=LIMIT_S)
            found.append((agent.returncode, said))
        self.agents.clear()
        return found

    def kill(self):
        for agent in self.agents:
            agent.kill()
            agent.communicate()


@pytest.fixture
def hosts(user):
    made = Hosts(user)
    yield made
    made.kill()


def ranks_alive(user):
    """Processes of this user's that torchrun has numbered."""
    found = ((entry.pid, environment_of(entry.pid)) for entry in process_table())
    return [
        pid for pid, env in found if env.get("RANK") and env.get("ALBOR_HOME") == str(user.home)
    ]


def test_two_hosts_of_torchrun_give_the_bytes_of_two_ranks_of_one(user, hosts):
    local = user.albor(
        *("train", "run", "tiny.yaml", "--name", "local"),
        *("--set", "training.distributed.world_size=2"),
    )
    assert local.code == 0, local.err
    alone = user.albor("train", "run", "tiny.yaml", "--name", "alone", "--stop-after", "20")
    assert alone.code == 0, alone.err
    hosts.start()
    for code, said in hosts.end():
        assert code == 0, said
    run = user.run("x")
    assert digest(run) == digest(user.run("local"))
    assert losses(run)[20] == pytest.approx(losses(user.run("alone"))[20], rel=1e-5)
    assert read_json(run.config_resolved)["training"]["distributed"]["world_size"] == 2
    starts = [r["data"] for r in records(run) if r["t"] == "e" and r["name"] == "run.start"]
    assert [start["world_size"] for start in starts] == [2]
    assert not (hosts.second / "runs").exists()
    hosts.start()  # a scheduler that does not know it is done
    for code, said in hosts.end():
        assert code == 0, said
    assert len(valid(user.albor("runs", "ls", "--json"))["runs"]) == 3


def test_an_agent_killed_ends_all_and_the_next_start_resumes_to_the_same_bytes(user, hosts):
    run = user.run("x")
    hosts.start(ALBOR_FAULTS=SLOW_STEPS)
    wait_until(lambda: step_now(run) >= 7, LIMIT_S)
    hosts.agents[1].kill()
    (first, said), _ = hosts.end()
    assert first != 0
    assert "Traceback" not in said.split("torch/distributed")[0], said
    wait_until(lambda: not run.liveness().is_alive and not ranks_alive(user))
    words = read_exit(run)
    assert words["reason"] == "rank_lost"
    assert "rank 1 (process" in words["message"]
    hosts.start()
    for code, said in hosts.end():
        assert code == 0, said
    starts = [r["data"] for r in records(run) if r["t"] == "e" and r["name"] == "run.start"]
    assert [start["attempt"] for start in starts] == [1, 2]
    assert starts[1]["resumed_from"] in range(5, 40, 5)
    local = user.albor(
        *("train", "run", "tiny.yaml", "--name", "local"),
        *("--set", "training.distributed.world_size=2"),
    )
    assert local.code == 0, local.err
    assert digest(run) == digest(user.run("local"))
    assert len(valid(user.albor("runs", "ls", "--json"))["runs"]) == 2


RANK_1 = {
    "RANK": "1",
    "WORLD_SIZE": "2",
    "LOCAL_RANK": "1",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "1",
}


@pytest.mark.parametrize(
    ("environ", "words", "said"),
    [
        ({"RANK": "0"}, (), "RANK set, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT not"),
        ({**RANK_1, "WORLD_SIZE": "3"}, (), "3 ranks of torchrun cannot share a global batch of 4"),
        (RANK_1, ("--set", "training.distributed.world_size=4"), "is 4, and torchrun started 2"),
    ],
)
@pytest.mark.parametrize("verb", ["run", "apply"])
def test_ranks_that_cannot_be_are_refused_by_name_and_nothing_is_made(
    user, environ, words, said, verb
):
    result = user.quick("train", verb, "tiny.yaml", "--name", "x", *words, "--json", **environ)
    assert (result.code, said in result.error["message"]) == (2, True), result
    assert result.error["hint"]
    assert not (user.folder / "runs").exists()


def test_a_rank_cannot_detach(user):
    result = user.quick("train", "apply", "tiny.yaml", "--detach", "--json", **RANK_1)
    assert (result.code, "cannot detach from torchrun" in result.error["message"]) == (2, True)


def test_what_keeps_rank_0_from_starting_ends_the_others(user, hosts):
    assert user.albor("train", "run", "tiny.yaml", "--name", "x", "--stop-after", "1").code == 0
    hosts.start(*[("--set", "optimizer.lr=0.001")] * 2)
    (_, said), (_, other) = hosts.end()
    assert "differ from the config of x (optimizer.lr: 0.003 -> 0.001" in said
    assert "optimizer.lr" in other and "rank 1 of 2 (torchrun) leaves: rank 0:" in other


def test_a_rank_with_another_config_ends_all_and_names_the_field(user, hosts):
    hosts.start((), ("--set", "optimizer.lr=0.001"))
    (first, said), (second, other) = hosts.end()
    assert first != 0 and second != 0
    assert "optimizer.lr: 0.003 there, 0.001 here" in other
    words = read_exit(user.run("x"))
    assert (words["reason"], words["code"]) == ("config", 2)
    assert "optimizer.lr" in words["message"] and "rank 1" in words["message"], said


def test_tasks_of_srun_meet_by_themselves_and_a_killed_one_ends_the_run(user):
    run, port = user.run("x"), str(free_port())
    command = ("train", "run", "tiny.yaml", "--name", "x")
    job = {"SLURM_NTASKS": "2", "SLURM_LOCALID": "0", "MASTER_PORT": port}

    def tasks(**environ):
        return [user.start(*command, **job, SLURM_PROCID=str(rank), **environ) for rank in range(2)]

    first, second = tasks(ALBOR_FAULTS=SLOW_STEPS)
    try:
        wait_until(lambda: step_now(run) >= 7, LIMIT_S)
        second.kill()
        _, said = first.communicate(timeout=LIMIT_S)
    finally:
        first.kill()
        second.kill()
        second.communicate()
    assert first.returncode not in (0, -9), said
    assert read_exit(run)["reason"] == "rank_lost"
    assert "rank 1 (process" in read_exit(run)["message"]
    for task in tasks():
        _, said = task.communicate(timeout=LIMIT_S)
        assert task.returncode == 0, said
    assert read_exit(run)["reason"] == "completed"
