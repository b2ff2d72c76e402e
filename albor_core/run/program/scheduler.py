"""The scheduler's job that a process belongs to, by its environment.

A job's processes end with the job, and may be killed or left behind outside any allocation when the
command that the job waits for returns: nothing may be detached from it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class SchedulerJob:
    """One start of a job. `restart` counts how often the scheduler started it again; None: it
    does not say.
    """

    scheduler: str
    id: str
    restart: int | None = None
    nodes: str = ""

    def __str__(self) -> str:
        where = f" on {self.nodes}" if self.nodes else ""
        again = f", restart {self.restart}" if self.restart else ""
        return f"{self.scheduler} job {self.id}{where}{again}"

    def document(self) -> dict[str, Any]:
        """The job as it is recorded."""
        return asdict(self)

    def follows(self, earlier: Mapping[str, Any]) -> bool:
        """Whether this is a later start of the job in a `document`: then that one is over, since a
        scheduler starts a job again only when it has ended.
        """
        known, again = earlier.get("restart"), self.restart or 0
        is_same = (earlier.get("scheduler"), earlier.get("id")) == (self.scheduler, self.id)
        return is_same and again > (known if isinstance(known, int) else 0)


def current_job(environ: Mapping[str, str] = os.environ) -> SchedulerJob | None:
    """The job that this process runs in, None outside of one."""
    if job := environ.get("SLURM_JOB_ID"):
        nodes = environ.get("SLURM_JOB_NODELIST") or environ.get("SLURMD_NODENAME", "")
        return SchedulerJob("slurm", job, _count(environ.get("SLURM_RESTART_COUNT", "0")), nodes)
    if job := environ.get("PBS_JOBID"):
        return SchedulerJob("pbs", job, None, os.uname().nodename)
    if job := environ.get("LSB_JOBID"):
        return SchedulerJob(
            "lsf", job, None, " ".join(sorted(set(environ.get("LSB_HOSTS", "").split())))
        )
    if environ.get("KUBERNETES_SERVICE_HOST") and _is_waited_for_by_init():
        return SchedulerJob(
            "kubernetes", environ.get("HOSTNAME", ""), None, environ.get("NODE_NAME", "")
        )
    return None


def _count(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() else None


def _is_waited_for_by_init() -> bool:
    """Whether we descend from the container's first process, whose end is the container's end; a
    shell of `kubectl exec` does not.
    """
    pid = os.getpid()
    while pid > 1:
        try:
            stat = Path(f"/proc/{pid}/stat").read_bytes()
        except OSError:
            return False
        pid = int(stat.rsplit(b")", 1)[1].split()[1])
    return pid == 1
