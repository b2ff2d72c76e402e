"""Measured samples of GPUs and hosts, as values. Unknown is None, never 0."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

from albor_core.run.light_dataclass import dataclass
from albor_core.run.values.lenient import finite_of, text_of


@dataclass(frozen=True)
class GpuProcess:
    """A process that holds memory of a GPU."""

    pid: int
    name: str | None = None
    memory_bytes: int | None = None


@dataclass(frozen=True)
class GpuSample:
    """One GPU at one moment. `throttle_reasons` are words; empty means none or not reported.

    `temperature_limit_c` is where the card slows itself down. `energy_j` counts since the driver
    was loaded, `ecc_uncorrected` since it was reset; `xid` is the last error number that the driver
    reported since the subscription began.
    """

    index: int
    uuid: str | None = None
    name: str | None = None
    util_percent: float | None = None
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    temperature_c: float | None = None
    temperature_limit_c: float | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    energy_j: float | None = None
    ecc_uncorrected: int | None = None
    xid: int | None = None
    throttle_reasons: tuple[str, ...] = ()
    processes: tuple[GpuProcess, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class HostSample:
    """The machine and this process at one moment; sizes in bytes, percent of all cores."""

    cpu_percent: float | None = None
    rss_bytes: int | None = None
    memory_available_bytes: int | None = None
    memory_total_bytes: int | None = None
    disk_free_bytes: int | None = None
    load1: float | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


_GPU_NUMBERS = frozenset(field.name for field in fields(GpuSample)) - {
    *("index", "uuid", "name", "throttle_reasons", "processes")
}


def gpu_from_json(data: Mapping[str, Any], index: int = 0) -> GpuSample:
    """A sample from a state file or a fake. Never raises: a value of a wrong type is unknown."""
    numbers = {name: _known(value) for name, value in data.items() if name in _GPU_NUMBERS}
    reasons, processes = data.get("throttle_reasons"), data.get("processes")
    return GpuSample(
        index=int(_known(data.get("index")) or index),
        uuid=text_of(data.get("uuid")),
        name=text_of(data.get("name")),
        throttle_reasons=tuple(str(r) for r in reasons) if isinstance(reasons, list) else (),
        processes=tuple(
            GpuProcess(int(p["pid"]), text_of(p.get("name")), _known(p.get("memory_bytes")))
            for p in (processes if isinstance(processes, list) else [])
            if isinstance(p, dict) and isinstance(p.get("pid"), int)
        ),
        **numbers,
    )


def host_from_json(data: Mapping[str, Any]) -> HostSample:
    """A sample from a state file. Never raises: a value of a wrong type is unknown."""
    return HostSample(**{field.name: _known(data.get(field.name)) for field in fields(HostSample)})


def _known(value: Any) -> Any:
    """A number with its type kept, so that byte counts stay integers; None for anything else."""
    return value if finite_of(value) is not None else None
