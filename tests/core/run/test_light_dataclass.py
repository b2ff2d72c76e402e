"""The light `dataclass` is the standard one to whoever uses a class of it."""

from __future__ import annotations

import copy
import dataclasses
from dataclasses import FrozenInstanceError, field
from typing import Any

import pytest

from albor_core.run.light_dataclass import dataclass as light

OPTIONS = [
    {"frozen": frozen, "slots": slots} for frozen in (False, True) for slots in (False, True)
]


def made_by(decorator: Any, options: dict[str, bool]) -> Any:
    @decorator(**options)
    class Row:
        """One of a table."""

        name: str
        parts: list[int] = field(default_factory=list)
        about: str = field(default="", compare=False, repr=False)
        size: int = field(default=3, init=False)
        seen: list[int] = field(default_factory=list, init=False)

        def __post_init__(self) -> None:
            object.__setattr__(self, "about", self.about or f"row {self.name}")

    return Row


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_both_make_equal_classes(options):
    plain, ours = made_by(dataclasses.dataclass, options), made_by(light, options)
    assert ours.__match_args__ == plain.__match_args__
    assert [one.name for one in dataclasses.fields(ours)] == [
        one.name for one in dataclasses.fields(plain)
    ]
    told = []
    for kind in (plain, ours):
        one, other = kind("a", [1]), kind(name="a", parts=[1], about="x")
        assert (one == other, one != kind("b"), one == 3) == (True, True, False)
        assert (one.about, other.about, one.size, one.seen) == ("row a", "x", 3, [])
        assert kind("a").parts is not kind("a").parts
        assert dataclasses.replace(one, name="c") == kind("c", [1])
        assert copy.copy(other) == copy.deepcopy(other) == other
        assert copy.copy(other).about == "x"
        refusals = []
        for wrong in ((), ("a", [], "", 4), ("a", [], "", 4, [])):
            with pytest.raises(TypeError) as refused:
                kind(*wrong)
            refusals.append(str(refused.value))
        with pytest.raises(TypeError, match="unexpected keyword argument 'size'"):
            kind("a", size=4)
        told.append((repr(one), dataclasses.asdict(other), refusals))
    assert told[0] == told[1]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_frozen_ones_refuse_changes_and_have_a_hash(options):
    for kind in (made_by(dataclasses.dataclass, options), made_by(light, options)):
        one = kind("a")
        if not options["frozen"]:
            one.name = "b"
            assert (one.name, kind.__hash__) == ("b", None)
            continue
        with pytest.raises(FrozenInstanceError, match="cannot assign to field 'name'"):
            one.name = "b"
        with pytest.raises(FrozenInstanceError, match="cannot delete field 'name'"):
            del one.name


def test_what_a_class_says_of_itself_stays():
    @light(frozen=True)
    class Own:
        """Compared by its size."""

        text: str

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Own) and len(other.text) == len(self.text)

        def __hash__(self) -> int:
            return len(self.text)

        def __repr__(self) -> str:
            return f"<{self.text}>"

    assert (Own("ab") == Own("cd"), hash(Own("abc")), repr(Own("a"))) == (True, 3, "<a>")


def test_classes_inherit_as_with_the_standard_one():
    @light(frozen=True)
    class Base:
        """A base."""

        x: int = 1

    @light(frozen=True)
    class More(Base):
        """A field more."""

        y: float = 2.0

    class Plain(Base):
        """Not decorated: what is no field of the base may be set."""

    assert (More(), More(3, 4.0).x) == (More(1, 2.0), 3)
    assert More(1) != Base(1)
    plain = Plain(5)
    plain.other = 1
    with pytest.raises(FrozenInstanceError):
        plain.x = 6

    @light(frozen=True, slots=True)
    class Slotted:
        """A base whose state is copied by its fields."""

        x: int

    @light(frozen=True)
    class Longer(Slotted):
        """A field more, outside the slots."""

        y: int

    assert copy.copy(Longer(1, 2)) == copy.deepcopy(Longer(1, 2)) == Longer(1, 2)
    nan = float("nan")
    assert Base(nan) == Base(nan)  # the same object, as in a tuple
    assert {Base(1): "a"}[Base(1)] == "a"
