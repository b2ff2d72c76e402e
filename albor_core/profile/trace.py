"""Reads Chrome traces of torch.profiler as a stream: events one by one, in bounded memory, of the
kinds that a report needs.

At most MAX_EVENTS of them are kept, each a few numbers. A truncated file (a trace whose writer was
killed, an aborted download) is read up to its end and marked as such.
"""

from __future__ import annotations

import codecs
import gzip
import json
import sys
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from albor_core.run.errors import AlborError, DataError, NotFoundError, remedy

MAX_EVENTS = 2_000_000
MAX_EVENT_BYTES = 4 << 20
"""Of one event, and of what stands before the first."""
_CHUNK = 1 << 20
_DEVICE = {"kernel": "kernel", "gpu_memcpy": "copy", "gpu_memset": "set"}
_CALLS = ("cuda_runtime", "cuda_driver", "xpu_runtime", "privateuse1_runtime")
STEP = "ProfilerStep#"
"""How the range of a step is named."""
BRICK = "brick "
"""How the range of a brick is named."""


@dataclass(slots=True)
class TraceEvent:
    """An event from `begin` to `end`, in microseconds of the trace's clock."""

    name: str
    begin: float
    end: float
    lane: object
    """Thread of the host, or stream of a device."""
    kind: str = ""
    """Of a device: kernel, copy or set."""
    call: int | None = None
    """The correlation id that joins what a device did to the call that asked for it."""
    op: int | None = None
    """The id of the operator that it was done for."""
    bytes: int | None = None
    dims: tuple[tuple[int, ...], ...] = ()
    """Shapes of the inputs of an operator."""


@dataclass
class StepTrace:
    """The trace as read; events in the order of their beginning."""

    path: str
    device: list[TraceEvent] = field(default_factory=list)
    calls: list[TraceEvent] = field(default_factory=list)
    """Of the device's driver, by the host."""
    operators: list[TraceEvent] = field(default_factory=list)
    ranges: list[TraceEvent] = field(default_factory=list)
    """That the program named, on the host."""
    devices: tuple[str, ...] = ()
    """Names of GPUs."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    has_shapes: bool = False
    truncated: bool = False
    events: int = 0
    """In the file."""


def read_trace(path: Path) -> StepTrace:
    """Read a Chrome trace, gzipped or not.

    Raises NotFoundError if there is none, DataError if the file is not a trace, is damaged before
    its end, or holds more than MAX_EVENTS events.
    """
    trace = StepTrace(str(path))
    try:
        with path.open("rb") as plain:
            is_zipped = plain.read(2) == b"\x1f\x8b"
            plain.seek(0)
            stream = gzip.GzipFile(fileobj=plain) if is_zipped else plain
            for event in _EventStream(stream, trace):
                _keep(event, trace)
    except FileNotFoundError as error:
        raise NotFoundError(f"no trace {path}", hint="albor profile RUN, or CONFIG.yaml") from error
    except OSError as error:
        if isinstance(error, gzip.BadGzipFile):
            raise _damaged(path, str(error)) from error
        raise AlborError(
            f"{path}: {error.strerror}", hint=remedy(error) or "give another file"
        ) from error
    for events in (trace.device, trace.calls, trace.operators, trace.ranges):
        events.sort(key=lambda event: event.begin)
    return trace


def _damaged(path: Path | str, why: str) -> DataError:
    return DataError(
        f"{path}: is damaged: {why}", hint="take the trace again: albor profile RUN|CONFIG"
    )


def _no_trace(path: str, why: str) -> DataError:
    return DataError(
        f"{path}: is not a Chrome trace: {why}",
        hint="give what torch.profiler's export_chrome_trace wrote",
    )


class _EventStream:
    """Iterates over `traceEvents` of a file with one chunk in memory at a time, and stores the
    members before them.
    """

    def __init__(self, stream: Any, trace: StepTrace) -> None:
        self._stream, self._trace = stream, trace
        self._text, self._at, self._is_over = "", 0, False
        self._decoder = json.JSONDecoder()
        self._letters = codecs.getincrementaldecoder("utf-8")("replace")

    def __iter__(self) -> Iterator[dict[str, Any]]:
        self._enter()
        while True:
            letter = self._next_letter()
            if letter is None:
                self._trace.truncated = True
                return
            if letter == "]":
                self._check_rest()
                return
            if letter == ",":
                self._at += 1
                continue
            try:
                event = self._value()
            except EOFError:
                self._trace.truncated = True
                return
            self._trace.events += 1
            if isinstance(event, dict):
                yield event

    def _read(self) -> bool:
        """Read more text; return whether there was any."""
        if self._is_over:
            return False
        try:
            chunk = self._stream.read1(_CHUNK)
        except EOFError:  # gzip that breaks off
            chunk = b""
        except zlib.error as error:
            raise _damaged(self._trace.path, str(error)) from error
        self._is_over = not chunk
        self._text = self._text[self._at :] + self._letters.decode(chunk, self._is_over)
        self._at = 0
        return not self._is_over

    def _check_rest(self) -> None:
        """Check the checksum at the end of a compressed file."""
        while self._read():
            self._at = len(self._text)

    def _enter(self) -> None:
        """Advance to the first event."""
        path = self._trace.path
        while True:
            head = self._text.lstrip()
            if head.startswith("["):
                self._at = len(self._text) - len(head) + 1
                return
            if head and not head.startswith("{"):
                raise _no_trace(path, "it is not JSON")
            found = head.find('"traceEvents"')
            begin = head.find("[", found) if found >= 0 else -1
            if begin >= 0:
                self._take_head(head[:found])
                self._at = len(self._text) - len(head) + begin + 1
                return
            if len(head) > MAX_EVENT_BYTES:
                raise _no_trace(path, f"no traceEvents in its first {MAX_EVENT_BYTES >> 20} MiB")
            if not self._read():
                raise _no_trace(path, "it is empty" if not head else "it has no traceEvents")

    def _take_head(self, head: str) -> None:
        try:
            said = json.loads(head.rstrip().rstrip(",") + "}")
        except ValueError:  # written by another tool
            return
        self._trace.metadata = said
        self._trace.has_shapes = bool(said.get("record_shapes"))
        found = said.get("deviceProperties")
        found = found if isinstance(found, list) else []
        names = (one.get("name") for one in found if isinstance(one, dict))
        self._trace.devices = tuple(str(name) for name in names if name)

    def _next_letter(self) -> str | None:
        while True:
            while self._at < len(self._text):
                if not self._text[self._at].isspace():
                    return self._text[self._at]
                self._at += 1
            if not self._read():
                return None

    def _value(self) -> Any:
        """The next value. Raises EOFError if the file ends in it."""
        while True:
            try:
                value, self._at = self._decoder.raw_decode(self._text, self._at)
                return value
            except ValueError as error:
                if len(self._text) - self._at > MAX_EVENT_BYTES or self._is_over:
                    if self._is_over and _is_cut(error, self._text):
                        raise EOFError from None
                    number = self._trace.events + 1
                    raise _damaged(self._trace.path, f"event {number:,} is not JSON") from error
                self._read()


def _is_cut(error: ValueError, text: str) -> bool:
    """Whether invalid JSON is only truncated: the error is at its last word."""
    at = getattr(error, "pos", 0)
    words = getattr(error, "msg", "")
    return words.startswith("Unterminated string") or len(text) - at <= 6 or not text[at:].strip()


def _keep(said: dict[str, Any], trace: StepTrace) -> None:
    """Add the parts of an event that a report needs to the trace, if any."""
    kind = said.get("cat")
    if said.get("ph") != "X" or not isinstance(kind, str):
        return
    lists = {"cpu_op": trace.operators, "user_annotation": trace.ranges}
    kept = trace.device if kind in _DEVICE else trace.calls if kind in _CALLS else lists.get(kind)
    if kept is None:
        return
    count = len(trace.device) + len(trace.calls) + len(trace.operators) + len(trace.ranges)
    if count >= MAX_EVENTS:
        raise DataError(
            f"{trace.path}: holds more than {MAX_EVENTS:,} events",
            hint="trace fewer steps: albor profile RUN|CONFIG --steps 1",
        )
    begin, lasted = _number(said.get("ts")), _number(said.get("dur"))
    if begin is None or lasted is None or lasted < 0:
        return
    more = said.get("args")
    more = more if isinstance(more, dict) else {}
    is_device = kind in _DEVICE
    lane = ("stream", said.get("pid"), more.get("stream", said.get("tid")))
    kept.append(
        TraceEvent(
            sys.intern(str(said.get("name"))),
            begin,
            begin + lasted,
            lane if is_device else (str(said.get("pid")), str(said.get("tid"))),
            _DEVICE.get(kind, ""),
            _integer(more.get("correlation")),
            _integer(more.get("External id")),
            _integer(more.get("bytes")) if is_device else None,
            _dims(more.get("Input Dims")) if kind == "cpu_op" else (),
        )
    )


def _number(said: object) -> float | None:
    if isinstance(said, bool) or not isinstance(said, int | float | str):
        return None
    try:
        value = float(said)
    except (ValueError, OverflowError):
        return None
    return value if abs(value) < 1e300 else None


def _integer(said: object) -> int | None:
    return said if isinstance(said, int) and not isinstance(said, bool) else None


def _dims(said: object) -> tuple[tuple[int, ...], ...]:
    """The dimensions of the inputs that are matrices or larger."""
    if not isinstance(said, list):
        return ()
    return tuple(
        tuple(one)
        for one in said
        if isinstance(one, list) and one and all(isinstance(size, int) for size in one)
    )
