"""What the guard says about itself: attempts.jsonl (history) and guard.json (now).

A full disk never stops the guard: lines wait in a ring and are retried in order, and are printed
to standard error as well.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import deque
from pathlib import Path
from typing import Any

from albor_core.run.files.whole_file import write_json
from albor_core.run.guard_state import SCHEMA
from albor_core.run.liveness import boot_id, start_ticks
from albor_core.run.rundir import RunDir
from albor_core.run.values.lenient import strict_json

_RING_LINES = 1000


class Ledger:
    """The one writer of attempts.jsonl and guard.json; belongs to the holder of guard.lock."""

    def __init__(self, run: RunDir) -> None:
        self._run = run
        self._ring: deque[bytes] = deque(maxlen=_RING_LINES)
        self._seq = 0
        self._is_complaining = False
        self._fd = os.open(
            run.attempts, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
        )
        size = os.fstat(self._fd).st_size
        if size and os.pread(self._fd, 1, size - 1) != b"\n":
            self._ring.append(b"\n")  # ends the line that a killed guard tore: a reader skips it
        self._identity = {"pid": os.getpid(), "start_ticks": start_ticks(os.getpid())}

    def line(self, kind: str, **fields: Any) -> None:
        """Append one record, durably where the disk allows."""
        record = {"t": kind, "wall": round(time.time(), 6), **strict_json(fields)}
        self._ring.append(
            json.dumps(record, separators=(",", ":"), allow_nan=False).encode() + b"\n"
        )
        self.retry()

    def event(self, name: str, *, severity: str = "info", **data: Any) -> None:
        """Something the stores should show."""
        self.line("event", name=name, severity=severity, data=data)

    def retry(self) -> None:
        """Offer waiting lines to the disk again, oldest first."""
        written = False
        while self._ring:
            try:
                count = os.write(self._fd, self._ring[0])
            except OSError as error:
                self._print_error(f"{self._run.attempts}: {error.strerror}")
                return
            if count < len(self._ring[0]):  # the disk filled up inside the line
                self._ring[0] = b"\n" + self._ring[0]  # ends the torn part; then the whole line
                self._print_error(f"{self._run.attempts}: the disk took half a line")
                return
            self._ring.popleft()
            written = True
        if written:
            self._is_complaining = False
            try:
                os.fsync(self._fd)
            except OSError as error:
                self._print_error(f"{self._run.attempts}: {error.strerror}")

    @property
    def is_deleted(self) -> bool:
        """Whether the file was removed, and surely the run directory with it. No network
        trouble looks like this: an open file that is merely out of reach keeps its name.
        """
        try:
            return os.fstat(self._fd).st_nlink == 0
        except OSError:
            return False

    @property
    def moved_to(self) -> str | None:
        """The path of the run directory now, if it was moved; found by the open file."""
        try:
            here = os.fstat(self._fd)
            if here.st_nlink == 0:
                return None
            try:
                if os.path.samestat(here, self._run.attempts.stat()):
                    return None
            except FileNotFoundError:
                pass
            return str(Path(f"/proc/self/fd/{self._fd}").readlink().parent.parent)
        except OSError:
            return None

    def now(self, document: dict[str, Any]) -> None:
        """Replace guard.json; adds schema, identity and sequence."""
        self._seq += 1
        body = {
            "schema": SCHEMA,
            "run_id": self._run.id,
            "boot_id": boot_id(),
            "guard": self._identity,
            "seq": self._seq,
            "mono_ns": time.monotonic_ns(),
            "wall": round(time.time(), 6),
            **strict_json(document),
        }
        try:
            write_json(self._run.guard_json, body)
        except OSError as error:
            self._print_error(f"{self._run.guard / 'guard.json'}: {error.strerror}")

    def _print_error(self, text: str) -> None:
        """Once per trouble: guard.log may live on the same full disk."""
        if not self._is_complaining:
            self._is_complaining = True
            log_line(text)

    def close(self) -> None:
        """Last offer of waiting lines; what the disk still refuses goes to standard error."""
        self.retry()
        for line in self._ring:
            log_line(line.decode(errors="replace").rstrip())
        os.close(self._fd)


def log_line(text: str) -> None:
    """Write a line to guard.log. Never raises: the log may be on a full disk."""
    try:
        sys.stderr.write(f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} {text}\n")
        sys.stderr.flush()
    except OSError:
        return  # there is nowhere left to say it
