"""The kernels under each brick of a run, by the newest profiler trace that it kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from albor_core.profile.breakdown import Breakdown, KernelRow, break_down
from albor_core.profile.report import traces_of
from albor_core.profile.trace import read_trace
from albor_core.run.errors import AlborError


@dataclass(frozen=True)
class TracedKernel:
    """Kernels of one name, or operators of a CPU, under one brick."""

    name: str
    share: float
    """Of a step's wall time."""
    per_step: float
    mean_us: float


@dataclass(frozen=True)
class TracedBrick:
    """A brick in a trace; counts are per step."""

    kernels: tuple[TracedKernel, ...]
    """The longest first."""
    launches: float
    syncs: float


@dataclass(frozen=True)
class TracedBricks:
    """The bricks in a trace."""

    name: str = ""
    """The trace's file; "": the run kept none."""
    is_gpu: bool = False
    coverage: float = 0.0
    bricks: Mapping[str, TracedBrick] = field(default_factory=dict)
    problem: str = ""
    """Why the trace cannot be read."""


class TraceShelf:
    """The newest trace in a folder, read again when it is another one. Raises nothing."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._mark: tuple[object, ...] | None = None
        self._found = TracedBricks()

    def look(self) -> TracedBricks:
        """The traced bricks; a large trace takes seconds to read."""
        newest = next(reversed(traces_of(self._folder)), None)
        if newest is None:
            return TracedBricks()
        try:
            said = newest.stat()
            mark = (newest, said.st_mtime_ns, said.st_size)
            if mark != self._mark:
                self._mark, self._found = mark, traced(newest.name, break_down(read_trace(newest)))
        except AlborError as error:
            self._found = TracedBricks(newest.name, problem=error.message)
        except OSError as error:
            self._mark = None
            return TracedBricks(newest.name, problem=error.strerror or str(error))
        return self._found


def traced(name: str, found: Breakdown) -> TracedBricks:
    """The bricks of a breakdown. Pure."""
    bricks = {
        phase.name: TracedBrick(
            tuple(_kernel(row, found) for row in found.by_phase.get(phase.name, ())),
            phase.launches / found.steps,
            phase.syncs / found.steps,
        )
        for phase in found.phases
    }
    return TracedBricks(name, found.is_gpu, found.coverage, bricks)


def _kernel(row: KernelRow, found: Breakdown) -> TracedKernel:
    share = row.time / found.wall
    return TracedKernel(row.name, share, row.count / found.steps, row.time / row.count)
