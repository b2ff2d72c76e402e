"""A profiler trace of the next steps, kept with the alert of a brick: RUN_DIR/traces.

A Chrome trace, to be opened in https://ui.perfetto.dev or chrome://tracing, with bricks as ranges
around the kernels that they launch, and what is computed in its metadata, for `albor profile`. At
most TRACES a run of TRACE_BYTES each, one an hour (andon/bricks/variation.py), beside one that was
ordered. The steps that are traced are slower, and count in no figure of time. Whatever a profiler
raises, training goes on.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from albor_core.andon.alert import Alert
from albor_core.andon.bricks.variation import TRACE_BYTES, TRACE_STEPS, may_trace
from albor_core.profile.workload import METADATA
from albor_core.run.journal import Journal
from albor_core.run.rundir import RunDir
from albor_core.train.step.brick_timer import BrickTimer, StepClock

_SUFFIX = ".json.gz"


@dataclass(frozen=True)
class TraceOrder:
    """A trace that was asked for: of `steps` steps from step `first` on, of any size, with the
    shapes of what is computed.
    """

    path: Path
    first: int
    steps: int


class BrickTracer:
    """Traces steps of one attempt; the loop calls it around every step."""

    def __init__(
        self,
        run: RunDir,
        journal: Journal,
        timer: BrickTimer,
        clock: StepClock,
        *,
        enabled: bool,
        on_gpu: bool,
        about: Mapping[str, object] | None = None,
    ) -> None:
        """`about`: what is computed, as the metadata of a trace."""
        self._run, self._journal, self._timer, self._clock = run, journal, timer, clock
        self._enabled, self._on_gpu, self._about = enabled, on_gpu, about
        self.order: TraceOrder | None = None
        self._range: torch.profiler.record_function | None = None
        self._path: Path | None = None
        self._profiler: torch.profiler.profile | None = None
        self._steps = 0

    def named(self, alerts: Sequence[Alert], step: int) -> list[Alert]:
        """The alerts; those of bricks name the trace of the next steps, if there is to be one."""
        if self._path is not None or not any(map(_is_news_of_a_brick, alerts)):
            return list(alerts)
        if not self._enabled or not may_trace(self._taken_at(), time.time()):
            return list(alerts)
        self._path = self._run.traces / f"step-{step:08d}{_SUFFIX}"
        told = f"; trace of the next {TRACE_STEPS} steps: traces/{self._path.name}"
        return [
            replace(alert, message=alert.message + told) if _is_news_of_a_brick(alert) else alert
            for alert in alerts
        ]

    def _taken_at(self) -> list[float]:
        found = []
        with suppress(OSError):
            for path in self._run.traces.glob(f"*{_SUFFIX}"):
                found.append(path.stat().st_mtime)
        return found

    def before_step(self, step: int) -> None:
        """Start, if a trace is wanted from `step` on."""
        if self.order is not None and step == self.order.first:
            self._path = self.order.path
        if self._path is None:
            return
        self._clock.is_disturbed = True
        if self._profiler is None:
            with self._clock.held():
                self._start()
        if self._profiler is not None:  # named as profilers name a step
            self._range = torch.profiler.record_function(f"ProfilerStep#{step}")
            self._range.__enter__()  # type: ignore[no-untyped-call]

    @property
    def ends_with_next_step(self) -> bool:
        """Whether the next `after_step` stops and writes."""
        steps = TRACE_STEPS if self.order is None else self.order.steps
        return self._profiler is not None and self._steps + 1 >= steps

    def after_step(self, step: int) -> None:
        """Stop and write, if that was the last step of it."""
        if self._profiler is None:
            return
        if self._range is not None:
            self._range.__exit__(None, None, None)
            self._range = None
        is_last, self._steps = self.ends_with_next_step, self._steps + 1
        if is_last:
            with self._clock.held():
                self._finish(step)

    def close(self) -> None:
        """Write what there is of one that goes on; the run ends."""
        if self._profiler is not None:
            self._finish(None)

    def _start(self) -> None:
        activities = [torch.profiler.ProfilerActivity.CPU]
        if self._on_gpu:
            activities.append(torch.profiler.ProfilerActivity.CUDA)
            # CUPTI, taken down and set up again, breaks the graphs that were captured in between
            os.environ.setdefault("DISABLE_CUPTI_LAZY_REINIT", "1")
            os.environ.setdefault("TEARDOWN_CUPTI", "0")
        try:
            if self._on_gpu:
                torch.cuda.synchronize()  # or work of the step before would be in it
            profiler = torch.profiler.profile(
                activities=activities, acc_events=True, record_shapes=self.order is not None
            )
            profiler.start()
            if self._about is not None:
                profiler.add_metadata_json(METADATA, json.dumps(self._about))
        except Exception as error:  # a driver's or a tool's
            self._give_up(error)
            return
        self._profiler, self._timer.is_traced = profiler, True

    def _finish(self, step: int | None) -> None:
        assert self._profiler is not None
        assert self._path is not None
        profiler, path, steps = self._profiler, self._path, self._steps
        self._profiler, self._path, self._steps = None, None, 0
        self._timer.is_traced = False
        part = path.with_name(f".{path.name.removesuffix(_SUFFIX)}.part{_SUFFIX}")
        try:
            if self._on_gpu:
                torch.cuda.synchronize()
            profiler.stop()
            path.parent.mkdir(exist_ok=True)
            profiler.export_chrome_trace(str(part))
            size = part.stat().st_size
            if size > TRACE_BYTES and self.order is None:
                raise ValueError(f"{size} bytes, more than {TRACE_BYTES}")
            part.replace(path)
        except Exception as error:  # a full disk, a driver's or a tool's
            with suppress(OSError):
                part.unlink(missing_ok=True)
            self._give_up(error)
            return
        self._journal.event("brick.traced", step=step, path=str(path), bytes=size, steps=steps)

    def _give_up(self, error: Exception) -> None:
        """For this attempt: what failed once would fail again."""
        self._enabled, self._path, self._profiler = False, None, None
        reason = f"{type(error).__name__}: {str(error)[:300]}"
        self._journal.event("brick.untraced", severity="warning", reason=reason)


def _is_news_of_a_brick(alert: Alert) -> bool:
    return alert.kind == "brick" and alert.state == "fired"
