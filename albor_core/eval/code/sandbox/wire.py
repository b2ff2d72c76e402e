"""The protocol between judge and program: values, and names for everything else.

Frames of JSON with a length before them. Nothing that is read is ever executed: the worst a hostile
program can send is a wrong value.
"""

from __future__ import annotations

import datetime
import json
import os
import struct
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

MOST_BYTES = 16 << 20
Named = Callable[[Any], list[Any]]


class WireError(Exception):
    """The other side is gone, or sent something unreadable."""


class FrameChannel:
    """Sends and receives frames through one socket."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def send(self, message: Any) -> None:
        """Send a message. Raises WireError."""
        body = json.dumps(message, separators=(",", ":")).encode()
        if len(body) > MOST_BYTES:
            raise WireError("a value is too large to be passed on")
        rest = memoryview(struct.pack("=I", len(body)) + body)
        try:
            while rest:
                rest = rest[os.write(self._fd, rest) :]
        except OSError as error:
            raise WireError("the program ended before its tests did") from error

    def receive(self) -> Any:
        """Receive a message. Raises WireError."""
        (size,) = struct.unpack("=I", self._exactly(4))
        if size > MOST_BYTES:
            raise WireError("the program answered with too much")
        try:
            return json.loads(self._exactly(size))
        except (ValueError, RecursionError) as error:
            raise WireError("the program's answer cannot be read") from error

    def _exactly(self, count: int) -> bytes:
        read = bytearray()
        while len(read) < count:
            try:
                part = os.read(self._fd, count - len(read))
            except OSError as error:
                raise WireError("the program ended before its tests did") from error
            if not part:
                raise WireError("the program ended before its tests did")
            read += part
        return bytes(read)


_PLAIN = (bool, float, str, type(None))
_SMALL = 1 << 53
_LISTS: dict[type, str] = {list: "list", tuple: "tuple", set: "set", frozenset: "frozenset"}
_OTHERS: dict[type, tuple[str, Callable[[Any], list[Any]]]] = {
    deque: ("deque", lambda one: [list(one), one.maxlen]),
    range: ("range", lambda one: [one.start, one.stop, one.step]),
    Decimal: ("Decimal", lambda one: [str(one)]),
    Fraction: ("Fraction", lambda one: [one.numerator, one.denominator]),
    complex: ("complex", lambda one: [one.real, one.imag]),
    datetime.date: ("date", lambda one: [one.isoformat()]),
    datetime.datetime: ("datetime", lambda one: [one.isoformat()]),
    datetime.time: ("time", lambda one: [one.isoformat()]),
    datetime.timedelta: ("timedelta", lambda one: [one.days, one.seconds, one.microseconds]),
}
_MAPPINGS: dict[type, str] = {
    dict: "dict", Counter: "Counter", OrderedDict: "OrderedDict", defaultdict: "dict",
}  # fmt: skip
_BUILD: dict[str, Callable[..., Any]] = {
    "list": list, "tuple": tuple, "set": set, "frozenset": frozenset, "deque": deque,
    "range": range, "Decimal": Decimal, "Fraction": Fraction, "complex": complex,
    "date": datetime.date.fromisoformat, "datetime": datetime.datetime.fromisoformat,
    "time": datetime.time.fromisoformat, "timedelta": datetime.timedelta,
    "dict": dict, "Counter": Counter, "OrderedDict": OrderedDict,
}  # fmt: skip
_HEX: dict[str, Any] = {"bytes": bytes, "bytearray": bytearray}


def encode(value: Any, named: Named) -> Any:
    """Encode `value` for a frame. Types are compared exactly: a value that only resembles a plain
    one is passed by name, as `named` says, and stays in its process.
    """
    kind = type(value)
    if kind in _PLAIN or (kind is int and -_SMALL < value < _SMALL):
        return value
    if kind is int:
        return ["int", f"{value:x}"]
    if kind in _LISTS:
        return [_LISTS[kind], [encode(one, named) for one in value]]
    if kind in _MAPPINGS:
        pairs = [[encode(key, named), encode(one, named)] for key, one in value.items()]
        return [_MAPPINGS[kind], pairs]
    if kind in _OTHERS:
        name, parts = _OTHERS[kind]
        return [name, encode(parts(value), named)]
    if kind.__name__ in _HEX and kind is _HEX[kind.__name__]:
        return [kind.__name__, value.hex()]
    if kind.__module__ == "numpy" and kind.__name__ != "ndarray" and hasattr(value, "item"):
        return encode(value.item(), named)  # its scalars compare as numbers do
    return named(value)


def decode(form: Any, resolve: Callable[[str, Any], Any]) -> Any:
    """Decode a value; `resolve(kind, what)` gives those that were passed by name. Raises
    WireError."""
    try:
        return _decoded(form, resolve)
    except (ValueError, TypeError, ArithmeticError, RecursionError, KeyError) as error:
        raise WireError("the program's answer cannot be read") from error


def _decoded(form: Any, resolve: Callable[[str, Any], Any]) -> Any:
    if not isinstance(form, list):
        return form
    kind, content = form
    if kind == "int":
        return int(content, 16)
    if kind in _HEX:
        return _HEX[kind].fromhex(content)
    if kind not in _BUILD:
        return resolve(kind, content)
    if kind in _MAPPINGS.values():
        pairs = [(_decoded(key, resolve), _decoded(one, resolve)) for key, one in content]
        return _BUILD[kind](pairs if kind != "Counter" else dict(pairs))
    if kind in _LISTS.values():
        return _BUILD[kind](_decoded(one, resolve) for one in content)
    return _BUILD[kind](*_decoded(content, resolve))
