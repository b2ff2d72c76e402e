"""Samples GPUs by NVML at any moment, without ever raising.

NVML answers per field, and old cards, MIG slices and containers refuse some: a refused field is
None. A machine without a driver has no GPUs, and `why_none` says why. `ALBOR_FAKE_NVML=FILE` reads
the samples from a JSON file instead ({"gpus": [{"name": ..., "util_percent": ...}], "why_none":
""}), so that demos and tests need no GPU.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from albor_core.telemetry.sample import GpuProcess, GpuSample, gpu_from_json

RETRY_S = 60.0  # a driver may be loaded while we run; looking costs an attempted dlopen
PROCESSES_S = 2.0  # the process list is the dear call, and changes seldom
_MOST_XIDS = 100  # of one look
_UNCORRECTED, _SINCE_LOADED = 1, 0  # NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_VOLATILE_ECC
_REASONS = {  # bits of nvmlClocksEventReasons; idle and user-set clocks are not throttling
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x20: "thermal (software)",
    0x40: "thermal (hardware)",
    0x80: "power brake",
    0x200: "board limit",
    0x400: "reliability",
}


class Gpus:
    """The GPUs of this machine. Opens NVML at the first sample; used by one thread. With
    `hears_xids` errors that the driver reports from then on are part of the samples.
    """

    def __init__(self, *, hears_xids: bool = False) -> None:
        self.why_none = "not looked yet"
        self._hears_xids = hears_xids
        self._xid_events: Any = None
        self._xids: dict[int, int] = {}
        self._limits: list[float | None] = []
        self._nvml: Any = None
        self._handles: list[Any] = []
        self._names: list[tuple[str | None, str | None]] = []
        self._next_try = 0.0
        self._processes: dict[int, tuple[float, tuple[GpuProcess, ...]]] = {}

    def sample(self) -> tuple[GpuSample, ...]:
        """One sample per GPU, in NVML's order; empty without NVML or GPU. Never raises."""
        fake = os.environ.get("ALBOR_FAKE_NVML")
        if fake:
            return self._fake(Path(fake))
        if self._nvml is None and not self._open():
            return ()
        try:
            self._hear_xids()
            return tuple(self._one(index) for index in range(len(self._handles)))
        except self._nvml.NVMLError as error:  # the driver went away: look again later
            self.why_none = f"NVML: {error}"
            self.close()
            self._next_try = time.monotonic() + RETRY_S
            return ()

    def capability(self, index: int) -> tuple[int, int] | None:
        """Compute capability (major, minor) of a GPU that `sample` found; None if unknown. A fake
        has it as "capability": [9, 0].
        """
        fake = os.environ.get("ALBOR_FAKE_NVML")
        if fake:
            told = _fake_entries(_document(Path(fake)))[index].get("capability")
        elif self._nvml is None:
            return None
        else:
            ask = self._nvml.nvmlDeviceGetCudaComputeCapability
            told = self._ask(ask, self._handles[index])
        return None if told is None else (int(told[0]), int(told[1]))

    def close(self) -> None:
        """Close NVML; a later sample opens it again."""
        nvml, self._nvml, self._handles = self._nvml, None, []
        self._processes.clear()
        self._xid_events = None
        if nvml is not None:
            _quietly(nvml, nvml.nvmlShutdown)

    def _open(self) -> bool:
        if time.monotonic() < self._next_try:
            return False
        self._next_try = time.monotonic() + RETRY_S
        try:
            import pynvml  # noqa: PLC0415  0.02 s and a dlopen, only in a process that samples
        except ImportError:
            self.why_none = "the Python module pynvml is not installed"
            return False
        try:
            pynvml.nvmlInit()
            count = pynvml.nvmlDeviceGetCount()
            handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(count)]
        except pynvml.NVMLError as error:
            self.why_none = f"no NVIDIA driver answers ({error})"
            return False
        if not handles:
            self.why_none = "the NVIDIA driver reports no GPU"
            return False
        self._nvml, self._handles, self.why_none = pynvml, handles, ""
        self._names = [
            (
                _text(self._ask(pynvml.nvmlDeviceGetName, h)),
                _text(self._ask(pynvml.nvmlDeviceGetUUID, h)),
            )
            for h in handles
        ]
        self._limits = [_float(self._limit(handle)) for handle in handles]
        if self._hears_xids:
            self._listen()
        return True

    def _limit(self, handle: Any) -> Any:
        """The temperature in degrees C at which the card slows itself down."""
        kind = getattr(self._nvml, "NVML_TEMPERATURE_THRESHOLD_SLOWDOWN", 1)
        return self._ask_newer("nvmlDeviceGetTemperatureThreshold", handle, kind)

    def _listen(self) -> None:
        """Subscribe to driver errors (Xid) of the GPUs whose driver reports them."""
        self._xid_events = self._ask_newer("nvmlEventSetCreate")
        kind = getattr(self._nvml, "nvmlEventTypeXidCriticalError", 8)
        for handle in self._handles if self._xid_events is not None else ():
            self._ask_newer("nvmlDeviceRegisterEvents", handle, kind, self._xid_events)

    def _hear_xids(self) -> None:
        """Record errors that the driver reported since the last sample, without waiting for new
        ones."""
        for _ in range(_MOST_XIDS if self._xid_events is not None else 0):
            event = self._ask_newer("nvmlEventSetWait_v2", self._xid_events, 0)
            if event is None:  # a time-out: nothing has happened
                return
            index = self._ask_newer("nvmlDeviceGetIndex", event.device)
            if index is not None:
                self._xids[int(index)] = int(event.eventData)

    def _ask_newer(self, name: str, *arguments: Any) -> Any:
        """The answer of an NVML function that an older library may lack."""
        function = getattr(self._nvml, name, None)
        return None if function is None else self._ask(function, *arguments)

    def _ask(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """The answer of an NVML function, or None if this GPU does not support it. Raises only if
        the driver is gone."""
        gone = (self._nvml.NVML_ERROR_UNINITIALIZED, self._nvml.NVML_ERROR_DRIVER_NOT_LOADED)
        try:
            return function(*arguments)
        except self._nvml.NVMLError as error:
            if error.value in gone:
                raise
            return None
        except (AttributeError, TypeError, ValueError):  # the library's own trouble with an answer
            return None

    def _one(self, index: int) -> GpuSample:
        nvml, handle = self._nvml, self._handles[index]
        name, uuid = self._names[index]
        memory = self._ask(nvml.nvmlDeviceGetMemoryInfo, handle)
        rates = self._ask(nvml.nvmlDeviceGetUtilizationRates, handle)
        milliwatts = self._ask(nvml.nvmlDeviceGetPowerUsage, handle)
        limit = self._ask(nvml.nvmlDeviceGetEnforcedPowerLimit, handle)
        millijoules = self._ask_newer("nvmlDeviceGetTotalEnergyConsumption", handle)
        bits = self._ask(nvml.nvmlDeviceGetCurrentClocksEventReasons, handle)
        return GpuSample(
            index=index,
            uuid=uuid,
            name=name,
            util_percent=None if rates is None else float(rates.gpu),
            memory_used_bytes=None if memory is None else int(memory.used),
            memory_total_bytes=None if memory is None else int(memory.total),
            temperature_c=_float(
                self._ask(nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU)
            ),
            temperature_limit_c=self._limits[index],
            power_w=None if milliwatts is None else milliwatts / 1000,
            power_limit_w=None if limit is None else limit / 1000,
            sm_clock_mhz=self._ask(nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_SM),
            memory_clock_mhz=self._ask(nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_MEM),
            energy_j=None if millijoules is None else millijoules / 1000,
            ecc_uncorrected=self._ask_newer(
                "nvmlDeviceGetTotalEccErrors", handle, _UNCORRECTED, _SINCE_LOADED
            ),
            xid=self._xids.get(index),
            throttle_reasons=throttle_words(bits),
            processes=self._running(index),
        )

    def _running(self, index: int) -> tuple[GpuProcess, ...]:
        when, known = self._processes.get(index, (-PROCESSES_S, ()))
        now = time.monotonic()
        if now - when < PROCESSES_S:
            return known
        found = self._ask(self._nvml.nvmlDeviceGetComputeRunningProcesses, self._handles[index])
        known = tuple(
            GpuProcess(int(p.pid), _process_name(int(p.pid)), _known_bytes(p.usedGpuMemory))
            for p in found or ()
        )
        self._processes[index] = (now, known)
        return known

    def _fake(self, path: Path) -> tuple[GpuSample, ...]:
        try:
            document = _document(path)
        except (OSError, ValueError) as error:
            self.why_none = f"ALBOR_FAKE_NVML: {error}"
            return ()
        gpus = _fake_entries(document)
        why = document.get("why_none") if isinstance(document, dict) else None
        self.why_none = "" if gpus else str(why or "the fake lists no GPU")
        return tuple(gpu_from_json(entry, index) for index, entry in enumerate(gpus))


def _document(path: Path) -> Any:
    return json.loads(path.read_bytes())


def _fake_entries(document: Any) -> list[dict[str, Any]]:
    entries = document.get("gpus") if isinstance(document, dict) else document
    return [e for e in entries if isinstance(e, dict)] if isinstance(entries, list) else []


def throttle_words(bits: int | None) -> tuple[str, ...]:
    """The reasons that slow a GPU down, as words, from NVML's bit mask."""
    return tuple(word for bit, word in _REASONS.items() if bits is not None and bits & bit)


def _quietly(nvml: Any, function: Callable[[], Any]) -> None:
    try:
        function()
    except nvml.NVMLError:
        return  # already gone, which is what we wanted


def _process_name(pid: int) -> str | None:
    try:
        return Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()
    except OSError:  # ended just now, or of another pid namespace
        return None


def _known_bytes(value: Any) -> int | None:
    """A byte count; None for NVML's two values for "not available", None and all ones."""
    return None if value is None or value >= 2**63 else int(value)


def _text(value: Any) -> str | None:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _float(value: Any) -> float | None:
    return None if value is None else float(value)
