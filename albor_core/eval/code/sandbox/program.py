"""The process that runs the program: it executes the program's definitions and answers calls.

It has no tests, no expected values and not the secret word that authenticates a verdict: those are
the judge's.
"""

from __future__ import annotations

import builtins
import os
import sys
import types
from collections.abc import Callable
from typing import Any

from albor_core.eval.code.sandbox.wire import FrameChannel, WireError, decode, encode

_FEW = 2000  # characters of an error's text


class Program:
    """Serves one channel until its other side closes it."""

    def __init__(self, channel: FrameChannel) -> None:
        self._channel = channel
        self._held: dict[int, Any] = {}
        self._changed: list[Any] = []
        self._module = types.ModuleType("program")
        self._answers: dict[str, Callable[..., Any]] = {
            "load": self._load, "name": self._named, "call": self._call,
            "get": lambda one, name: getattr(self._value(one), name),
            "set": lambda one, name, what: setattr(self._value(one), name, self._value(what)),
            "item": lambda one, key: self._value(one)[self._value(key)],
            "next": lambda one: next(self._value(one)),
            "iter": lambda one: iter(self._value(one)),
            "len": lambda one: len(self._value(one)),
            "bool": lambda one: bool(self._value(one)),
            "in": lambda one, what: self._value(what) in self._value(one),
            "same": lambda one, two: bool(self._value(one) == self._value(two)),
            "str": lambda one: str(self._value(one)),
            "repr": lambda one: repr(self._value(one)),
        }  # fmt: skip

    def serve(self) -> None:
        """Answer questions until the judge has no more."""
        try:
            while True:
                self._channel.send(self._answer(self._channel.receive()))
        except WireError:
            return

    def _answer(self, question: list[Any]) -> list[Any]:
        try:
            value = self._answers[question[0]](*question[1:])
            answer = ["value", encode(value, self._by_name)]
            if question[0] == "call" and (changed := self._changed):
                answer.append(changed)
            return answer
        except WireError:
            raise
        except BaseException as error:
            text = ""
            try:
                text = str(error)[:_FEW]
            except Exception:
                text = "an error that cannot tell of itself"
            kinds = [kind.__name__ for kind in type(error).__mro__]
            return ["error", kinds, text]

    def _load(self, text: str) -> None:
        sys.modules["program"] = self._module
        code = compile(text, "<program>", "exec", dont_inherit=True)
        exec(code, self._module.__dict__)  # noqa: S102  what this process is for

    def _named(self, name: str) -> Any:
        try:
            return self._module.__dict__[name]
        except KeyError:
            raise NameError(name) from None

    def _call(self, what: Any, positional: list[Any], named: dict[str, Any]) -> Any:
        """Call a function; arguments that the call changed in place are returned with the
        answer."""
        self._changed = []
        function, arguments = self._value(what), [self._value(one) for one in positional]
        result = function(*arguments, **{key: self._value(one) for key, one in named.items()})
        self._changed = [
            [at, form]
            for at, (before, after) in enumerate(zip(positional, arguments, strict=True))
            if type(after) in (list, dict, set, bytearray)
            and (form := encode(after, self._by_name)) != before
        ]
        return result

    def _by_name(self, value: Any) -> list[Any]:
        self._held[id(value)] = value  # which keeps it, so that its id stays its own
        return ["held", id(value)]

    def _value(self, form: Any) -> Any:
        return decode(form, self._resolve)

    def _resolve(self, kind: str, what: Any) -> Any:
        if kind == "held":
            return self._held[what]
        if kind == "builtin":
            return getattr(builtins, what)
        assert kind == "judge's", kind
        return lambda *arguments: self._call_back(what, arguments)

    def _call_back(self, what: int, arguments: tuple[Any, ...]) -> Any:
        """Call a function of the tests, which runs in the judge's process."""
        self._channel.send(["call", what, [encode(one, self._by_name) for one in arguments]])
        while True:
            message = self._channel.receive()
            if message[0] == "value":
                return self._value(message[1])
            if message[0] == "error":
                raise RuntimeError(message[1])
            self._channel.send(self._answer(message))


def leave_nothing_open(channel: int, output: int) -> None:
    """Close every file but the channel and one for all output; input is empty."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.closerange(3, channel)
    os.closerange(channel + 1, 65536)
    sys.stdin, sys.argv = open(0, closefd=False), ["program"]  # noqa: SIM115
    for number in (1, 2):  # nothing waits in a buffer when this process is ended
        stream = open(number, "w", buffering=1, errors="replace", closefd=False)  # noqa: SIM115
        setattr(sys, ("stdout", "stderr")[number - 1], stream)
