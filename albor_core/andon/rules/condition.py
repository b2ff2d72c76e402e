"""The parsed condition of a rule, as plain values: figures, windows over them, and a test.

`str` of each is its canonical text, which parses to the same value and names the state that an
engine keeps for it. Counts are steps in a function and after `over`, values after `for`, `rises`
and `falls`; conditions on the machine have no steps, and use durations instead.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from albor_core.run.headlines import HOUSE_NAMES, RULE_NAMES

NAMES: Mapping[str, str] = {**HOUSE_NAMES, **RULE_NAMES}
"""The short names of logged figures, and the journal key of each."""
MACHINE_UNITS: Mapping[str, str] = {
    "gpu.temperature": "celsius",
    "gpu.utilization": "percent",
    "gpu.memory": "bytes",
    "gpu.memory_percent": "percent",
    "gpu.power": "watts",
    "host.cpu": "percent",
    "disk_free": "bytes",
    "memory_free": "bytes",
    "seconds_since_step": "seconds",
}
"""Figures of the clock and the machine, and what they are in. `gpu.` is any GPU, `gpu3.` one."""
SILENCE = "seconds_since_step"

OPS: Mapping[str, tuple[Callable[[float, float], bool], str, str]] = {
    # operator: test, its opposite for people, the word in a rule id
    ">": (operator.gt, "<=", "gt"),
    ">=": (operator.ge, "<", "ge"),
    "<": (operator.lt, ">=", "lt"),
    "<=": (operator.le, ">", "le"),
    "==": (operator.eq, "!=", "eq"),
    "!=": (operator.ne, "==", "ne"),
}
_GPU = re.compile(r"gpu(\d*)\.(\w+)")
_BARE = re.compile(r"[A-Za-z_][\w.@/-]*")
WORDS = frozenset(("is", "not", "rises", "falls", "for", "over", "no", "nan", "inf", "finite"))


@dataclass(frozen=True)
class Constant:
    value: float
    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class FigureTerm:
    """One logged or measured figure; `name` is the name that the user gave."""

    key: str
    name: str
    is_machine: bool = False

    @property
    def is_any_gpu(self) -> bool:
        return self.is_machine and self.key.startswith("gpu.")

    def of_gpu(self, gpu: str) -> str:
        """The key of this figure on one GPU, such as gpu3."""
        return gpu + self.key.removeprefix("gpu") if gpu and self.is_any_gpu else self.key

    def __str__(self) -> str:
        plain = _BARE.fullmatch(self.name) and self.name not in WORDS
        is_ours = self.is_machine or NAMES.get(self.name, self.name) == self.key
        if plain and is_ours and self.is_machine == (unit_of_machine(self.name) is not None):
            return self.name
        mark = "'" if '"' in self.key else '"'
        return f"{mark}{self.key}{mark}"


Function = Literal["median", "mean", "min", "max", "ema", "plateau"]
FUNCTIONS: tuple[Function, ...] = ("median", "mean", "min", "max", "ema", "plateau")


@dataclass(frozen=True)
class Windowed:
    """A function of the last `size` steps of a figure; on the machine, of so many seconds."""

    function: Function
    of: FigureTerm
    size: float
    text: str  # of the size, as written

    def __str__(self) -> str:
        return f"{self.function}({self.of}, {self.text})"


@dataclass(frozen=True)
class Arithmetic:
    op: Literal["+", "-", "*", "/"]
    left: Expression
    right: Expression

    def __str__(self) -> str:
        def side(part: Expression, weak: tuple[str, ...]) -> str:
            is_weak = isinstance(part, Arithmetic) and part.op in weak
            return f"({part})" if is_weak else str(part)

        left = side(self.left, ("+", "-") if self.op in "*/" else ())
        weak = {"*": ("+", "-", "*", "/"), "/": ("+", "-", "*", "/"), "+": (), "-": ("+", "-")}
        right = side(self.right, weak[self.op] if self.op != "+" else ("+", "-"))
        return f"{left} {self.op} {right}"


Expression = Constant | FigureTerm | Windowed | Arithmetic


def parts(expression: Expression) -> Iterator[Expression]:
    """An expression and all expressions within it."""
    yield expression
    if isinstance(expression, Arithmetic):
        yield from parts(expression.left)
        yield from parts(expression.right)
    elif isinstance(expression, Windowed):
        yield expression.of


@dataclass(frozen=True)
class Hold:
    """How long a test must hold: a number of values in a row, or of seconds."""

    values: int = 0
    seconds: float = 0.0
    text: str = ""


@dataclass(frozen=True)
class Comparison:
    op: str
    right: Expression

    def __str__(self) -> str:
        return f"{self.op} {self.right}"


@dataclass(frozen=True)
class Kind:
    """The test `is nan`, `is inf` or `is finite`, also with `not`."""

    word: Literal["nan", "inf", "finite"]
    is_negated: bool = False

    def holds(self, value: float) -> bool:
        test = {"nan": math.isnan, "inf": math.isinf, "finite": math.isfinite}[self.word]
        return test(value) != self.is_negated

    def __str__(self) -> str:
        return f"is {'not ' * self.is_negated}{self.word}"


@dataclass(frozen=True)
class Streak:
    """The test `rises 3`: that many values in a row, each above the one before."""

    is_rise: bool
    times: int

    def __str__(self) -> str:
        return f"{'rises' if self.is_rise else 'falls'} {self.times}"


@dataclass(frozen=True)
class WindowChange:
    """The test `rises 5% over 500`: by an amount or a share, within so many steps (or seconds)."""

    is_rise: bool
    by: float
    is_share: bool
    over: float
    text: str

    def __str__(self) -> str:
        return f"{'rises' if self.is_rise else 'falls'} {self.text}"


Test = Comparison | Kind | Streak | WindowChange


@dataclass(frozen=True)
class Condition:
    """A condition: `left test [for hold]`."""

    left: Expression
    test: Test
    hold: Hold | None = None

    def __str__(self) -> str:
        if self.is_silence and isinstance(self.test, Comparison):
            return f"no step for {self.test.right}"
        return f"{self.left} {self.test}" + (f" for {self.hold.text}" if self.hold else "")

    @cached_property
    def is_silence(self) -> bool:
        return isinstance(self.left, FigureTerm) and self.left.key == SILENCE

    @cached_property
    def reads(self) -> Literal["steps", "machine"]:
        """The kind of figures it reads: logged values, or the clock and the machine."""
        return "machine" if self.figures[0].is_machine else "steps"

    @cached_property
    def figures(self) -> tuple[FigureTerm, ...]:
        """The figures it reads, each once, in its order."""
        sides = [self.left, *((self.test.right,) if isinstance(self.test, Comparison) else ())]
        found = (part for side in sides for part in parts(side) if isinstance(part, FigureTerm))
        return tuple(dict.fromkeys(found))

    @cached_property
    def expressions(self) -> tuple[Expression, ...]:
        sides = [self.left, *((self.test.right,) if isinstance(self.test, Comparison) else ())]
        return tuple(part for side in sides for part in parts(side))

    @property
    def metric(self) -> str:
        """The key of the figure that the condition is about."""
        return self.figures[0].key

    @property
    def op(self) -> str:
        """The operator of a comparison; "" for other tests."""
        return self.test.op if isinstance(self.test, Comparison) else ""

    @cached_property
    def threshold(self) -> float:
        """The number it compares with; NaN if that is an expression."""
        if isinstance(self.test, Comparison):
            right = self.test.right
            return right.value if isinstance(right, Constant) else math.nan
        if isinstance(self.test, WindowChange):
            return self.test.by
        return float(self.test.times) if isinstance(self.test, Streak) else math.nan

    @property
    def is_plain(self) -> bool:
        """Whether each value alone is good or bad: a figure compared with a number, without
        `for`."""
        return (
            isinstance(self.left, FigureTerm)
            and isinstance(self.test, Comparison)
            and isinstance(self.test.right, Constant)
            and self.hold is None
        )

    @cached_property
    def arms(self) -> bool:
        """Whether the rule is inactive until its figure was on the good side: comparisons of logged
        values."""
        return isinstance(self.test, Comparison) and self.reads == "steps"

    def is_bad(self, value: float) -> bool:
        """Whether a value of a plain condition is on the alarm's side. False for NaN."""
        return bool(self.op) and not math.isnan(value) and OPS[self.op][0](value, self.threshold)

    @property
    def good_side(self) -> str:
        """The opposite of a comparison, for sentences: "<= 10"."""
        assert isinstance(self.test, Comparison)
        return f"{OPS[self.op][1]} {self.test.right}"

    @property
    def slug(self) -> str:
        """A word for ids that needs no quoting in a shell: `loss-gt-10`."""
        if self.is_plain and not self.is_silence:
            assert isinstance(self.left, FigureTerm)
            key = self.left.key
            short = next((name for name, its in RULE_NAMES.items() if its == key), self.left.name)
            if not self.left.is_machine:
                text = f"{short}-{OPS[self.op][2]}-{self.threshold:g}".replace("+", "")
                return _safe(text)
        text = str(self)
        for op in sorted(OPS, key=len, reverse=True):
            text = text.replace(f" {op} ", f"-{OPS[op][2]}-")
        return _safe(text.replace("%", "pc"))


def _safe(text: str) -> str:
    return re.sub(r"-+", "-", re.sub(r"[^\w.-]", "-", text, flags=re.ASCII)).strip("-.")[:80] or "r"


def unit_of_machine(name: str) -> str | None:
    """The unit of a machine figure, by its name; None if it is not one."""
    match = _GPU.fullmatch(name)
    return MACHINE_UNITS.get(f"gpu.{match[2]}" if match else name)


def machine_names() -> tuple[str, ...]:
    """The names of machine figures that a user may write."""
    return tuple(name for name in MACHINE_UNITS if name not in (SILENCE, "gpu.memory_percent"))
