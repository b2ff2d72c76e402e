"""The interface of what runs a program under a guard; each implementation is a file beside this."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from albor_core.run.rundir import RunDir


@dataclass(frozen=True)
class Submission:
    """A program submitted to run under the guard of a run."""

    argv: Sequence[str]
    """May hold secrets: no launcher keeps those in a file."""
    cwd: str
    env: Mapping[str, str] = field(default_factory=dict)
    """Besides what it inherits."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """The config's section `guard`."""
    max_steps: int | None = None
    kind: str = "guard"
    """`train`: Albor's trainer; `guard`: anybody's program."""
    index: bool = True
    """Whether its figures go into the stores."""
    forgets: bool = False
    """Whether restarts of a guard that was killed do not count."""


@dataclass(frozen=True)
class State:
    """The state of a submitted run."""

    exit_code: int | None
    """None while it is alive; 1 if it was lost."""

    @property
    def is_alive(self) -> bool:
        return self.exit_code is None


@dataclass(frozen=True)
class Host:
    """A machine that can start runs."""

    name: str
    max_ranks: int
    """The most ranks of a run that are started there without torchrun or srun."""


class Launcher(Protocol):
    """Starts and cancels runs. Methods raise InUseError, TryAgainError or AlborError if they cannot
    do what is asked."""

    def submit(self, run: RunDir, program: Submission) -> None:
        """Run the program under a guard that outlives this process. Returns once it is guarded, or
        queued if there is a queue.
        """

    def state(self, run: RunDir) -> State: ...

    def cancel(self, run: RunDir, *, at_once: bool, asked_by: str) -> None:
        """Ask the run to end: after a checkpoint, or `at_once` without one."""

    def log(self, run: RunDir) -> Path | None:
        """The log file of the run's newest attempt; None before the first."""

    def hosts(self) -> tuple[Host, ...]: ...
