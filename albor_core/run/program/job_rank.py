"""Whether this process is one of several ranks of a job that tracks, and which. Standard library
only.

What is asked first wins: a process group that torch or jax has formed in this process, then the
words of a launcher. A pair that says that the job has one process is an answer too, whatever else
was inherited: a notebook, or a child with a job of its own. SLURM_PROCID is none, since an
allocation may run many programs, and neither is a local rank without a number of processes.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from albor_core.run.liveness import boot_id, start_ticks

_PAIRS = (
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),
    ("JAX_PROCESS_ID", "JAX_NUM_PROCESSES"),
    ("JAX_PROCESS_INDEX", "JAX_PROCESS_COUNT"),
)
_SIZES = ("WORLD_SIZE", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "LOCAL_WORLD_SIZE")
_HERE = ("localhost", "127.", "::1")


@dataclass(frozen=True)
class JobRank:
    """One process of a job. `size` is None where no launcher says it."""

    rank: int
    size: int | None
    job: str
    """The same for all ranks of the job, as far as its launcher tells."""
    agent: str
    """What started this rank, and starts it again."""
    restart: int = 0
    """How often the ranks were started again."""

    def __str__(self) -> str:
        return f"rank {self.rank}" + ("" if self.size is None else f" of {self.size}")

    @property
    def group(self) -> str | None:
        """The group name by which the runs of all ranks are found."""
        return f"ranks-{self.job}" if self.job else None

    def facts(self) -> dict[str, Any]:
        """For run.json; nothing of a process alone."""
        if not self.job:
            return {}
        of_launcher = {"agent": self.agent, "restart": self.restart}
        return {"job": {"id": self.job, "rank": self.rank, "size": self.size, **of_launcher}}


ALONE = JobRank(0, 1, "", "")


def job_rank(environ: Mapping[str, str] = os.environ) -> JobRank | None:
    """The place of this process; None where it is alone."""
    place = _formed() or _told(environ)
    if place is None or place[1] == 1:
        return None
    rank, size = place
    agent = environ.get("TORCHELASTIC_RUN_ID", "")
    parent = f"{socket.gethostname()} {boot_id()} {os.getppid()} {start_ticks(os.getppid())}"
    agent = _digest(parent if agent in ("", "none") else agent)
    restart = _number(environ, "TORCHELASTIC_RESTART_COUNT") or 0
    return JobRank(rank, size, _job(environ) or agent, agent, restart)


def _told(environ: Mapping[str, str]) -> tuple[int, int | None] | None:
    for name, of in _PAIRS:
        rank, size = _number(environ, name), _number(environ, of)
        if rank is not None and size is not None and (rank < size or size == 1):
            return rank, size
    size = next((n for name in _SIZES if (n := _number(environ, name)) is not None), None)
    rank = _number(environ, "PMIX_RANK")
    return _of_host(environ, size) if rank is None else _of_pmix(rank, size)


def _of_pmix(rank: int, size: int | None) -> tuple[int, int | None] | None:
    """PMIx names no size."""
    return (rank, size) if rank or (size or 1) > 1 else None


def _of_host(environ: Mapping[str, str], size: int | None) -> tuple[int, int] | None:
    """The rank and size computed from the rank on its host."""
    local = _number(environ, "LOCAL_RANK")
    if local is not None and size is not None and size > 1:
        node = next((n for w in ("NODE_RANK", "GROUP_RANK") if (n := _number(environ, w))), 0)
        return node * (_number(environ, "LOCAL_WORLD_SIZE") or 1) + local, size
    return None


def _formed() -> tuple[int, int] | None:
    """The rank and size of a process group of torch or jax in this process; loads and starts
    nothing."""
    with contextlib.suppress(Exception):
        torch: Any = sys.modules["torch.distributed"]
        if torch.is_available() and torch.is_initialized():
            return int(torch.get_rank()), int(torch.get_world_size())
    with contextlib.suppress(Exception):
        state: Any = sys.modules["jax._src.distributed"].global_state
        if state.client is not None:
            return int(state.process_id), int(state.num_processes)
    return None


def _job(environ: Mapping[str, str]) -> str:
    """The name of the job, equal on each of its hosts."""
    word = environ.get
    host = word("MASTER_ADDR", "")
    place = "" if not host or host.startswith(_HERE) else f"{host}:{word('MASTER_PORT', '')}"
    said = (
        word("TORCHELASTIC_RUN_ID", "").replace("none", ""),
        word("PMIX_NAMESPACE", ""),
        word("OMPI_MCA_ess_base_jobid", ""),
        word("JAX_COORDINATOR_ADDRESS", ""),
        place,
    )
    known = next((one for one in said if one), "")
    return _digest(f"{word('SLURM_JOB_ID', '')} {known}") if known else ""


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(errors="replace"), digest_size=4).hexdigest()


def _number(environ: Mapping[str, str], name: str) -> int | None:
    text = environ.get(name, "")
    return int(text) if text.isascii() and text.isdigit() else None
