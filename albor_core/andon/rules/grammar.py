"""The grammar of conditions, without eval: text to a Condition, or an error with its column.

    condition  = "no step for" DURATION
               | sum OP sum [hold] | sum "is" ["not"] ("nan" | "inf" | "finite") [hold]
               | sum ("rises" | "falls") (COUNT | NUMBER["%"] "over" SPAN)
    hold       = "for" (COUNT | DURATION)
    sum        = product {("+" | "-") product};  product = factor {("*" | "/") factor}
    factor     = NUMBER[unit] | NAME | "(" sum ")" | FUNCTION "(" [NAME ","] SPAN ")"

A NAME is a short name (`loss`), a journal key, a figure of the machine, or anything in quotes.
Names may hold - and /, so those stand between spaces where they are arithmetic. A function that
names no figure is of the one that the condition begins with.
"""

from __future__ import annotations

import difflib
import math
import re
from typing import Literal, NamedTuple, NoReturn

from albor_core.andon.rules.condition import (
    FUNCTIONS,
    NAMES,
    OPS,
    SILENCE,
    Arithmetic,
    Comparison,
    Condition,
    Constant,
    Expression,
    FigureTerm,
    Hold,
    Kind,
    Streak,
    WindowChange,
    Windowed,
    machine_names,
    parts,
    unit_of_machine,
)
from albor_core.run.errors import ConfigError
from albor_core.run.headlines import unit_of

MAX_TEXT = 400
MAX_COUNT = 100_000  # steps or values that an engine keeps at most
MAX_SECONDS = 30 * 86400.0
MAX_DEPTH = 20

SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
BYTES = {
    **{"KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12},
    **{"KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30, "TiB": 2.0**40},
}
COUNTS = {"K": 1024.0, "M": 1e6, "G": 2.0**30, "B": 1e9, "T": 1e12}
"""As everywhere in a config (run.values.numbers)."""

_EXAMPLES = {"bytes": "20GB", "percent": "70%", "celsius": "85", "watts": "300", "seconds": "60s"}

_TOKEN = re.compile(
    r"""(?P<space>\s+)
    |(?P<number>(?:\d[\d_]*(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)(?P<unit>%|[A-Za-z]\w*)?
    |(?P<name>[A-Za-z_](?:[\w.@]|[-/](?=\w))*)
    |(?P<quoted>"[^"]*"|'[^']*')
    |(?P<op>>=|<=|==|!=|[><+*/(),-])""",
    re.VERBOSE | re.ASCII,
)


class _Token(NamedTuple):
    kind: Literal["number", "name", "quoted", "op", "end"]
    text: str
    column: int
    unit: str = ""


def parse_condition(text: str) -> Condition:
    """Parse `loss > 10` to a Condition. Raises ConfigError that names text, column and the
    error."""
    if not isinstance(text, str) or not text.strip():
        raise ConfigError(f"alert condition {text!r} is empty", hint="for example: loss > 10")
    return _Parser(text).condition()


class _Parser:
    def __init__(self, text: str) -> None:
        self.text, self.at, self.depth = text, 0, 0
        self.tokens: list[_Token] = []
        if len(text) > MAX_TEXT:
            self.fail(MAX_TEXT + 1, f"more than {MAX_TEXT} characters")
        self.tokens = self._tokens()

    def _tokens(self) -> list[_Token]:
        found, at = [], 0
        while at < len(self.text):
            match = _TOKEN.match(self.text, at)
            if match is None:
                self._strange(at)
            kind = match.lastgroup or ""
            if kind in ("number", "unit"):
                found.append(_Token("number", match["number"], at + 1, match["unit"] or ""))
            elif kind == "name":
                found.append(_Token("name", match[0], at + 1))
            elif kind == "quoted":
                found.append(_Token("quoted", match[0][1:-1], at + 1))
            elif kind == "op":
                found.append(_Token("op", match[0], at + 1))
            at = match.end()
        return [*found, _Token("end", "", len(self.text) + 1)]

    def _strange(self, at: int) -> NoReturn:
        sign = self.text[at]
        hint = {"=": "comparisons are " + " ".join(OPS), "!": "is not equal is !="}.get(sign, "")
        if sign in "\"'":
            hint = "a key in quotes ends with the quote that it began with"
        self.fail(at + 1, f"{sign!r} is not understood", hint)

    def fail(self, column: int, why: str, hint: str = "") -> NoReturn:
        raise ConfigError(
            f"alert condition {self.text!r}: column {column}: {why}",
            hint=hint or "for example: loss > 10",
        )

    @property
    def now(self) -> _Token:
        return self.tokens[self.at]

    def take(self) -> _Token:
        token = self.tokens[self.at]
        self.at = min(self.at + 1, len(self.tokens) - 1)
        return token

    def take_if(self, *words: str) -> _Token | None:
        is_word = self.now.kind in ("op", "name") and self.now.text in words
        return self.take() if is_word else None

    def said(self, token: _Token) -> str:
        return "the end" if token.kind == "end" else repr(token.text + token.unit)

    # -- the rules of the grammar, top down

    def condition(self) -> Condition:
        if self.now.text == "no" and self.now.kind == "name" and self.tokens[1].text == "step":
            found = self._silence()
        else:
            found = self._test()
        if self.now.kind != "end":
            more = "" if found.hold else ", or `for` with a count or a time"
            self.fail(self.now.column, f"{self.said(self.now)} was not expected", f"end here{more}")
        machine = [figure for figure in found.figures if figure.is_machine]
        if not found.figures:
            self.fail(1, "no figure is named", "for example: loss > 10")
        if len(machine) not in (0, len(found.figures)):
            why = f"{machine[0]} is of the machine, and what else it reads is logged by steps"
            self.fail(1, why, "write two rules")
        return found

    def _silence(self) -> Condition:
        self.take(), self.take()
        if not self.take_if("for"):
            self.fail(self.now.column, f"{self.said(self.now)} is not `for`", "no step for 120s")
        seconds, text = self._duration()
        figure = FigureTerm(SILENCE, SILENCE, True)
        return Condition(figure, Comparison(">=", Constant(seconds, text)))

    def _test(self) -> Condition:
        start = self.now
        left = self._sum(None)
        first = next((part for part in parts(left) if isinstance(part, FigureTerm)), None)
        if first is None:
            self.fail(start.column, "a condition begins with a figure", "for example: loss > 10")
        token = self.take()
        if token.kind == "op" and token.text in OPS:
            right_at = self.now.column
            right = self._sum(first)
            left, right = self._same_unit(left, right, right_at)
            return Condition(left, Comparison(token.text, right), self._hold())
        if token.kind == "name" and token.text == "is":
            is_negated = self.take_if("not") is not None
            kind = self.take()
            if kind.kind != "name" or kind.text not in ("nan", "inf", "finite"):
                self.fail(kind.column, f"{self.said(kind)} is not nan, inf or finite")
            word: Literal["nan", "inf", "finite"] = kind.text  # type: ignore[assignment]
            return Condition(left, Kind(word, is_negated), self._hold())
        if token.kind == "name" and token.text in ("rises", "falls"):
            return self._trend(left, token.text == "rises", first)
        tests = " ".join(OPS) + ", is, rises or falls"
        self.fail(token.column, f"{self.said(token)} is not a comparison", f"one of {tests}")

    def _trend(self, left: Expression, is_rise: bool, first: FigureTerm) -> Condition:
        number = self.take()
        if number.kind != "number":
            hint = "for example: val_loss rises 3, or loss rises 5% over 500"
            self.fail(number.column, f"{self.said(number)} is not a number", hint)
        if not self.take_if("over"):
            return Condition(left, Streak(is_rise, self._count_of(number)))
        if number.unit not in ("", "%"):
            by = self._unit_value(number, unit_of_machine(first.name) or unit_of(first.key))
        else:
            by = self._real(number) * (0.01 if number.unit == "%" else 1.0)
        if not 0 < by < math.inf:
            self.fail(number.column, f"{self.said(number)} is not above 0")
        span, text = self._span(first)
        said = f"{number.text}{number.unit} over {text}"
        return Condition(left, WindowChange(is_rise, by, number.unit == "%", span, said))

    def _hold(self) -> Hold | None:
        if not self.take_if("for"):
            return None
        if self.now.kind == "number" and self.now.unit in SECONDS:
            seconds, text = self._duration()
            return Hold(seconds=seconds, text=text)
        token = self.take()
        return Hold(values=self._count_of(token), text=token.text)

    def _sum(self, first: FigureTerm | None) -> Expression:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            self.fail(self.now.column, f"more than {MAX_DEPTH} parentheses within each other")
        found = self._product(first)
        while token := self.take_if("+", "-"):
            first = first or next((p for p in parts(found) if isinstance(p, FigureTerm)), None)
            op: Literal["+", "-"] = "+" if token.text == "+" else "-"
            found = Arithmetic(op, found, self._product(first))
        self.depth -= 1
        return found

    def _product(self, first: FigureTerm | None) -> Expression:
        found = self._factor(first)
        while token := self.take_if("*", "/"):
            first = first or next((p for p in parts(found) if isinstance(p, FigureTerm)), None)
            op: Literal["*", "/"] = "*" if token.text == "*" else "/"
            found = Arithmetic(op, found, self._factor(first))
        return found

    def _factor(self, first: FigureTerm | None) -> Expression:
        token = self.take()
        if token.kind == "op" and token.text == "(":
            found = self._sum(first)
            if not self.take_if(")"):
                self.fail(self.now.column, f"{self.said(self.now)} is not `)`")
            return found
        if token.kind == "op" and token.text in "+-":
            return self._constant(self.take(), -1.0 if token.text == "-" else 1.0)
        if token.kind == "number":
            return self._constant(token, 1.0)
        if token.kind == "quoted":
            return self._quoted(token)
        if token.kind == "name":
            if self.now.kind == "op" and self.now.text == "(":
                return self._call(token, first)
            if token.text == "inf":
                return Constant(math.inf, "inf")
            if token.text == "nan":
                self.fail(token.column, "'nan' is not a number to compare with", "write: is nan")
            return self._figure(token, is_first=first is None)
        what = "a figure or a number"
        self.fail(token.column, f"{self.said(token)} is not {what}")

    def _call(self, token: _Token, first: FigureTerm | None) -> Windowed:
        self.take()
        function = next((name for name in FUNCTIONS if name == token.text), None)
        if function is None:
            hint = f"one of {', '.join(FUNCTIONS)}"
            self.fail(token.column, f"{token.text!r} is not a function", hint)
        of = first
        if self.now.kind != "number":
            name = self.take()
            if name.kind not in ("name", "quoted"):
                self.fail(
                    name.column, f"{self.said(name)} is not a figure", f"{function}(loss, 200)"
                )
            of = self._quoted(name) if name.kind == "quoted" else self._figure(name)
            if not self.take_if(","):
                hint = f"{function}({name.text}, 200)"
                self.fail(self.now.column, f"{self.said(self.now)} is not `,`", hint)
        if of is None:
            hint = f"{function}(loss, {self.now.text})"
            self.fail(self.now.column, f"{function} of which figure?", hint)
        size, text = self._span(of)
        if function == "plateau" and size < 2:
            self.fail(self.now.column, "a plateau takes at least 2 steps")
        if not self.take_if(")"):
            self.fail(self.now.column, f"{self.said(self.now)} is not `)`")
        return Windowed(function, of, size, text)

    # -- words and numbers

    def _quoted(self, token: _Token) -> FigureTerm:
        if not token.text.strip() or not token.text.isprintable():
            self.fail(token.column, "a key in quotes is not empty, and is printable")
        return FigureTerm(token.text, token.text)

    def _figure(self, token: _Token, *, is_first: bool = True) -> FigureTerm:
        name = token.text
        if unit_of_machine(name) is not None:
            return FigureTerm(name, name, True)
        if name in NAMES:
            return FigureTerm(NAMES[name], name)
        near = difflib.get_close_matches(name, [*NAMES, *machine_names(), *FUNCTIONS], 1, 0.75)
        if "/" not in name and (near or name.startswith("gpu.")):
            hint = f"did you mean {near[0]}?" if near else f"one of {', '.join(machine_names())}"
            if not name.startswith("gpu."):
                hint += f' A key of that name stands in quotes: "{name}"'
            self.fail(token.column, f"{name!r} is not a metric", hint)
        if "/" not in name and not is_first:
            why = f"{name!r} is not a number or a metric"
            self.fail(token.column, why, f'a key of that name stands in quotes: "{name}"')
        return FigureTerm(name, name)

    def _real(self, token: _Token) -> float:
        try:
            return float(token.text.replace("_", ""))
        except ValueError:
            self.fail(token.column, f"{token.text!r} is not a number")

    def _constant(self, token: _Token, sign: float) -> Constant:
        if token.kind == "name" and token.text == "inf":
            return Constant(sign * math.inf, "-inf" if sign < 0 else "inf")
        if token.kind != "number":
            self.fail(token.column, f"{self.said(token)} is not a number")
        value = sign * self._unit_value(token, "")
        return Constant(value, f"{'-' if sign < 0 else ''}{token.text}{token.unit}")

    def _unit_value(self, token: _Token, unit: str) -> float:
        real, word = self._real(token), token.unit
        if word == "":
            return real
        if word == "%":
            return real * 0.01
        known = SECONDS | BYTES | COUNTS
        if word not in known:
            near = difflib.get_close_matches(word, known, 1, 0.5)
            hint = (
                f"did you mean {token.text}{near[0]}?" if near else "%, s, m, h, GB, GiB, K, M, B"
            )
            self.fail(token.column + len(token.text), f"{word!r} is not a unit", hint)
        return real * known[word] * (1e3 if unit == "ms" and word in SECONDS else 1.0)

    def _count_of(self, token: _Token) -> int:
        real = self._real(token) if token.kind == "number" else math.nan
        if token.unit or not real.is_integer() or not 1 <= real <= MAX_COUNT:
            why = f"{self.said(token)} is not a count from 1 to {MAX_COUNT:,}"
            self.fail(token.column, why, "a whole number, or a time such as 60s after `for`")
        return int(real)

    def _duration(self) -> tuple[float, str]:
        token = self.take()
        real = self._real(token) if token.kind == "number" else math.nan
        if token.unit not in SECONDS:
            why = f"{self.said(token)} is not a time"
            self.fail(token.column, why, "with its unit: 60s, 10m, 2h")
        if not 0 < real * SECONDS[token.unit] <= MAX_SECONDS:
            self.fail(token.column, f"{self.said(token)} is not between 0 and 30 days")
        return real * SECONDS[token.unit], token.text + token.unit

    def _span(self, of: FigureTerm) -> tuple[float, str]:
        """Parse a number of steps, or, on the machine, of seconds."""
        if of.is_machine:
            return self._duration()
        token = self.now
        if token.kind == "number" and token.unit in SECONDS:
            self.fail(token.column, f"{self.said(token)}: windows of {of} count steps, not time")
        return float(self._count_of(self.take())), token.text

    def _same_unit(
        self, left: Expression, right: Expression, column: int
    ) -> tuple[Expression, Expression]:
        """Convert the number of a comparison to the unit of the figure."""
        if not isinstance(right, Constant):
            return left, right
        figure = _figure_of(left)
        unit = re.sub(r"^[-\d._]+(?:[eE][+-]?\d+)?", "", right.text)
        if figure is None or unit in ("", "inf"):
            return left, right
        if figure.is_machine and figure.name.endswith(".memory") and unit == "%":
            percent = FigureTerm(f"{figure.key}_percent", figure.name, True)
            left = percent if left is figure else Windowed(**{**vars(left), "of": percent})
            figure = percent
        wanted = unit_of_machine(figure.key) if figure.is_machine else ""
        kind = _kind_of_unit(unit)
        if figure.is_machine and kind != wanted:
            example = _EXAMPLES[wanted or ""]
            self.fail(column, f"{figure} is not in {unit}", f"for example {example}")
        return left, Constant(right.value * _factor(kind, figure), right.text)


def _figure_of(left: Expression) -> FigureTerm | None:
    """The figure whose unit a comparison has; None for shares and products."""
    if isinstance(left, Windowed) and left.function != "plateau":
        return left.of
    return left if isinstance(left, FigureTerm) else None


def _factor(kind: str, figure: FigureTerm) -> float:
    """The factor that converts a share or seconds to the unit of the figure."""
    if figure.is_machine:
        return 100.0 if kind == "percent" else 1.0
    return 1e3 if kind == "seconds" and unit_of(figure.key) == "ms" else 1.0


def _kind_of_unit(unit: str) -> str:
    if unit in COUNTS:
        return "count"
    return "percent" if unit == "%" else "bytes" if unit in BYTES else "seconds"
