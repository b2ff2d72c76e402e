"""Replays a long history against one rule, column by column: the same results as the engine, but
faster.

If numpy is installed it finds the rows on which a condition may hold, by exact arithmetic or by
bounds; rows that the bounds leave open are computed as the engine does. Stretches of rows that all
hold, or all do not, then go through the engine's own judgement until more rows of the stretch
change nothing. A test compares it with the engine (`rules.engine`). It returns None if this method
is not known to give the same result, or would not be faster.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

from albor_core.andon.alert import Alert
from albor_core.andon.rules.condition import (
    OPS,
    Arithmetic,
    Comparison,
    Constant,
    Expression,
    FigureTerm,
    Kind,
    Streak,
    WindowChange,
    Windowed,
)
from albor_core.andon.rules.engine import RuleEngine, calculate
from albor_core.andon.rules.sources import Rule
from albor_core.andon.rules.windows import MORE_IS_BETTER, improvement, ordered

MOST_OPEN = 50_000  # rows that are computed one by one


def replay_columns(
    rule: Rule, steps: Sequence[int], values: Sequence[float], walls: Sequence[float]
) -> tuple[Alert, ...] | None:
    """The alerts of a rule on one logged figure over its history, with their ends; None if the
    engine has to be used. `steps` rise."""
    condition = rule.condition
    if condition.reads != "steps" or len(condition.figures) != 1 or not len(steps):
        return None
    try:
        import numpy  # noqa: PLC0415  only where it is installed, and a history is long
    except ImportError:
        return None
    columns = _Columns(numpy, steps, values, walls)
    has_window = any(isinstance(part, Windowed) for part in condition.expressions)
    if (has_window or isinstance(condition.test, WindowChange)) and not columns.is_finite:
        return None
    with numpy.errstate(all="ignore"):
        found = columns.judged(condition.left, condition.test)
    return None if found is None else columns.fold(rule, *found)


class _Columns:
    def __init__(
        self,
        numpy: Any,
        steps: Sequence[int],
        values: Sequence[float],
        walls: Sequence[float],
    ) -> None:
        self.np = numpy
        self.at = numpy.asarray(steps, float)
        self.values = numpy.asarray(values, float)
        self.walls = walls
        self.is_finite = bool(numpy.isfinite(self.values).all())
        self._emas: dict[float, Any] = {}
        self._tables: dict[bool, list[Any]] = {}

    def judged(self, left: Expression, test: Any) -> tuple[Any, Any, Any] | None:
        """Which rows are known, which of them are bad, and a function for the (value, threshold) of
        a row."""
        np = self.np
        sides = self.bounds(left)
        if sides is None:
            return None
        low, high, known = sides
        if isinstance(test, Comparison):
            return self._compared(left, test, sides)
        if low is not high:
            return None  # the others are of exact values
        known = known & ~np.isnan(low)
        if isinstance(test, Kind):
            bad = {"nan": np.isnan, "inf": np.isinf, "finite": np.isfinite}[test.word](low)
            known = sides[2] & (known | np.isnan(low))
            return known, bad != test.is_negated, lambda i: (float(low[i]), math.nan)
        rows = np.flatnonzero(known)
        if isinstance(test, Streak):
            kept = low[rows]
            goes = np.concatenate(
                ([False], np.diff(kept) > 0 if test.is_rise else np.diff(kept) < 0)
            )
            index = np.arange(len(rows))
            last_no = np.maximum.accumulate(np.where(goes, -1, index))
            bad = np.zeros(len(low), bool)
            bad[rows] = index - last_no >= test.times
            return known, bad, lambda i: (float(low[i]), float(test.times))
        return self._changed(test, low, rows)

    def _changed(self, test: WindowChange, values: Any, rows: Any) -> tuple[Any, Any, Any] | None:
        np = self.np
        kept, at = values[rows], self.at[rows]
        if not np.isfinite(kept).all():
            return None
        then = np.searchsorted(at, at - test.over, side="right") - 1
        before = kept[np.maximum(then, 0)]
        share = (kept - before) / np.abs(before) if test.is_share else kept - before
        share = share if test.is_rise else -share
        known, bad, all_shares = (np.zeros(len(values), kind) for kind in (bool, bool, float))
        known[rows] = (then >= 0) & ((before != 0) | (not test.is_share))
        bad[rows], all_shares[rows] = share >= test.by, share if test.is_rise else -share
        return known, bad, lambda i: (float(all_shares[i]), test.by)

    def _compared(
        self, left: Expression, test: Comparison, sides: Any
    ) -> tuple[Any, Any, Any] | None:
        np, (low, high, known) = self.np, sides
        other = self.bounds(test.right)
        if other is None:
            return None
        right_low, right_high, right_known = other
        op = OPS[test.op][0]
        known = known & right_known
        if low is high:
            known = known & ~np.isnan(low)
        if right_low is right_high:
            known = known & ~np.isnan(right_low)
        bad = op(low, right_high)
        if low is not high or right_low is not right_high:
            if test.op in ("==", "!="):
                return None
            corners = [op(a, b) for a in (low, high) for b in (right_low, right_high)]
            any_bad, all_bad = np.logical_or.reduce(corners), np.logical_and.reduce(corners)
            open_rows = np.flatnonzero(known & any_bad & ~all_bad)
            if len(open_rows) > MOST_OPEN:
                return None
            bad = all_bad.copy()
            for i in open_rows:
                a, b = self.exact(left, int(i)), self.exact(test.right, int(i))
                if a is None or b is None or math.isnan(a) or math.isnan(b):
                    known[i] = False
                else:
                    bad[i] = op(a, b)
        return known, bad, lambda i: (self.exact(left, i), self.exact(test.right, i))

    # -- expressions

    def bounds(self, expression: Expression) -> tuple[Any, Any, Any] | None:
        """The least and the largest possible value of each row (one array if exact), and whether it
        is known at all."""
        np, size = self.np, len(self.at)
        if isinstance(expression, Constant):
            column = np.full(size, expression.value)
            return column, column, np.ones(size, bool)
        if isinstance(expression, FigureTerm):
            return self.values, self.values, np.ones(size, bool)
        if isinstance(expression, Arithmetic):
            return self._arithmetic(expression)
        known = self.at - expression.size + 1 >= self.at[0]
        if expression.function == "ema":
            column = self._ema(expression.size)
            return column, column, known
        starts = np.searchsorted(self.at, self.at - expression.size, side="right")
        if expression.function in ("min", "max", "median"):
            low = high = None
            if expression.function != "max":
                low = self._extreme(starts, is_max=False)
            if expression.function != "min":
                high = self._extreme(starts, is_max=True)
            return (high if low is None else low), (low if high is None else high), known
        ends = np.arange(size) + 1
        if expression.function == "mean":
            mean, error = self._mean(starts, ends)
            return mean - error, mean + error, known
        middle = np.searchsorted(self.at, self.at - expression.size / 2, side="right")
        before, error = self._mean(starts, middle)
        now, now_error = self._mean(middle, ends)
        gain = (before - now) / np.abs(before)
        gain = -gain if expression.of.key in MORE_IS_BETTER else gain
        slack = 4 * (error + now_error) * (1 + np.abs(gain)) / np.abs(before) + 1e-12
        is_odd = ~(np.abs(before) > 4 * error)
        known = known & (middle > starts) & (ends > middle)
        return (
            np.where(is_odd, -np.inf, gain - slack),
            np.where(is_odd, np.inf, gain + slack),
            known,
        )

    def _arithmetic(self, expression: Arithmetic) -> tuple[Any, Any, Any] | None:
        np = self.np
        left, right = self.bounds(expression.left), self.bounds(expression.right)
        if left is None or right is None:
            return None
        ops = {"+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide}
        op, known = ops[expression.op], left[2] & right[2]
        if expression.op == "/":
            if right[0] is not right[1]:
                return None
            known = known & (right[0] != 0)
        if left[0] is left[1] and right[0] is right[1]:
            column = op(left[0], right[0])
            return column, column, known
        corners = [op(a, b) for a in left[:2] for b in right[:2]]
        return np.fmin.reduce(corners), np.fmax.reduce(corners), known

    def exact(self, expression: Expression, row: int) -> float | None:
        """The engine's value of an expression at a row."""
        if isinstance(expression, Constant):
            return expression.value
        if isinstance(expression, FigureTerm):
            return float(self.values[row])
        if isinstance(expression, Arithmetic):
            left, right = self.exact(expression.left, row), self.exact(expression.right, row)
            return None if left is None or right is None else calculate(expression, left, right)
        if self.at[row] - expression.size + 1 < self.at[0]:
            return None
        if expression.function == "ema":
            return float(self._ema(expression.size)[row])
        now = self.at[row]
        start = int(self.np.searchsorted(self.at, now - expression.size, side="right"))
        values = self.values[start : row + 1].tolist()
        if expression.function == "mean":
            return float(sum(values) / len(values))
        if expression.function == "plateau":
            half = self.np.searchsorted(self.at, now - expression.size / 2, side="right")
            cut = int(half) - start
            return improvement(values[:cut], values[cut:], expression.of.key)
        return ordered(expression.function, sorted(values))

    def _ema(self, size: float) -> Any:
        if size not in self._emas:
            np, keep = self.np, 1.0 - 2.0 / (size + 1.0)
            gaps = np.diff(self.at, prepend=self.at[0])
            keeps = [keep if gap <= 1.0 else keep**gap for gap in gaps.tolist()]
            pairs = zip(self.values.tolist(), keeps, strict=True)
            first = next(pairs)[0]
            averages = itertools.accumulate(
                pairs, lambda mean, one: one[1] * mean + (1.0 - one[1]) * one[0], initial=first
            )
            self._emas[size] = np.fromiter(averages, float, len(self.at))
        return self._emas[size]

    def _extreme(self, starts: Any, *, is_max: bool) -> Any:
        """The extreme of the rows from `starts` to each, by tables of the extremes of 1, 2, 4, ...
        rows."""
        np = self.np
        better = np.maximum if is_max else np.minimum
        ends = np.arange(len(self.at))
        lengths = ends - starts + 1
        depth = int(lengths.max()).bit_length() - 1
        result = np.empty(len(self.at))
        table = self.values
        for level in range(depth + 1):
            wide = 1 << level
            rows = np.flatnonzero((lengths >= wide) & (lengths < 2 * wide))
            result[rows] = better(table[starts[rows]], table[ends[rows] - wide + 1])
            if level < depth:
                table = better(table[:-wide], table[wide:])
        return result

    def _mean(self, starts: Any, ends: Any) -> tuple[Any, Any]:
        """The mean of the rows from `starts` to before `ends`, and its possible rounding error."""
        np = self.np
        sums = np.concatenate(([0], np.cumsum(self.values, dtype=np.longdouble)))
        weight = float(np.abs(self.values).sum()) + 1e-300
        counts = np.maximum(ends - starts, 1)
        mean = ((sums[ends] - sums[starts]) / counts).astype(float)
        rounding = len(sums) * float(np.finfo(np.longdouble).eps) * weight / counts
        return mean, rounding + 1e-12 * np.abs(mean)

    # -- judgement

    def fold(self, rule: Rule, known: Any, bad: Any, at_row: Any) -> tuple[Alert, ...]:
        """Apply the engine's judgement to stretches of equal rows."""
        np, engine, found = self.np, RuleEngine((rule,)), list[Alert]()
        rows = np.flatnonzero(known)
        if not len(rows):
            return ()
        flags = bad[rows]
        edges = np.flatnonzero(np.diff(flags)) + 1
        starts, ends = [0, *edges.tolist()], [*edges.tolist(), len(rows)]
        for start, end in zip(starts, ends, strict=True):
            is_bad = bool(flags[start])
            for i in range(start, end):
                row = int(rows[i])
                value, threshold = at_row(row)
                found += engine.judge_row(
                    rule, is_bad, value, threshold, int(self.at[row]), float(self.walls[row])
                )
                if engine.is_settled(rule, is_bad=is_bad):
                    break
        return tuple(found)
