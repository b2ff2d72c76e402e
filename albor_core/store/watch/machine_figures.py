"""The machine and the program as rules read them, and as series are kept. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from albor_core.telemetry.machine_ring import MachineSample
from albor_core.telemetry.program_processes import ProgramSample
from albor_core.telemetry.sample import GpuSample, HostSample


def own_gpus(
    samples: Iterable[MachineSample], program: ProgramSample | None
) -> list[MachineSample]:
    """The samples with the GPUs alone that the program's processes use: none while it is not known
    to use any, all where the driver does not say whose processes are whose.
    """
    own: Collection[int] | None = () if program is None else program.gpus
    if own is None:
        return list(samples)
    return [
        replace(one, gpus=tuple(gpu for gpu in one.gpus if gpu.index in own)) for one in samples
    ]


def rule_figures(gpus: Iterable[GpuSample], host: HostSample) -> dict[str, float]:
    """Flat names as in rules: gpu0.temperature, disk_free. What is unknown is left out."""
    found: dict[str, float | None] = {
        "disk_free": host.disk_free_bytes,
        "memory_free": host.memory_available_bytes,
        "host.cpu": host.cpu_percent,
    }
    for gpu in gpus:
        used, total = gpu.memory_used_bytes, gpu.memory_total_bytes
        found |= {
            f"gpu{gpu.index}.utilization": gpu.util_percent,
            f"gpu{gpu.index}.temperature": gpu.temperature_c,
            f"gpu{gpu.index}.power": gpu.power_w,
            f"gpu{gpu.index}.memory": used,
            f"gpu{gpu.index}.memory_percent": 100 * used / total if used and total else None,
        }
    return {name: float(value) for name, value in found.items() if value is not None}


def machine_series(gpus: Iterable[GpuSample], host: HostSample) -> dict[str, float | int]:
    """Keys and values of system.jsonl, of all GPUs of the host."""
    found: dict[str, float | int | None] = {
        "host/cpu_percent": host.cpu_percent,
        "host/memory_available_bytes": host.memory_available_bytes,
        "host/disk_free_bytes": host.disk_free_bytes,
    }
    for gpu in gpus:
        found |= {
            f"gpu{gpu.index}/util_percent": gpu.util_percent,
            f"gpu{gpu.index}/memory_bytes": gpu.memory_used_bytes,
            f"gpu{gpu.index}/power_w": gpu.power_w,
            f"gpu{gpu.index}/temperature_c": gpu.temperature_c,
        }
    return _known(found)


def program_series(program: ProgramSample | None) -> dict[str, float | int]:
    """The same, of the program's own processes."""
    if program is None:
        return {}
    return _known(
        {
            "program/cpu_percent": program.cpu_percent,
            "program/rss_bytes": program.rss_bytes,
            "program/threads": program.threads,
            "program/gpu_memory_bytes": program.gpu_memory_bytes,
        }
    )


def _known(found: dict[str, float | int | None]) -> dict[str, float | int]:
    return {
        name: round(value, 2) if isinstance(value, float) else value
        for name, value in found.items()
        if value is not None
    }
