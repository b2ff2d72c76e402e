"""Whoever asks for the GPUs reads the ring while it is fresh, and the driver otherwise."""

from __future__ import annotations

import json
import time

import pytest

from albor_core.run.liveness import boot_id
from albor_core.telemetry.machine_ring import MachineSample, Ring, ring_path
from albor_core.telemetry.sample import GpuSample
from albor_core.telemetry.shared_gpus import SharedGpus


@pytest.fixture
def driver(tmp_path, monkeypatch):
    """A driver that knows one GPU at 7 %."""
    fake = tmp_path / "gpus.json"
    fake.write_text(json.dumps({"gpus": [{"util_percent": 7.0}]}))
    monkeypatch.setenv("ALBOR_FAKE_NVML", str(fake))


def sampled(age_s, *gpus, why=""):
    ring_path().parent.mkdir(parents=True, exist_ok=True)
    now = time.time() - age_s, time.monotonic() - age_s
    Ring(ring_path()).append(MachineSample(*now, "h", boot_id(), gpus, why_no_gpus=why))


def test_a_fresh_ring_is_what_there_is(driver):
    sampled(0.0, GpuSample(0, util_percent=93.0))
    assert [gpu.util_percent for gpu in SharedGpus().sample()] == [93.0]


@pytest.mark.parametrize("age_s", [None, 60.0])
def test_where_nobody_samples_the_driver_is_asked(driver, age_s):
    if age_s is not None:
        sampled(age_s, GpuSample(0, util_percent=93.0))
    assert [gpu.util_percent for gpu in SharedGpus().sample()] == [7.0]


def test_a_ring_without_gpus_says_why(driver):
    sampled(0.0, why="no NVIDIA driver answers")
    gpus = SharedGpus()
    assert gpus.sample() == ()
    assert gpus.why_none == "no NVIDIA driver answers"
