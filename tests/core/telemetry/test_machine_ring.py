"""The ring of the machine's last samples: bounded, read without locks, never trusted."""

from __future__ import annotations

import os
import time
from dataclasses import replace

import pytest

from albor_core.run.liveness import boot_id
from albor_core.telemetry import machine_ring
from albor_core.telemetry.machine_ring import (
    SLOT_BYTES,
    SLOTS,
    MachineSample,
    Ring,
    newest_sample,
    read_ring,
    ring_path,
)
from albor_core.telemetry.sample import GpuProcess, GpuSample, HostSample


def sample(age_s=0.0, **fields):
    gpu = GpuSample(
        0, "GPU-1", "H100", 97.0, power_w=300.0, energy_j=1e9, ecc_uncorrected=0, xid=79,
        throttle_reasons=("power cap",), processes=(GpuProcess(7, "python", 1 << 30),),
    )  # fmt: skip
    made = MachineSample(
        time.time() - age_s, time.monotonic() - age_s, "h", boot_id(), (gpu,),
        HostSample(cpu_percent=12.0),
    )  # fmt: skip
    return replace(made, **fields)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "machine-h.ring"


def test_what_was_written_is_read_back_oldest_first(path):
    ring = Ring(path)
    samples = [sample(age) for age in (500.0, 300.0, 0.0)]
    assert all(map(ring.append, samples))
    assert read_ring(path, 900.0) == samples
    assert read_ring(path, 200.0) == samples[-1:]
    assert newest_sample(path, max_age_s=200.0) == samples[-1]


def test_a_writer_goes_on_after_the_one_that_died(path):
    Ring(path).append(sample(2.0))
    Ring(path).append(sample(1.0))
    assert len(read_ring(path, 60.0)) == 2


def test_a_ring_that_was_removed_is_made_again_by_its_writer(path):
    ring = Ring(path)
    ring.append(sample(3.0))
    path.unlink()
    assert ring.append(sample(2.0))
    path.rename(path.with_name("kept"))
    assert ring.append(sample(1.0))
    assert len(read_ring(path, 60.0)) == 1


def test_the_ring_is_bounded_and_keeps_the_newest(path, monkeypatch):
    monkeypatch.setattr(machine_ring, "SLOTS", 5)
    ring = Ring(path)
    made = [sample(20.0 - n) for n in range(12)]
    for one in made:
        ring.append(one)
    assert read_ring(path, 60.0) == made[-5:]
    assert path.stat().st_size <= machine_ring._HEAD_BYTES + 5 * SLOT_BYTES


def test_a_stale_ring_says_nothing_of_now(path):
    Ring(path).append(sample(30.0))
    assert newest_sample(path) is None
    assert read_ring(path, 10.0) == []


def test_a_sample_of_another_boot_is_as_old_as_its_wall_clock_says(path):
    ring = Ring(path)
    ring.append(sample(0.0, boot_id="before", wall=time.time() - 9000))
    assert read_ring(path, 60.0) == []


@pytest.mark.parametrize("harm", ["head", "slot", "cut", "text", "empty", "fifo", "link", "none"])
def test_a_damaged_ring_costs_at_most_what_was_damaged(path, harm):
    ring = Ring(path)
    for age in (3.0, 2.0, 1.0):
        ring.append(sample(age))
    raw = path.read_bytes()
    left = {"head": 3, "slot": 2, "cut": 2}.get(harm, 0)
    if harm == "head":
        path.write_bytes(b"x" * 64 + raw[64:])
    elif harm == "slot":
        at = machine_ring._place(2) + 40
        path.write_bytes(raw[:at] + b"\xff\xff" + raw[at + 2 :])
    elif harm == "cut":
        path.write_bytes(raw[: machine_ring._place(3) + 20])
    elif harm == "text":
        path.write_bytes(b"not a ring\n" * 100)
    elif harm == "empty":
        path.write_bytes(b"")
    else:
        path.unlink()
        if harm == "fifo":
            os.mkfifo(path)
        elif harm == "link":
            path.symlink_to("/dev/zero")
    assert len(read_ring(path, 60.0)) == left


def test_a_writer_on_a_damaged_ring_is_read_again(path):
    path.write_bytes(os.urandom(SLOTS * 100))
    Ring(path).append(sample())
    assert len(read_ring(path, 60.0)) == 1


def test_more_processes_than_fit_leave_the_figures_whole(path):
    crowd = tuple(GpuProcess(n, "python" * 10, n) for n in range(500))
    gpus = tuple(replace(sample().gpus[0], index=n, processes=crowd) for n in range(8))
    ring = Ring(path)
    assert ring.append(sample(gpus=gpus))
    (found,) = read_ring(path, 60.0)
    assert [gpu.util_percent for gpu in found.gpus] == [97.0] * 8


def test_a_disk_that_takes_nothing_is_counted_and_raises_nothing(path, monkeypatch):
    ring = Ring(path)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(machine_ring.os, "pwrite", full)
    assert not ring.append(sample())
    assert ring.lost == 1


def test_hosts_of_one_home_have_a_ring_each():
    assert ring_path("a") != ring_path("b")
    assert ring_path("../x").parent == ring_path("a").parent
