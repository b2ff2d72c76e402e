"""The process that holds the tests: it calls what the program defined, and reports the result.

The program runs in another process and sees only the arguments of calls. Plain values come back by
value and are compared here, so that nothing the program does to `assert`, to `==` or to its
builtins affects the comparison.
"""

from __future__ import annotations

import ast
import builtins
import types
from typing import Any

from albor_core.eval.code.sandbox.wire import FrameChannel, WireError, decode, encode

_FEW = 300  # characters of what went wrong


class ProgramError(Exception):
    """An exception of the program whose class does not exist here."""


class Judge:
    """Runs the tests of one program."""

    def __init__(self, channel: FrameChannel) -> None:
        self._channel = channel
        self._functions: dict[int, Any] = {}
        self._broken = ""
        self.changed: list[Any] = []

    def verdict(self, program: str, helpers: str, tests: str, names: list[str]) -> tuple[str, str]:
        """`passed`, `failed` (a test) or `error` (before any test), and a description of the error.

        `helpers` is code of the task that its tests rely on, run here as well; other names in
        `tests` are the program's.
        """
        try:
            self.ask("load", program)
        except Exception as error:
            return "error", _told(error)
        space: dict[str, Any] = {"__name__": "tests"}
        try:
            self._run(helpers, space, "<prompt>")
        except Exception:
            space = {"__name__": "tests"}  # a prompt that is not code by itself
        try:
            tree = ast.parse(tests)
            self._fetch(tree, names, space)
            self._run(tests, space, "<tests>")
        except Exception as error:
            return "failed", _told(error, tests)
        if self._broken:  # whatever the tests made of it
            return "failed", self._broken
        return "passed", ""

    def _run(self, text: str, space: dict[str, Any], name: str) -> None:
        exec(compile(text, name, "exec", dont_inherit=True), space)  # noqa: S102  in the sandbox

    def _fetch(self, tree: ast.AST, names: list[str], space: dict[str, Any]) -> None:
        """Fetch the program's definitions by name into `space`; missing ones stay undefined."""
        used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        for name in sorted(used.union(names)):
            is_known = name in space or hasattr(builtins, name)
            if name in names or not is_known:
                space.pop(name, None)
                try:
                    space[name] = self.ask("name", name)
                except NameError:
                    continue

    def ask(self, *question: Any) -> Any:
        """The program's answer to a question; raises what the program raised. The program may call
        functions that it was given while it computes the answer.
        """
        try:
            return self._asked(question)
        except WireError as error:
            self._broken = str(error)
            raise

    def _asked(self, question: tuple[Any, ...]) -> Any:
        self._channel.send(list(question))
        while True:
            match self._channel.receive():
                case ["value", form, *changed]:
                    self.changed = changed[0] if changed else []
                    return self.value(form)
                case ["error", list() as kinds, str() as text]:
                    raise _error(kinds, text)
                case ["call", int() as what, list() as arguments]:
                    self._channel.send(self._called(what, arguments))
                case _:
                    raise WireError("the program's answer cannot be read")

    def _called(self, what: int, arguments: list[Any]) -> list[Any]:
        try:
            result = self._functions[what](*map(self.value, arguments))
            return ["value", self.form(result)]
        except Exception as error:
            return ["error", f"{type(error).__name__}: {error}"[:_FEW]]

    def value(self, form: Any) -> Any:
        return decode(form, self._resolve)

    def form(self, value: Any) -> Any:
        return encode(value, self._by_name)

    def _resolve(self, kind: str, what: Any) -> Any:
        if kind != "held" or type(what) is not int:
            raise WireError("the program's answer cannot be read")
        return RemoteValue(self, what)

    def _by_name(self, value: Any) -> list[Any]:
        if isinstance(value, RemoteValue):
            return ["held", value._id]
        name = getattr(value, "__name__", "")
        if getattr(builtins, name, None) is value:
            return ["builtin", name]
        if isinstance(value, types.FunctionType | types.BuiltinFunctionType | types.MethodType):
            self._functions[id(value)] = value
            return ["judge's", id(value)]
        raise TypeError(f"the tests pass a {type(value).__name__}, which cannot be passed on")


class RemoteValue:
    """A value of the program's that is not a plain value: a function, a class, an object.

    It equals another one if the program says so, and never a plain value.
    """

    __slots__ = ("_id", "_judge")
    _id: int
    _judge: Judge

    def __init__(self, judge: Judge, what: int) -> None:
        object.__setattr__(self, "_judge", judge)
        object.__setattr__(self, "_id", what)

    def _ask(self, verb: str, *rest: Any) -> Any:
        return self._judge.ask(verb, ["held", self._id], *rest)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        form = self._judge.form
        result = self._ask(
            "call", [form(one) for one in arguments], {key: form(one) for key, one in named.items()}
        )
        for at, changed in self._judge.changed:
            _change(arguments[at], self._judge.value(changed))
        return result

    def __getattr__(self, name: str) -> Any:
        return self._ask("get", name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._ask("set", name, self._judge.form(value))

    def __getitem__(self, key: Any) -> Any:
        return self._ask("item", self._judge.form(key))

    def __contains__(self, what: Any) -> bool:
        return self._ask("in", self._judge.form(what)) is True

    def __iter__(self) -> Any:
        return self._ask("iter")

    def __next__(self) -> Any:
        return self._ask("next")

    def __len__(self) -> int:
        return int(self._ask("len"))

    def __bool__(self) -> bool:
        return self._ask("bool") is True

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RemoteValue) and self._ask("same", ["held", other._id]) is True

    def __hash__(self) -> int:
        return self._id

    def __str__(self) -> str:
        return str(self._ask("str"))

    def __repr__(self) -> str:
        return str(self._ask("repr"))


def _change(old: Any, new: Any) -> None:
    """Change `old` in place to equal `new`, as happened in the program's process."""
    if type(old) is not type(new):
        raise WireError("the program's answer cannot be read")
    if isinstance(old, list | bytearray):
        old[:] = new
    elif isinstance(old, dict | set):
        old.clear()
        old.update(new)


def _error(kinds: list[Any], text: str) -> Exception:
    for kind in kinds:
        known = getattr(builtins, kind, None) if isinstance(kind, str) else None
        if isinstance(known, type) and issubclass(known, Exception) and known is not Exception:
            try:
                return known(text)
            except TypeError:
                break  # one that wants more than a text
    first = kinds[0] if kinds and isinstance(kinds[0], str) else "?"
    return ProgramError(f"{first}: {text}")


def _told(error: Exception, tests: str = "") -> str:
    line, trace = "", error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == "<tests>":
            lines = tests.splitlines()
            at = trace.tb_lineno - 1
            line = lines[at].strip() if at < len(lines) else ""
        trace = trace.tb_next
    name = "" if isinstance(error, WireError | ProgramError) else type(error).__name__
    said = ": ".join(part for part in (name, str(error)) if part)
    return f"{said[:_FEW]} at {line[:_FEW]}" if line else said[:_FEW]
