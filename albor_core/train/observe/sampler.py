"""Telemetry beside the training: one thread knows GPUs and host, and flushes the journal. It reads
what the host's one sampler left in the ring, and samples by itself if there is none.

The loop takes the newest sample when it logs; it never waits for a driver or a disk.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from albor_core.telemetry.host import sample_host
from albor_core.telemetry.sample import GpuSample, HostSample
from albor_core.telemetry.shared_gpus import SharedGpus

FLUSH_S = 30.0  # what a power cut may cost of the journal


READINGS = {  # of monitoring.system.metrics -> the ends of their journal keys
    "gpu_utilization": ("util_percent",),
    "memory": ("memory_bytes", "rss_bytes"),
    "temperature": ("temperature_c",),
    "power": ("power_w",),
}


@dataclass(frozen=True)
class Machine:
    """GPUs and host at one moment, and which readings of them are kept."""

    gpus: tuple[GpuSample, ...]
    host: HostSample
    kept: Collection[str] = tuple(READINGS)

    def metrics(self) -> dict[str, float | int | None]:
        """Journal keys of this sample; what is unknown or not kept is left out."""
        found: dict[str, float | int | None] = {"host/rss_bytes": self.host.rss_bytes}
        for gpu in self.gpus:
            found |= {
                f"gpu{gpu.index}/util_percent": gpu.util_percent,
                f"gpu{gpu.index}/memory_bytes": gpu.memory_used_bytes,
                f"gpu{gpu.index}/power_w": gpu.power_w,
                f"gpu{gpu.index}/temperature_c": gpu.temperature_c,
            }
        ends = {end for reading in self.kept for end in READINGS[reading]}
        return {
            key: value
            for key, value in found.items()
            if value is not None and key.partition("/")[2] in ends
        }

    def state(self) -> dict[str, Any]:
        """Fields of training_state.json."""
        return {"gpu": [gpu.to_json() for gpu in self.gpus], "system": self.host.to_json()}


class TelemetrySampler:
    """Samples every `interval_s` until closed."""

    def __init__(
        self,
        folder: Path,
        journal: Path,
        *,
        interval_s: float,
        enabled: bool,
        kept: Collection[str] = tuple(READINGS),
    ) -> None:
        self._folder, self._journal, self._kept = folder, journal, kept
        self._interval_s, self._enabled = interval_s, enabled
        self._newest: Machine | None = None
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        self._thread.start()

    def newest(self) -> Machine | None:
        """The newest sample, once; None if it was taken already."""
        newest, self._newest = self._newest, None
        return newest

    def close(self) -> None:
        self._done.set()
        self._thread.join(5.0)  # a driver that hangs must not keep the process

    def _run(self) -> None:
        gpus, flushed = SharedGpus(), time.monotonic()
        while True:
            if self._enabled:
                self._newest = Machine(gpus.sample(), sample_host(self._folder), self._kept)
            if time.monotonic() - flushed >= FLUSH_S:
                flush(self._journal)
                flushed = time.monotonic()
            if self._done.wait(min(self._interval_s, FLUSH_S)):
                gpus.close()
                return


def flush(path: Path) -> None:
    """Push `path` to the disk; trouble is left to the next checkpoint, which must not fail."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return
    try:
        os.fdatasync(fd)
    except OSError:
        return
    finally:
        os.close(fd)
