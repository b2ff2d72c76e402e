"""The rank that torchrun or srun started this process as, by its environment.

torchrun (and whatever speaks its language) sets RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and
MASTER_PORT; srun sets SLURM_PROCID, SLURM_NTASKS and SLURM_LOCALID, and what it does not say of a
place to meet follows from the job. Standard library only.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from albor_core.run.errors import UsageError

LAUNCHED = "ALBOR_LAUNCHED"
"""The variable that hands a rank to the trainer."""
OWN_CONFIG = "ALBOR_LAUNCHED_CONFIG"
"""The variable with the config that a rank above 0 was started with."""
TORCHRUN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
SRUN = ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID")
_NO_STEP = 0xFFFF_FFF0  # from here on step numbers stand for a job's script, or its allocation
_LOWEST_PORT, _PORTS = 20_000, 20_000


@dataclass(frozen=True)
class LaunchedRank:
    """One process of `world_size`, on one of maybe several hosts."""

    launcher: str
    """torchrun or srun."""
    rank: int
    world_size: int
    local_rank: int
    """Among those of its host."""
    address: str
    """Host of rank 0, where all meet."""
    port: int
    has_store: bool = False
    """torchrun's agent already keeps a store at that port."""
    restart: int = 0
    """How often the launcher has started the ranks again."""
    starter: int = 0
    """The process that `albor` was, whose end ends a rank 0 that a guard holds; 0 for the others.
    """

    def text(self) -> str:
        """For LAUNCHED."""
        return json.dumps(asdict(self))

    def __str__(self) -> str:
        return f"rank {self.rank} of {self.world_size} ({self.launcher})"


def handed_rank(environ: Mapping[str, str]) -> LaunchedRank | None:
    """The rank in the variable LAUNCHED."""
    text = environ.get(LAUNCHED)
    return None if text is None else LaunchedRank(**json.loads(text))


def launched_rank(environ: Mapping[str, str] = os.environ) -> LaunchedRank | None:
    """This process's rank; None where it was started alone.

    Raises UsageError for variables that are half there, or not numbers.
    """
    if any(name in environ for name in TORCHRUN[:3]):
        return _of_torchrun(environ)
    if SRUN[0] in environ and _is_step(environ):
        return _of_srun(environ)
    return None


def _of_torchrun(environ: Mapping[str, str]) -> LaunchedRank | None:
    _refuse_halves(environ, TORCHRUN, "torchrun --nproc-per-node N -m albor_core.cli train run ...")
    found = LaunchedRank(
        "torchrun",
        _number(environ, "RANK"),
        _number(environ, "WORLD_SIZE"),
        _number(environ, "LOCAL_RANK"),
        environ["MASTER_ADDR"],
        _number(environ, "MASTER_PORT"),
        has_store=environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True",
        restart=_number(environ, "TORCHELASTIC_RESTART_COUNT", "0"),
    )
    return _checked(found, "RANK", "WORLD_SIZE")


def _of_srun(environ: Mapping[str, str]) -> LaunchedRank | None:
    _refuse_halves(environ, SRUN, "srun --ntasks N albor train run ...")
    world = "SLURM_STEP_NUM_TASKS" if "SLURM_STEP_NUM_TASKS" in environ else "SLURM_NTASKS"
    job = environ.get("SLURM_JOB_ID", "0")
    port = _LOWEST_PORT + (int(job) if job.isascii() and job.isdigit() else 0) % _PORTS
    nodes = environ.get("SLURM_STEP_NODELIST") or environ.get("SLURM_JOB_NODELIST", "")
    found = LaunchedRank(
        "srun",
        _number(environ, "SLURM_PROCID"),
        _number(environ, world),
        _number(environ, "SLURM_LOCALID"),
        environ.get("MASTER_ADDR") or first_host(nodes) or "127.0.0.1",
        _number(environ, "MASTER_PORT", str(port)),
        restart=_number(environ, "SLURM_RESTART_COUNT", "0"),
    )
    return _checked(found, "SLURM_PROCID", world)


def _is_step(environ: Mapping[str, str]) -> bool:
    """Whether srun started this process: a job's own script is task 0 of nothing."""
    if "SLURM_JOB_ID" not in environ:
        return True
    step = environ.get("SLURM_STEP_ID", "")
    return step.isascii() and step.isdigit() and int(step) < _NO_STEP


def _refuse_halves(environ: Mapping[str, str], names: tuple[str, ...], command: str) -> None:
    absent = [name for name in names if not environ.get(name)]
    if absent:
        there = [name for name in names if environ.get(name)]
        raise UsageError(
            f"cannot tell which rank this is: {', '.join(there)} set, {', '.join(absent)} not",
            hint=f"{command} sets all of them; without other ranks: unset {' '.join(there)}",
        )


def _number(environ: Mapping[str, str], name: str, otherwise: str = "") -> int:
    text = environ.get(name) or otherwise
    if not (text.isascii() and text.isdigit()):
        raise UsageError(f"cannot tell which rank this is: {name} is not a number: {text!r}")
    return int(text)


def _checked(found: LaunchedRank, rank: str, world: str) -> LaunchedRank | None:
    if found.rank >= max(1, found.world_size):
        raise UsageError(
            f"cannot tell which rank this is: {rank} is {found.rank}, {world} {found.world_size}",
            hint="ranks count from 0",
        )
    if not 0 < found.port < 65536:
        raise UsageError(f"cannot meet the other ranks: MASTER_PORT is {found.port}")
    return found if found.world_size > 1 else None


def first_host(nodes: str) -> str:
    """The first of Slurm's node list: `n[003-007,9],m1` begins with n003."""
    found = re.match(r"([^,\[\s]+)(?:\[(\d+)[^\]]*\])?([^,\[\s]*)", nodes)
    return "" if found is None else "".join(part or "" for part in found.groups())
