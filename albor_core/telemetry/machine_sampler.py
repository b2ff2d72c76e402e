"""Samples this host once a second for all processes of a home, in whichever holds the host's lock.

Every process that watches runs has one; the first to get the lock opens NVML and fills the ring,
the others look each TRY_S whether the lock has become free. A sampler that dies is followed by
another within TRY_S and a second.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from dataclasses import replace
from pathlib import Path

from albor_core.run.errors import AlborError
from albor_core.run.liveness import boot_id, take_lock
from albor_core.telemetry.gpu import Gpus
from albor_core.telemetry.host import sample_host
from albor_core.telemetry.machine_ring import MachineSample, Ring, machine_lock, ring_path

TRY_S = 2.0
EACH_S = 1.0


class MachineSampler:
    """A thread that samples while this process holds the lock, and tries to get it otherwise.

    Nothing raises: an error is stored in `problem`, and the step retried.
    """

    def __init__(self) -> None:
        self.problem = ""
        self._lock_path, self._ring_path = machine_lock(), ring_path()
        self._lock: int | None = None
        self._ring: Ring | None = None
        self._gpus: Gpus | None = None
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="machine", daemon=True)

    @property
    def holds(self) -> bool:
        """Whether this process samples the host."""
        return self._lock is not None

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Release the lock, unless a driver hangs: then the end of the process does."""
        self._done.set()
        self._thread.join(EACH_S)

    def _run(self) -> None:
        due = time.monotonic()
        while not self._done.wait(max(0.0, due - time.monotonic())):
            is_holder = self._step()
            due = max(due, time.monotonic() - EACH_S) + (EACH_S if is_holder else TRY_S)
        self._let_go()

    def _step(self) -> bool:
        """Sample if this process holds the lock; return whether it does."""
        try:
            if self._lock is None and not self._take():
                return False
            assert self._ring is not None and self._gpus is not None
            if not self._ring.append(sample_machine(self._gpus, self._ring_path.parent)):
                self.problem = f"{self._ring_path}: the disk takes no sample"
            else:
                self.problem = ""
            return True
        except Exception as error:  # of a driver's library: nothing that watches may end by it
            self.problem = f"sampling: {type(error).__name__}: {error}"
            return self._lock is not None

    def _take(self) -> bool:
        lock = None
        try:
            lock = take_lock(self._lock_path)
            self._ring = Ring(self._ring_path)
        except (AlborError, OSError):  # held, or no home to lock in
            if lock is not None:
                os.close(lock)
            return False
        self._lock, self._gpus = lock, Gpus(hears_xids=True)
        return True

    def _let_go(self) -> None:
        if self._lock is None:
            return
        assert self._ring is not None and self._gpus is not None
        with contextlib.suppress(Exception):
            self._gpus.close()
        self._ring.close()
        os.close(self._lock)
        self._lock = None


def sample_machine(gpus: Gpus, folder: Path) -> MachineSample:
    """A sample of this host now, with the free space of the disk that holds `folder`."""
    found = gpus.sample()
    return MachineSample(
        wall=time.time(),
        mono=time.monotonic(),
        host=os.uname().nodename,
        boot_id=boot_id(),
        gpus=found,
        system=replace(sample_host(folder), rss_bytes=None),  # a host has none of its own
        why_no_gpus="" if found else gpus.why_none,
    )
