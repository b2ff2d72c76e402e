"""One process samples a host for all; another follows when it is killed."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest

from albor_core.run.liveness import lock_holder
from albor_core.telemetry.machine_ring import machine_lock, newest_sample, ring_path

SAMPLER = """
import sys
from albor_core.telemetry.machine_sampler import MachineSampler
MachineSampler().start()
sys.stdin.read()
"""
TAKEOVER_S = 5.0


@pytest.fixture
def samplers(albor_home):
    started = [
        subprocess.Popen([sys.executable, "-c", SAMPLER], stdin=subprocess.PIPE) for _ in range(3)
    ]
    yield {process.pid: process for process in started}
    for process in started:
        process.kill()
        process.wait()
        process.stdin.close()


def holder_after(old, limit_s):
    """Who holds the lock and has sampled, once that is another than `old`."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        pid, sample = lock_holder(machine_lock()), newest_sample()
        if pid not in (None, old) and sample is not None:
            return pid
        time.sleep(0.05)
    return None


def test_another_samples_the_host_within_five_seconds_of_a_kill(samplers):
    first = holder_after(None, 30.0)  # three programs start
    assert first in samplers
    samplers[first].send_signal(signal.SIGKILL)
    samplers[first].wait()
    ring_path().unlink()  # so that what is read is its successor's
    second = holder_after(first, TAKEOVER_S)
    assert second in samplers
    assert second != first
