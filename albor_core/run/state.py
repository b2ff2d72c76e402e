"""training_state.json: what a run is doing now, small and replaced in one step (schema
albor.state/1).

Written by the trainer's main loop, so `seq` moving means that the loop moves. Unknown is null,
never 0. A lost or torn file only means "no news": readers get None and show the age of what they
had.
"""

from __future__ import annotations

import json
import math
import os
import threading
import time
from collections.abc import Callable
from dataclasses import field
from pathlib import Path
from typing import Any

from albor_core.run.files.whole_file import write_bytes
from albor_core.run.headlines import RECORDED
from albor_core.run.light_dataclass import dataclass
from albor_core.run.liveness import boot_id, start_ticks
from albor_core.run.rundir import load_json
from albor_core.run.status import ENDS
from albor_core.run.values.lenient import strict_json

SCHEMA = "albor.state/1"
MAX_BYTES = 16 << 10
READ_BYTES = 64 << 10
HISTORY = 120
PHASES = (
    "initializing",
    "preparing",
    "compiling",
    "training",
    "evaluating",
    "checkpointing",
    "paused",
    *ENDS,
)


class StateWriter:
    """Writes training_state.json. `fields` is plain data; `publish` adds identity, sequence and
    clocks.

    A failed write (full disk) is remembered in `error` and never raised: training goes on without a
    dashboard.
    """

    def __init__(self, path: Path, *, run_id: str, attempt: int, nonce: str) -> None:
        self.path = path
        self.error: str | None = None
        self.fields: dict[str, Any] = {}
        self._seq = 0
        self._alive_seq = 0
        self._phase = "initializing"
        self._phase_since = time.monotonic_ns()
        self._phase_limit_s: float | None = None
        self._lock = threading.Lock()  # of what is below, and of the counters
        self._unwritten: bytes | None = None
        self._has_thread = False
        self._disk = threading.Lock()  # of the file; held while waiting for the disk
        self._identity = {
            "schema": SCHEMA,
            "run_id": run_id,
            "attempt": attempt,
            "nonce": nonce,
            "pid": os.getpid(),
            "start_ticks": start_ticks(os.getpid()),
            "host": os.uname().nodename,
            "boot_id": boot_id(),
        }

    def phase(self, name: str, *, limit_s: float | None = None, waits: bool = True) -> None:
        """Enter a phase and publish; `limit_s` is how long the guard may see no news in it."""
        assert name in PHASES, name
        self._phase, self._phase_limit_s = name, limit_s
        self._phase_since = time.monotonic_ns()
        self.publish(waits=waits)

    @property
    def current_phase(self) -> str:
        return self._phase

    def publish(self, *, waits: bool = True) -> None:
        """One more step of `seq`: the main loop is alive. Main loop only.

        Without `waits` a thread writes it, or what is newer by then: making and renaming a file
        takes tens of milliseconds while another is pushed to the disk.
        """
        with self._lock:
            self._seq += 1
            self._unwritten = self._encoded()
            starts = not (waits or self._has_thread)
            self._has_thread |= starts
        if waits:
            self._write()
        elif starts:
            self._write_beside()

    def keep_alive(self) -> None:
        """Move `alive_seq` alone: for the thread that speaks while the loop is paused."""
        with self._lock:
            self._alive_seq += 1
            self._unwritten = self._encoded()
        self._write()

    def _write_beside(self) -> None:
        try:
            threading.Thread(target=self._write_all, name="state", daemon=True).start()
        except RuntimeError:  # no more threads to be had
            self._write_all()

    def _write_all(self) -> None:
        try:
            while True:
                self._write()
                with self._lock:
                    if self._unwritten is None:
                        self._has_thread = False
                        return
        except BaseException:  # no memory, say: the next news must get another thread
            with self._lock:
                self._has_thread = False
            raise

    def _write(self) -> None:
        """Write the newest state, unless another thread did. Nothing older is written after it."""
        with self._disk:
            with self._lock:
                raw, self._unwritten = self._unwritten, None
            if raw is None:
                return
            try:
                write_bytes(self.path, raw)
                self.error = None
            except OSError as error:
                self.error = f"{self.path}: {error.strerror}"

    def _encoded(self) -> bytes:
        document = {
            **self._identity,
            "seq": self._seq,
            "alive_seq": self._alive_seq,
            "mono_ns": time.monotonic_ns(),
            "wall": time.time(),
            "phase": self._phase,
            "phase_since_mono_ns": self._phase_since,
            "phase_limit_s": self._phase_limit_s,
            **strict_json(self.fields),
        }
        raw = json.dumps(document, separators=(",", ":"), allow_nan=False).encode()
        while len(raw) > MAX_BYTES and any(document.get(key) for key in HISTORIES):
            for key in HISTORIES:
                document[key] = (document.get(key) or [])[1::2]
            raw = json.dumps(document, separators=(",", ":"), allow_nan=False).encode()
        return raw


HISTORIES = ("history_steps", *(one.history for one in RECORDED))


def read_state(path: Path) -> dict[str, Any] | None:
    """The newest whole document, or None for anything that is not one. Unknown keys are kept."""
    try:
        return load_state(path)
    except (OSError, ValueError):
        return None


def load_state(path: Path) -> dict[str, Any]:
    """The state, as `read_state`. Raises OSError, or ValueError that says what the file is
    instead."""
    document = load_json(path, READ_BYTES)
    if not str(document.get("schema", "")).startswith("albor.state/"):
        raise ValueError("is of another program")
    return document


@dataclass
class Freshness:
    """How long ago a run last gave news, by the reader's own monotonic clock; the file's stamps are
    not trusted.
    """

    clock: Callable[[], float] = time.monotonic
    _seen: tuple[Any, ...] | None = None
    _since: float = field(default=math.nan)

    def age_s(self, state: dict[str, Any] | None) -> float | None:
        """Seconds since (nonce, seq, alive_seq) last changed under our eyes; None before any news.

        The first look may use the file's monotonic stamp if it is of this boot, so that an old file
        looks old.
        """
        now = self.clock()
        mark = None if state is None else tuple(state.get(k) for k in ("nonce", "seq", "alive_seq"))
        if mark is not None and mark != self._seen:
            self._since = now
            if self._seen is None and state is not None and state.get("boot_id") == boot_id():
                stamp = state.get("mono_ns")
                if isinstance(stamp, int) and 0 < stamp <= now * 1e9:
                    self._since = stamp / 1e9
            self._seen = mark
        return None if math.isnan(self._since) else now - self._since
