"""What another host sends, bounded: in bytes, in the length of a line, in files, and in time."""

from __future__ import annotations

import os
import select
import tarfile
import time
from collections.abc import Iterator

MAX_LINE = 1 << 20
_QUIET_S = 120.0
_SLOWEST = 16 << 10  # bytes a second over all of it, after the first minutes
_PATIENCE_S = 600.0
_LAST_ERRORS = 8 << 10
_PIECE = 1 << 16
_RECORD = 20 * 512  # of tar, and what tarfile reads at a time
_LATEST = 1 << 33  # seconds: the year 2242
_NOTES = (
    tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE,
    tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK,
)  # fmt: skip
_SPARE_MEMBERS = 16


def time_for(num_bytes: int) -> float:
    """Seconds in which so many bytes come, or do not come at all."""
    return _PATIENCE_S + num_bytes / _SLOWEST


class BeyondBounds(EOFError):
    """More than was listed, or nothing for too long."""


class BoundedPipe:
    """A process's output, of which at most `limit` bytes are read, and the end of what it says on
    its stderr. Raises BeyondBounds.
    """

    def __init__(self, out: int, errors: int, limit: int) -> None:
        self._out, self._errors, self._left = out, errors, limit
        self._until = time.monotonic() + time_for(limit)
        self._held, self._is_over = b"", False
        self.errors = b""
        self._poll = select.poll()
        for fd in (out, errors):
            self._poll.register(fd, select.POLLIN)

    def read(self, size: int) -> bytes:
        """Read exactly `size` bytes; fewer only at the end."""
        while len(self._held) < size and self._fill():
            pass
        found, self._held = self._held[:size], self._held[size:]
        return found

    def line(self) -> bytes:
        """The next line with its end; b"" at the end of all."""
        at = 0
        while (found := self._held.find(b"\n", at)) < 0:
            at = len(self._held)
            if at >= MAX_LINE:
                break
            if not self._fill():
                return self.read(at)
        if found < 0 or found >= MAX_LINE:
            raise BeyondBounds(f"it sends a line of more than {MAX_LINE >> 20} MiB")
        return self.read(found + 1)

    def lines(self) -> Iterator[bytes]:
        while line := self.line():
            yield line

    def _fill(self) -> bool:
        while not self._is_over:
            left_s = min(_QUIET_S, self._until - time.monotonic())
            ready = dict(self._poll.poll(1000 * left_s)) if left_s > 0 else {}
            if not ready:
                raise BeyondBounds("it sends nothing, or too slowly")
            if self._errors in ready:
                self._hear()
            if self._out in ready:
                data = os.read(self._out, _PIECE)
                self._is_over = not data
                self._left -= len(data)
                if self._left < 0:
                    raise BeyondBounds("it sends more than it listed")
                self._held += data
                if data:
                    return True
        return False

    def _hear(self) -> None:
        data = os.read(self._errors, _PIECE)
        self.errors = (self.errors + data)[-_LAST_ERRORS:]
        if not data:
            self._poll.unregister(self._errors)


class _Member(tarfile.TarInfo):
    """One whose notes about it are no longer than a line: tarfile reads those whole."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> _Member:
        found = super().frombuf(buf, encoding, errors)
        if found.type in _NOTES and found.size > MAX_LINE:
            raise BeyondBounds(f"it sends notes on a file of more than {MAX_LINE >> 20} MiB")
        if found.type == tarfile.GNUTYPE_SPARSE:
            raise BeyondBounds("it sends a file with holes, which was not asked for")
        return found


def members(out: BoundedPipe, most: int) -> Iterator[tuple[str, tarfile.TarInfo, tarfile.TarFile]]:
    """Plain files of a tar stream, of at most `most` files. Raises TarError, BeyondBounds."""
    seen = 0
    with tarfile.open(fileobj=out, mode="r|", bufsize=_RECORD, tarinfo=_Member) as archive:  # type: ignore[call-overload]
        for member in archive:
            seen += 1
            archive.members.clear()
            if seen > most + _SPARE_MEMBERS:
                raise BeyondBounds("it sends more files than it listed")
            if member.isreg() and not member.issparse():
                yield member.name.lstrip("/"), member, archive


def time_of(member: tarfile.TarInfo) -> float:
    """A time of change that a file can have; what is none, as NaN, is the beginning of time."""
    return float(member.mtime) if 0 <= member.mtime < _LATEST else 0.0
