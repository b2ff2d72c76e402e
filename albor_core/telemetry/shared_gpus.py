"""The GPUs of this host, as its one sampler sees them; by NVML if there is no sampler."""

from __future__ import annotations

from albor_core.telemetry.gpu import Gpus
from albor_core.telemetry.machine_ring import newest_sample
from albor_core.telemetry.sample import GpuSample


class SharedGpus:
    """Reads samples from the ring while it is fresh, without opening a driver. Used by one
    thread."""

    def __init__(self) -> None:
        self.why_none = "not looked yet"
        self._own = Gpus()
        self._is_open = False

    def sample(self) -> tuple[GpuSample, ...]:
        """One sample per GPU, at most a few seconds old. Never raises."""
        shared = newest_sample()
        if shared is not None:
            if self._is_open:
                self.close()
            self.why_none = shared.why_no_gpus
            return shared.gpus
        self._is_open = True
        found = self._own.sample()
        self.why_none = self._own.why_none
        return found

    def close(self) -> None:
        """Close the driver; a later sample opens it again if needed."""
        self._own.close()
        self._is_open = False
