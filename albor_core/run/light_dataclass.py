"""`dataclass`, made in a fifth of the time, for classes that every start makes.

The standard one compiles up to six methods a class: 0.5 to 2.5 ms for a frozen one in Python 3.11,
and a cockpit makes a hundred before its first frame. Here `__repr__`, `__eq__`, `__hash__` and the
refusals of a frozen class need no code of their own, and `__init__` is compiled with the first
instance. All else of a class is the standard one's. Not for fields that are keyword-only or an
`InitVar`, nor under a frozen class of the standard one; `inspect.signature` knows the fields from
the first instance on.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import MISSING, FrozenInstanceError
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls: type | None = None, /, *, frozen: bool = False, slots: bool = False) -> Any:
        """The class decorator, bare or called."""
        if cls is None:
            return lambda cls: _made(cls, frozen, slots)
        return _made(cls, frozen, slots)


def _made(cls: Any, is_frozen: bool, has_slots: bool) -> Any:
    own = set(vars(cls))
    cls = dataclasses.dataclass(init=False, repr=False, eq=False, slots=has_slots)(cls)
    compared = [one.name for one in dataclasses.fields(cls) if one.compare]
    values = _getter(compared)

    def __init__(self: Any, *args: Any, **named: Any) -> None:
        cls.__init__ = _init(cls, is_frozen)
        cls.__init__(self, *args, **named)

    def __eq__(self: Any, other: object) -> Any:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return values(self) == values(other)

    def __hash__(self: Any) -> int:
        return hash(values(self))

    methods: dict[str, Any] = {"__init__": __init__, "__repr__": _repr, "__eq__": __eq__}
    if is_frozen:
        methods |= {"__hash__": __hash__, **_refusals(cls)}
        if has_slots:
            methods |= {"__getstate__": _getstate, "__setstate__": _setstate}
    elif "__hash__" not in own:
        cls.__hash__ = None
    for name, method in methods.items():
        if name not in own or (name == "__hash__" and cls.__hash__ is None):
            setattr(cls, name, method)
    return cls


def _getter(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    """The values of fields as a tuple."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda self: tuple(getattr(self, name) for name in names)


@recursive_repr()
def _repr(self: Any) -> str:
    shown = (f"{f.name}={getattr(self, f.name)!r}" for f in dataclasses.fields(self) if f.repr)
    return f"{self.__class__.__qualname__}({', '.join(shown)})"


def _refusals(cls: Any) -> dict[str, Any]:
    """The methods that make instances immutable, with the standard module's wording."""

    def is_kept(self: object, name: str) -> bool:
        return type(self) is cls or name in cls.__dataclass_fields__

    def __setattr__(self: Any, name: str, value: Any) -> None:
        if is_kept(self, name):
            raise FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def __delattr__(self: Any, name: str) -> None:
        if is_kept(self, name):
            raise FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    return {"__setattr__": __setattr__, "__delattr__": __delattr__}


def _getstate(self: Any) -> list[Any]:
    """What `copy` and `pickle` ask of a frozen class with slots, and of one below it."""
    return [getattr(self, one.name) for one in dataclasses.fields(self)]


def _setstate(self: Any, state: list[Any]) -> None:
    for one, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, one.name, value)


def _init(cls: Any, is_frozen: bool) -> Any:
    """The `__init__` of a class, compiled."""
    known: dict[str, Any] = {"_set": object.__setattr__, "_MISSING": MISSING}
    arguments, body = ["self"], []
    for one in dataclasses.fields(cls):
        name, preset = one.name, f"_of_{one.name}"
        argument = value = name
        if one.default is not MISSING:
            known[preset], argument = one.default, f"{name}={preset}"
            value = name if one.init else preset
        elif one.default_factory is not MISSING:
            known[preset], argument = one.default_factory, f"{name}=_MISSING"
            value = f"{preset}() if {name} is _MISSING else {name}" if one.init else f"{preset}()"
        elif not one.init:
            continue
        if one.init:
            arguments.append(argument)
        body.append(f"_set(self, {name!r}, {value})" if is_frozen else f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    lines = "\n    ".join(body or ["pass"])
    exec(f"def __init__({', '.join(arguments)}):\n    {lines}\n", known)  # noqa: S102  of our own fields
    made = known["__init__"]
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    return made
