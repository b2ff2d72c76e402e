from __future__ import annotations

import json
import types

import pytest

from albor_core.telemetry.gpu import Gpus, throttle_words
from albor_core.telemetry.sample import GpuProcess, gpu_from_json


class FakeError(Exception):
    def __init__(self, value):
        super().__init__(f"error {value}")
        self.value = value


def fake_nvml(**answers):
    """A stand-in for pynvml: every query answers from `answers` or refuses with NotSupported."""

    def query(name):
        def ask(*_arguments):
            answer = answers.get(name, FakeError(3))
            if isinstance(answer, Exception):
                raise answer
            return answer

        return ask

    names = (
        "Name UUID MemoryInfo UtilizationRates PowerUsage EnforcedPowerLimit Temperature ClockInfo "
        "CurrentClocksEventReasons ComputeRunningProcesses TemperatureThreshold TotalEccErrors "
        "TotalEnergyConsumption CudaComputeCapability"
    )
    module = types.SimpleNamespace(
        NVMLError=FakeError,
        NVML_ERROR_UNINITIALIZED=1,
        NVML_ERROR_DRIVER_NOT_LOADED=9,
        NVML_TEMPERATURE_GPU=0,
        NVML_CLOCK_SM=1,
        NVML_CLOCK_MEM=2,
        nvmlInit=lambda: None,
        nvmlShutdown=lambda: None,
        nvmlDeviceGetCount=lambda: 1,
        nvmlDeviceGetHandleByIndex=lambda index: index,
    )
    for name in names.split():
        setattr(module, f"nvmlDeviceGet{name}", query(name))
    return module


@pytest.fixture
def nvml(monkeypatch):
    monkeypatch.delenv("ALBOR_FAKE_NVML", raising=False)

    def install(**answers):
        module = fake_nvml(**answers)
        monkeypatch.setitem(__import__("sys").modules, "pynvml", module)
        return module

    return install


@pytest.mark.parametrize(
    ("answers", "told"), [({"CudaComputeCapability": (8, 7)}, (8, 7)), ({}, None)]
)
def test_a_gpus_compute_capability_is_the_drivers_word(nvml, answers, told):
    nvml(**answers)
    gpus = Gpus()
    assert gpus.capability(0) is None  # not looked yet
    assert len(gpus.sample()) == 1
    assert gpus.capability(0) == told


def test_a_machine_without_a_driver_has_no_gpus_and_says_why(nvml):
    module = nvml()

    def no_driver():
        raise FakeError(12)

    module.nvmlInit = no_driver
    gpus = Gpus()
    assert gpus.sample() == ()
    assert "no NVIDIA driver answers" in gpus.why_none


def test_a_refused_field_is_unknown_and_never_zero(nvml):
    nvml(Name=b"Tesla T4", PowerUsage=70_500)
    (gpu,) = Gpus().sample()
    assert (gpu.name, gpu.power_w) == ("Tesla T4", 70.5)
    assert (gpu.util_percent, gpu.memory_used_bytes, gpu.temperature_c) == (None, None, None)
    assert (gpu.throttle_reasons, gpu.processes) == ((), ())


def test_a_driver_that_goes_away_means_no_gpus_and_a_reason(nvml):
    module = nvml(Name="X")
    gpus = Gpus()
    assert len(gpus.sample()) == 1

    def gone(*_arguments):
        raise FakeError(1)

    module.nvmlDeviceGetMemoryInfo = gone
    assert gpus.sample() == ()
    assert gpus.why_none


def test_processes_carry_name_and_memory(nvml):
    import os

    entry = types.SimpleNamespace(pid=os.getpid(), usedGpuMemory=2**64 - 1)
    nvml(ComputeRunningProcesses=[entry])
    (gpu,) = Gpus().sample()
    assert gpu.processes[0].pid == os.getpid()
    assert gpu.processes[0].name
    assert gpu.processes[0].memory_bytes is None


def test_throttling_is_said_in_words():
    assert throttle_words(0x4 | 0x40) == ("power cap", "thermal (hardware)")
    assert throttle_words(0x1) == ()  # idle is not throttling
    assert throttle_words(None) == ()


def test_the_fake_gives_gpus_for_demos(tmp_path, monkeypatch):
    path = tmp_path / "gpus.json"
    process = {"pid": 7, "name": "python", "memory_bytes": 5}
    entry = {"name": "NVIDIA H100", "util_percent": 97, "power_w": "hot", "processes": [process]}
    path.write_text(json.dumps({"gpus": [entry, {}]}))
    monkeypatch.setenv("ALBOR_FAKE_NVML", str(path))
    first, second = Gpus().sample()
    assert (first.util_percent, first.power_w, second.index) == (97, None, 1)
    assert first.processes == (GpuProcess(7, "python", 5),)
    assert gpu_from_json(json.loads(json.dumps(first.to_json()))) == first


def test_a_broken_fake_is_no_gpu_with_a_reason(tmp_path, monkeypatch):
    monkeypatch.setenv("ALBOR_FAKE_NVML", str(tmp_path / "missing.json"))
    gpus = Gpus()
    assert gpus.sample() == ()
    assert "missing.json" in gpus.why_none


def test_energy_memory_errors_and_the_slowdown_limit_are_read(nvml):
    nvml(TotalEnergyConsumption=5_000, TotalEccErrors=2, TemperatureThreshold=92)
    (gpu,) = Gpus().sample()
    assert (gpu.energy_j, gpu.ecc_uncorrected, gpu.temperature_limit_c) == (5.0, 2, 92.0)


def test_an_error_that_the_driver_reports_is_part_of_the_samples_from_then_on(nvml):
    module, reported = nvml(), []

    def wait(_events, milliseconds):
        assert milliseconds == 0  # a sample waits for nothing
        if not reported:
            raise FakeError(10)
        return reported.pop()

    module.nvmlEventSetCreate = lambda: "events"
    module.nvmlDeviceRegisterEvents = lambda *_: None
    module.nvmlEventSetWait_v2 = wait
    module.nvmlDeviceGetIndex = lambda handle: handle
    gpus = Gpus(hears_xids=True)
    assert gpus.sample()[0].xid is None
    reported.append(types.SimpleNamespace(device=0, eventData=79))
    assert [gpus.sample()[0].xid for _ in range(2)] == [79, 79]


def test_a_driver_without_events_costs_the_errors_alone(nvml):
    nvml(UtilizationRates=types.SimpleNamespace(gpu=50, memory=0))
    (gpu,) = Gpus(hears_xids=True).sample()
    assert (gpu.util_percent, gpu.xid) == (50.0, None)
