"""The machine's last quarter of an hour, one sample a second, in a file that all processes read.

    ALBOR_HOME/machine-HOST.ring    written by the holder of ALBOR_HOME/machine-HOST.lock

Slots of fixed size, each with its number and a CRC, after a head that names the newest. A reader
takes no lock and trusts nothing: a slot that is torn, truncated or foreign is skipped. A home that
several hosts share has one ring for each.
"""

from __future__ import annotations

import math
import os
import struct
import time
import zlib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import orjson

from albor_core.run.home.folders import albor_home
from albor_core.run.liveness import boot_id
from albor_core.run.rundir import open_plain
from albor_core.run.values.lenient import finite_of, text_of
from albor_core.telemetry.sample import (
    GpuSample,
    HostSample,
    gpu_from_json,
    host_from_json,
)

SLOTS = 900  # seconds of history
SLOT_BYTES = 8192
FRESH_S = 3.0  # an older newest sample means that the sampler is gone
_HEAD = struct.Struct("<8sQI")  # magic, number of the newest sample, CRC of both
_SLOT = struct.Struct("<QIId")  # number, bytes, CRC of number and bytes, wall
_HEAD_BYTES = 4096
_MAGIC = b"alborR1\n"
_ROOM = SLOT_BYTES - _SLOT.size


@dataclass(frozen=True)
class MachineSample:
    """One host at one moment. `mono` is CLOCK_MONOTONIC, comparable where `boot_id` is ours."""

    wall: float
    mono: float
    host: str
    boot_id: str
    gpus: tuple[GpuSample, ...] = ()
    system: HostSample = field(default_factory=HostSample)
    why_no_gpus: str = ""

    def age_s(self) -> float:
        """Seconds since it was taken; by the wall clock where another boot or host took it."""
        if self.boot_id == boot_id():
            return time.monotonic() - self.mono
        return time.time() - self.wall


class Ring:
    """The writer of a ring: one thread of the holder of the machine's lock. Continues after the
    newest sample that an earlier writer left. Raises OSError if the file cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.lost = path, 0
        """`lost` counts samples that the disk did not take."""
        self._fd = self._open()
        self._number = max(_newest_number(self._fd) or 0, _highest(self._fd))

    def append(self, sample: MachineSample) -> bool:
        """Write a sample to the next slot; return whether the disk accepted it. Never raises."""
        number, body = self._number + 1, _packed(sample)
        slot = _SLOT.pack(number, len(body), _crc(number, body), sample.wall) + body
        head = _HEAD.pack(_MAGIC, number, _crc(number, _MAGIC))
        try:
            if not self._is_in_place():
                os.dup2(fd := self._open(), self._fd, inheritable=False)
                os.close(fd)
            if os.pwrite(self._fd, slot, _place(number)) == len(slot):
                os.pwrite(self._fd, head, 0)
                self._number = number
                return True
        except OSError:
            pass
        self.lost += 1
        return False

    def close(self) -> None:
        os.close(self._fd)

    def _open(self) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        return os.open(self.path, flags, 0o600)

    def _is_in_place(self) -> bool:
        """Whether the open file is still the one that readers find: it may have been removed."""
        try:
            return os.path.samestat(self.path.lstat(), os.fstat(self._fd))
        except FileNotFoundError:
            return False


def ring_path(host: str | None = None) -> Path:
    """The path of a host's ring, by default of this host."""
    return albor_home() / f"machine-{_safe(host)}.ring"


def machine_lock(host: str | None = None) -> Path:
    """The path of the lock held by the process that samples a host."""
    return albor_home() / f"machine-{_safe(host)}.lock"


def _safe(host: str | None) -> str:
    name = os.uname().nodename if host is None else host
    return "".join(c if c.isalnum() or c in "._-" else "_" for c in name)[:100] or "localhost"


def read_ring(
    path: Path, seconds: float, *, after: float = -math.inf, most: int = SLOTS
) -> list[MachineSample]:
    """The samples of the last `seconds`, oldest first, limited to the newest `most` that are later
    than `after` (wall); empty if there is no ring or it is no longer written. Never raises, never
    blocks.
    """
    found: list[MachineSample] = []
    try:
        with open_plain(path) as file:
            fd = file.fileno()
            number = _newest_number(fd) or _highest(fd)
            for at in range(number, max(0, number - SLOTS), -1):
                body = _body(fd, at, after)
                if body == b"":
                    break
                sample = _parse(body)
                if sample is None:
                    continue
                if sample.age_s() > seconds:
                    break
                found.append(sample)
                if len(found) == most:
                    break
    except OSError:
        return []
    return found[::-1]


def newest_sample(
    path: Path | None = None, *, max_age_s: float = FRESH_S, after: float = -math.inf
) -> MachineSample | None:
    """The newest sample of this host's ring, or of `path`, if it is fresh and later than `after`
    (wall).
    """
    found = read_ring(path or ring_path(), max_age_s, after=after, most=1)
    return found[0] if found else None


def _place(number: int) -> int:
    return _HEAD_BYTES + number % SLOTS * SLOT_BYTES


def _crc(number: int, body: bytes) -> int:
    return zlib.crc32(body, number & 0xFFFFFFFF)


def _newest_number(fd: int) -> int | None:
    """The newest slot number in the head; None if the head is not one of a ring."""
    raw = os.pread(fd, _HEAD.size, 0)
    if len(raw) < _HEAD.size:
        return None
    magic, number, crc = _HEAD.unpack(raw)
    return number if magic == _MAGIC and crc == _crc(number, magic) else None


def _highest(fd: int) -> int:
    """The highest number of an intact slot, for a ring with a torn head; 0 if there is none."""
    numbers = [0]
    for place in range(SLOTS):
        raw = os.pread(fd, _SLOT.size, _HEAD_BYTES + place * SLOT_BYTES)
        if len(raw) < _SLOT.size:
            continue
        number = _SLOT.unpack(raw)[0]
        if number % SLOTS == place and number > max(numbers) and _body(fd, number) is not None:
            numbers.append(number)
    return max(numbers)


def _body(fd: int, number: int, after: float = -math.inf) -> bytes | None:
    """The contents of a slot; None if it is damaged, b"" if it is not later than `after`."""
    raw = os.pread(fd, SLOT_BYTES, _place(number))
    if len(raw) < _SLOT.size:
        return None
    found, size, crc, wall = _SLOT.unpack_from(raw)
    if found == number and wall <= after:
        return b""
    body = raw[_SLOT.size : _SLOT.size + size]
    whole = found == number and size <= _ROOM and len(body) == size
    return body if whole and crc == _crc(number, body) else None


def _parse(body: bytes | None) -> MachineSample | None:
    if body is None:
        return None
    try:
        return _sample(orjson.loads(body))
    except (ValueError, TypeError, KeyError):
        return None


def _packed(sample: MachineSample) -> bytes:
    """The sample as JSON that fits a slot: without the last processes if many use the GPUs."""
    most: int | None = None
    while True:
        body = orjson.dumps(_document(sample, most), default=str)
        if len(body) <= _ROOM:
            return body
        if most == 0:
            return _packed(replace(sample, gpus=sample.gpus[: len(sample.gpus) // 2]))
        counts = [len(gpu.processes) for gpu in sample.gpus]
        most = max(counts, default=0) // 2 if most is None else most // 2


def _document(sample: MachineSample, most: int | None) -> dict[str, Any]:
    gpus = [replace(gpu, processes=gpu.processes[:most]) for gpu in sample.gpus]
    return {
        "wall": sample.wall,
        "mono": sample.mono,
        "host": sample.host,
        "boot_id": sample.boot_id,
        "gpus": [_known(gpu) for gpu in gpus],
        "system": _known(sample.system),
        "why_no_gpus": sample.why_no_gpus[:200],
    }


def _known(sample: GpuSample | HostSample) -> dict[str, Any]:
    """The known fields of a sample; orjson writes nested values as they are."""
    return {name: value for name, value in vars(sample).items() if value not in (None, ())}


def _sample(data: Any) -> MachineSample:
    """The sample of JSON bytes. Raises ValueError, TypeError or KeyError if they are not one."""
    gpus, wall, mono = data["gpus"], finite_of(data["wall"]), finite_of(data["mono"])
    if wall is None or mono is None or not isinstance(gpus, list):
        raise ValueError("not a sample")
    return MachineSample(
        wall=wall,
        mono=mono,
        host=text_of(data.get("host")) or "",
        boot_id=text_of(data.get("boot_id")) or "",
        gpus=tuple(gpu_from_json(g, n) for n, g in enumerate(gpus) if isinstance(g, dict)),
        system=host_from_json(data.get("system") or {}),
        why_no_gpus=text_of(data.get("why_no_gpus")) or "",
    )
