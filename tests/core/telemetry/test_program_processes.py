"""What a program takes, by its own processes and no other."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from albor_core.telemetry.program_processes import ProgramProcesses
from albor_core.telemetry.sample import GpuProcess, GpuSample

# a parent with a child that works; both say so and wait
PROGRAM = """
import subprocess, sys, time
CHILD = "import sys; x = bytearray(20 << 20); print(len(x), flush=True); sys.stdin.read()"
PIPES = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
child = subprocess.Popen([sys.executable, "-c", CHILD], **PIPES)
child.stdout.readline()
print(child.pid, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def program():
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        yield process, int(process.stdout.readline())
        process.stdin.close()


def test_a_program_is_its_first_process_and_all_below_it(program):
    process, child = program
    found = ProgramProcesses().sample(process.pid)
    assert found.processes == 2
    assert found.threads >= 2
    assert found.rss_bytes > 20 << 20
    assert found.cpu_percent is None  # there is nothing to compare with yet
    assert ProgramProcesses().sample(child).processes == 1


def test_what_is_spared_is_not_the_programs(program):
    process, child = program
    assert ProgramProcesses(spared=(child,)).sample(process.pid).processes == 1


@pytest.mark.slow
def test_processor_time_is_that_between_two_looks():
    own = ProgramProcesses()
    own.sample(os.getpid())
    begun = os.times()
    while os.times().user - begun.user < 0.1:
        pass
    assert own.sample(os.getpid()).cpu_percent > 0


def test_a_program_that_has_ended_has_no_sample():
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    assert ProgramProcesses().sample(process.pid) is None


def test_its_gpus_are_those_that_its_processes_use(program):
    process, child = program
    gpus = [
        GpuSample(0, processes=(GpuProcess(os.getpid(), memory_bytes=1),)),
        GpuSample(1, processes=(GpuProcess(child, memory_bytes=5 << 30),)),
    ]
    found = ProgramProcesses().sample(process.pid, gpus)
    assert (found.gpus, found.gpu_memory_bytes) == ((1,), 5 << 30)


def test_gpus_whose_processes_nobody_here_can_see_may_be_its_own(program):
    process, _ = program
    strangers = [GpuSample(0, processes=(GpuProcess(2**22 + 5),))]
    assert ProgramProcesses().sample(process.pid, strangers).gpus is None
