"""The rates of log lines are true whatever held the host up: a device with a clock of its own."""

from __future__ import annotations

import time
from dataclasses import dataclass

import pytest
import torch
from tiny_run import history, make_run, train_here

from albor_core.train import interval_log, loop
from albor_core.train.parity_watch import ParityWatch
from albor_core.train.step import brick_timer, optimizer_step, pending_figures
from albor_core.train.step.brick_timer import StepClock

STEP_S, PAUSE_S = 0.5, 20.0


@dataclass
class Event:
    """As torch.cuda's."""

    at: float

    def elapsed_time(self, later):
        return 1000 * (later.at - self.at)


class Device:
    """Computes each step in STEP_S, one behind the other, while the host goes on at once."""

    def __init__(self):
        self.now = self.done = 0.0

    def perf_counter(self):
        return self.now

    def launch(self):
        self.done = max(self.done, self.now) + STEP_S

    def wait(self, until=None):
        self.now = max(self.now, self.done if until is None else until)

    def hold_up(self, seconds):
        self.now += seconds


@pytest.fixture
def device(monkeypatch):
    """What a GPU does, on a CPU: steps are launched, and waited for where something is read."""
    here = Device()
    take_step = optimizer_step.take_step

    def launched(*args, **options):
        here.launch()
        return take_step(*args, **options)

    class Figures(pending_figures.PendingFigures):
        def __init__(self, *args):
            super().__init__(*args)
            self.until = here.done

        def read(self):
            here.wait(self.until)
            return super().read()

    monkeypatch.setattr(brick_timer, "time", here)
    monkeypatch.setattr(StepClock, "settle", lambda clock: here.wait())
    monkeypatch.setattr(StepClock, "_recorded", lambda clock: Event(max(here.done, here.now)))
    monkeypatch.setattr(loop, "take_step", launched)
    monkeypatch.setattr(interval_log, "PendingFigures", Figures)
    monkeypatch.setattr(loop.Training, "reads_late", True)
    return here


def rates(run):
    """perf/step_ms and perf/samples_per_s by step."""
    keys = ("perf/step_ms", "perf/samples_per_s")
    said = history(run, keys)
    return [{step: value for step, key, value in said if key == wanted} for wanted in keys]


def held_up(monkeypatch, device, owner, name, *, when=lambda *_: True):
    """`owner.name` takes the host PAUSE_S."""
    usual = getattr(owner, name)

    def slow(*args, **options):
        if when(*args):
            device.hold_up(PAUSE_S)
        return usual(*args, **options)

    monkeypatch.setattr(owner, name, slow)


def pauses(monkeypatch, device, what):
    """`what` takes the host PAUSE_S; "none": nothing does."""
    if what == "parity":
        monkeypatch.setattr(ParityWatch, "is_due", lambda checks, step: step in (7, 11))
        monkeypatch.setattr(ParityWatch, "_compare", lambda *_: device.hold_up(PAUSE_S))
    elif what != "none":
        owner, name = (loop.gc, "collect") if what == "gc" else (loop, what)
        held_up(monkeypatch, device, owner, name)


@pytest.mark.parametrize("interval", [1, 3])
@pytest.mark.parametrize("pause", ["parity", "validation", "take_snapshot", "gc"])
def test_a_pause_of_the_host_changes_no_rate(tmp_path, monkeypatch, device, pause, interval):
    pauses(monkeypatch, device, pause)
    run = make_run(
        tmp_path,
        training__log_interval=interval,
        training__eval_interval=7,
        training__checkpoint={"save_every": 11},
    )
    train_here(run)
    step_ms, per_s = rates(run)
    assert set(step_ms) == set(range(interval, 25, interval))
    assert [*step_ms.values()] == pytest.approx([1000 * STEP_S] * len(step_ms))
    assert [*per_s.values()] == pytest.approx([4 / STEP_S] * len(step_ms))


@pytest.mark.parametrize("pause", ["none", "parity", "gc"])
def test_a_host_that_takes_long_to_launch_moves_no_time_to_another_step(
    tmp_path, monkeypatch, device, pause
):
    """The device works meanwhile, and what it has done is read when the host comes to it."""
    launch = Device.launch

    def launched(self):
        launch(self)
        self.hold_up(0.3 * STEP_S if int(self.done / STEP_S) % 3 else 0.9 * STEP_S)

    monkeypatch.setattr(Device, "launch", launched)
    pauses(monkeypatch, device, pause)
    run = make_run(tmp_path, training__log_interval=1)
    train_here(run)
    step_ms, _ = rates(run)
    assert [*step_ms.values()] == pytest.approx([1000 * STEP_S] * 24)


def test_a_slow_step_is_still_said(tmp_path, monkeypatch, device):
    """Only pauses are left out: a host that is late by itself is part of the step."""
    held_up(monkeypatch, device, loop, "take_step", when=lambda *_: device.done == 9 * STEP_S)
    seldom = {"training__eval_interval": 100, "training__checkpoint": {"save_every": 100}}
    run = make_run(tmp_path, **seldom)
    train_here(run)
    step_ms, _ = rates(run)
    assert max(step_ms.values()) == pytest.approx(1000 * PAUSE_S)
    # the device was at the step before meanwhile
    assert sum(step_ms.values()) == pytest.approx(1000 * (23 * STEP_S + PAUSE_S))


def test_a_pause_begins_when_the_device_has_done_what_was_asked(monkeypatch, device):
    clock = StepClock(torch.device("cpu"))
    for _ in range(3):
        device.launch()
    with clock.held():
        device.launch()  # an evaluation, say
        device.hold_up(0.1)
    assert clock.lap(clock.mark()) == 3 * STEP_S
    assert clock.lap(clock.mark()) == 0.0  # what the pause asked for is done with it


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device")
def test_a_gpu_that_is_steps_behind_its_host_has_true_rates_round_a_pause(tmp_path, monkeypatch):
    """Each step keeps the device busy for a known time, and the host is soon ahead of it."""
    cycles, began, ended = 100_000_000, *(torch.cuda.Event(enable_timing=True) for _ in range(2))
    began.record()
    torch.cuda._sleep(cycles)
    ended.record()
    torch.cuda.synchronize()
    least_ms, take_step = began.elapsed_time(ended), optimizer_step.take_step

    def launched(*args, **options):
        torch.cuda._sleep(cycles)
        return take_step(*args, **options)

    monkeypatch.setattr(loop, "take_step", launched)
    monkeypatch.setattr(ParityWatch, "is_due", lambda checks, step: step in (8, 14))
    monkeypatch.setattr(ParityWatch, "_compare", lambda *_: time.sleep(2.0))
    run = make_run(
        tmp_path,
        training__device="cuda",
        training__compile=False,
        training__log_interval=3,
        training__eval_interval=7,
        training__checkpoint={"save_every": 11},
    )
    train_here(run)
    step_ms, _ = rates(run)
    assert min(step_ms.values()) > 0.8 * least_ms  # clocks of a GPU change
    assert max(ms for step, ms in step_ms.items() if step > 3) < 2 * least_ms + 300
