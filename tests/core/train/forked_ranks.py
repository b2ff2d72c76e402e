"""python forked_ranks.py JOBS.json: trains runs on several ranks that are forks of this process.

The trainer starts its ranks as programs, each of which loads torch; here that is done once for all
jobs. What is tested is the same: rank 0's loop, the other ranks, and what they say to each other.
"""

from __future__ import annotations

import faulthandler
import json
import os
import socket
import sys
import traceback
from dataclasses import asdict, dataclass
from pathlib import Path

from tiny_run import rewrite_config, train_here

from albor_core.config.load import parse_config
from albor_core.data.load.packed_shards import PackedShards
from albor_core.run.rundir import RunDir
from albor_core.train import loop
from albor_core.train.process.attempt import Attempt
from albor_core.train.process.faults import faults_from
from albor_core.train.rank_loop import RankLoop
from albor_core.train.ranks import rank_processes
from albor_core.train.resume import train_state
from albor_core.train.step import optimizer_step

LIMIT_S = 120


@dataclass(frozen=True)
class Job:
    """One attempt of a run on as many ranks as its config says."""

    run: str
    attempt: int = 1
    stop_after: int | None = None
    faults: str = ""
    traced: str = ""
    """Folder for a file of each rank with the sequences that it trained on, one line a batch."""
    spoiled_at: int | None = None
    """Step after which the last rank's weights change by themselves."""
    distributed: tuple[int, str] | None = None
    """World size and strategy that the run's config has from now on."""


def write_jobs(path: Path, jobs: list[Job]) -> Path:
    path.write_text(json.dumps([asdict(job) for job in jobs]))
    return path


def main() -> int:
    jobs = [Job(**job) for job in json.loads(Path(sys.argv[1]).read_text())]
    codes = [_run(job) for job in jobs]
    print(json.dumps(codes))
    return 0


def _run(job: Job) -> int:
    """Rank 0's exit code."""
    run = RunDir(Path(job.run))
    if job.distributed is not None:
        world_size, strategy = job.distributed
        wanted = {"world_size": world_size, "strategy": strategy}
        rewrite_config(run, "training.distributed", wanted)
    config = parse_config(run.config_resolved.read_bytes(), file=str(run.config_resolved))
    world_size = config.training.distributed.world_size
    with socket.create_server(("127.0.0.1", 0)) as listener:
        pids = [_fork(job, run, config, rank, listener) for rank in range(world_size)]
    first, *rest = (os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids)
    return first or next((code for code in rest if code), 0)


def _fork(job, run, config, rank, listener) -> int:
    world_size = config.training.distributed.world_size
    if pid := os.fork():
        return pid
    code = 1
    try:
        # a rank that hangs fails its job, not the whole suite, and says where it hung
        faulthandler.dump_traceback_later(LIMIT_S, exit=True)
        if world_size > 1:
            os.environ |= {
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "WORLD_SIZE": str(world_size),
                "LOCAL_WORLD_SIZE": str(world_size),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(listener.getsockname()[1]),
                "GLOO_SOCKET_IFNAME": "lo",
            }
            if rank == 0:
                os.environ[rank_processes.STORE_FD] = str(os.dup(listener.fileno()))
        if job.traced:
            _trace(Path(job.traced) / f"rank{rank}")
        if job.spoiled_at is not None and rank == world_size - 1:
            _spoil(job.spoiled_at)
        if rank == 0:
            train_here(run, attempt=job.attempt, faults=job.faults, stop_after=job.stop_after)
        else:
            faults = faults_from({"ALBOR_FAULTS": job.faults}, attempt=job.attempt)
            RankLoop(Attempt(run, job.attempt, f"n{job.attempt}"), config, faults).run()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        sys.stdout.flush()
        os._exit(code)


def _trace(path: Path) -> None:
    from albor_core.train.build import Parts

    real = PackedShards.batch

    def batch(self, indices):
        if _is_called_by(Parts.batch.__code__):  # not by a validation
            with path.open("a") as file:
                file.write(json.dumps([int(i) for i in indices]) + "\n")
        return real(self, indices)

    PackedShards.batch = batch


def _is_called_by(code) -> bool:
    frame = sys._getframe(2)
    while frame is not None and frame.f_code is not code:
        frame = frame.f_back
    return frame is not None


def _spoil(step: int) -> None:
    import torch

    from albor_core.train import rank_loop

    real = optimizer_step.take_step

    def take_step(parts, *arguments, **where):
        found = real(parts, *arguments, **where)
        if where["step"] == step:
            with torch.no_grad():
                next(parts.model.parameters()).view(-1)[0] += 1e-6
        return found

    rank_loop.take_step = take_step


assert loop and train_state  # loaded before the first fork


if __name__ == "__main__":
    sys.exit(main())
