"""Eight hours of twenty healthy runs, second by simulated second: nothing of it needs a person."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from albor_core.feed.attention.derive import attention
from albor_core.feed.attention.item import AttentionItem, AttentionMarks
from albor_core.feed.attention.machine import MachineWatch, Reading
from albor_core.feed.run.status import Evidence, judge
from albor_core.feed.view.diagnostics import RunDiagnostics, Watched
from albor_core.feed.view.run_view import BrickView, BudgetView, CheckpointView, RunView
from albor_core.run.liveness import Liveness, boot_id, start_ticks
from albor_core.telemetry.sample import GpuProcess, GpuSample, HostSample

HOURS, RUNS, LOOK_S = 8, 20, 5.0
START = 1_700_000_000.0
GIB = 1 << 30
HOST = os.uname().nodename
PID = os.getpid()
ME = {"host": HOST, "boot_id": boot_id(), "pid": PID, "start_ticks": start_ticks(PID)}


@dataclass
class HealthyRun:
    """A loop that steps, evaluates and saves; some steps take four times as long as others."""

    number: int
    rng: random.Random
    step: int = 0
    phase: str = "training"
    news: float = START
    until: float = START
    saved: tuple[int, float] = (0, START)
    step_s: float = 1.0
    longest_gap_s: float = 0.0

    def __post_init__(self) -> None:
        self.usual_s = 0.05 * 1200 ** (self.number / (RUNS - 1))  # 50 ms to a minute
        self.save_every = max(2, int(self.rng.uniform(600, 2400) / self.usual_s))
        self.eval_every = max(3, self.save_every // 2 + 1)

    def go_on(self, now: float) -> None:
        """Live until `now`; what began before it and ends behind it is waited for."""
        while self.until <= now:
            self._finish()

    def _finish(self) -> None:
        gap = self.until - self.news
        if self.phase == "training":
            self.longest_gap_s = max(self.longest_gap_s * 0.99, gap)
            batch = max(1, int(1.0 / self.usual_s))  # news comes about once a second
            self.step += batch
            self.step_s = self.usual_s * self.rng.lognormvariate(0, 0.2)
        elif self.phase == "checkpointing":
            self.saved = (self.step, self.until)
        self.news = self.until
        self._begin_next()

    def _begin_next(self) -> None:
        batch = max(1, int(1.0 / self.usual_s))
        if self.phase == "training" and self.step % self.save_every < batch:
            self.phase, lasts = "checkpointing", self.rng.uniform(2, 40)
        elif self.phase == "training" and self.step % self.eval_every < batch:
            self.phase, lasts = "evaluating", self.rng.uniform(10, 240)
        else:
            self.phase = "training"
            slow = 4.0 if self.rng.random() < 0.01 else 1.0
            lasts = batch * self.usual_s * slow * self.rng.lognormvariate(0, 0.2)
        self.until += lasts

    def view(self, now: float) -> RunView:
        """As its files would tell it, the word being the real judge's."""
        state: dict[str, Any] = {
            **ME,
            "attempt": 1,
            "phase": self.phase,
            "phase_limit_s": None if self.phase == "training" else 1800.0,
            "global_step": self.step,
            "step_ms": 1000 * self.step_s,
            "news_gap_seconds": self.longest_gap_s or None,
            "wall": self.news,
        }
        locks = Liveness(PID, PID)
        guard = {"state": "running", "attempt": 1}
        status = judge(Evidence(locks, state, guard, None, now - self.news, START, HOST))
        loss = 2 + 5 / (1 + self.step / 500) + self.rng.gauss(0, 0.2)
        total, hours = int(12 * 3600 / self.usual_s), (now - START) / 3600
        share = self.step / total
        at_end = hours / share if share > 0.02 else None
        diagnostics = RunDiagnostics(
            watched=Watched(4, by="loop", acts=True),
            save_every=self.save_every,
        )
        return RunView(
            id=f"run-{self.number}",
            name=f"run {self.number}",
            host=HOST,
            created=START,
            status=status.word,
            is_live=True,
            is_silent=status.silent_s is not None,
            age_s=now - self.news,
            last_wall=self.news,
            phase=self.phase,
            attempt=1,
            step=self.step,
            max_steps=total,
            progress=share,
            loss=loss,
            val_loss=loss,
            step_ms=1000 * self.step_s,
            elapsed_s=now - START,
            budgets=(BudgetView("wall_hours", "wall hours", hours, 30.0, at_completion=at_end),),
            bricks=(BrickView("data", self.rng.uniform(1, 9), 10.0),),
            checkpoint=CheckpointView(
                last_step=self.saved[0] or None,
                last_wall=self.saved[1] if self.saved[0] else None,
                in_flight=self.phase == "checkpointing",
            ),
            trainer_pid=1000 + self.number,
            guard_pid=7,
            guard=guard,
            rules_watching=4,
            diagnostics=diagnostics,
        )


def gpus_at(rng: random.Random, load: float) -> tuple[GpuSample, ...]:
    """Eight GPUs of one run that fluctuate together, at their power cap as they are meant to be."""
    mine = (GpuProcess(1000),)
    return tuple(
        GpuSample(
            index=index,
            util_percent=min(100.0, max(0.0, load + rng.gauss(0, 3))),
            temperature_c=70 + rng.uniform(-8, 10),
            power_w=690 + rng.uniform(-60, 10),
            power_limit_w=700,
            throttle_reasons=("power cap",) if rng.random() < 0.3 else (),
            processes=mine,
        )
        for index in range(8)
    )


def replayed(hours: float) -> Iterator[tuple[float, AttentionItem]]:
    """Every entry that the replay shows, with its second."""
    rng = random.Random(27)
    runs = [HealthyRun(number, random.Random(number)) for number in range(RUNS)]
    watch, load = MachineWatch(), 90.0
    watch._processes = lambda pid, now: frozenset({pid or 0})  # type: ignore[method-assign]
    now = START
    while now < START + hours * 3600:
        readings = []
        for second in range(int(LOOK_S)):
            load = min(99.0, max(60.0, load + rng.gauss(0, 4)))
            readings.append(Reading(now + second, gpus_at(rng, load)))
        now += LOOK_S
        for run in runs:
            run.go_on(now)
        views = [run.view(now) for run in runs]
        room = HostSample(
            memory_available_bytes=int(rng.uniform(20, 90) * GIB),
            memory_total_bytes=128 * GIB,
            disk_free_bytes=int(rng.uniform(60, 400) * GIB),
        )
        watch.take(readings, room)
        found = attention(views, watch.look(views, now), AttentionMarks(), now=now)
        yield from ((now - START, item) for item in found.items)
        assert len(found.fine) == RUNS or found.items


def test_twenty_healthy_runs_give_no_entry_in_half_an_hour() -> None:
    assert [*replayed(0.5)] == []


@pytest.mark.slow
def test_twenty_healthy_runs_give_no_entry_in_eight_hours() -> None:
    assert [*replayed(HOURS)] == []


def test_the_replay_would_show_a_run_that_stops_stepping() -> None:
    run = HealthyRun(5, random.Random(5))
    run.go_on(START + 600)
    while run.phase != "training":
        run.go_on(run.until)
    silent = run.view(run.news + 120)
    stalled = run.view(run.news + 700)
    words = [
        item.word
        for view in (silent, stalled)
        for item in attention(
            [replace(view, diagnostics=RunDiagnostics())],
            MachineWatch().look([], START),
            AttentionMarks(),
            now=START,
        ).items
    ]
    assert words == ["silent", "hung"]
