"""Judges whether a loss is where it should be at its step: on track, above or below. Pure.

Corridor Of earlier runs of the same config: their losses as means of blocks (an 80th of the run,
         and at least four points), and at step t from the lowest at 1.1 t to the highest at 0.9 t,
         since seeds differ most where the curve is steep, both widened by MARGIN or by four
         standard errors of the difference of two block means, whichever is more. The standard error
         comes from the scatter of the quarters of a block about their line, over the blocks near.
         Where the noise is wider than MARGIN, up to nine of the newest blocks are judged as one.
Own fit  Without an earlier run: L(t) = a + b t^-c through the blocks of the run so far (least
         squares for a and b, over a grid of c), which is held against the blocks that follow, with
         the same width or four times the scatter of the fit. It says "above" alone: where the rate
         is lowered the loss falls faster than any power law.
Word     Blocks in a row beyond the same bound, each for one, beyond it by its width again for two:
         ENOUGH of them; else it is on track.
Units    Nats per token; steps. In logarithms, so that widths are shares of the loss.
Source   Kaplan et al. 2020, arXiv:2001.08361 (power law of a loss);
         benchmarks/watching/expected_loss.py measures how often it speaks of equal runs, and how
         early of a tenth of the rate.
"""

from __future__ import annotations

import bisect
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from albor_core.andon.health.curve import Curve
from albor_core.run.values.quantity import counted

BLOCKS, _LEAST_POINTS, _POINTS = 80, 40, 4
_QUARTERS = 4
MARGIN, _OWN_MARGIN = 0.03, 0.06
_ERRORS = 4.0
_SHIFT = 0.1
FIRST, ENOUGH, _OWN_ENOUGH = 2, 3, 5
_NEAR = 5
_MOST_JOINED, _MEMORY = 9, 1.3  # neighbouring blocks are not quite independent
_FIT_FROM, _FIT_AGAIN = 16, 1.25  # blocks before the first fit; and how far the next one is
_EXPONENTS = tuple(0.05 * k for k in range(1, 31))
ON_TRACK, ABOVE, BELOW = "on track", "above", "below"


@dataclass(frozen=True)
class Expectation:
    """The verdict on the newest block: `value` is its mean (of several blocks, if they are noisy),
    it ends at `step`; `low` and `high` are its bounds."""

    word: str
    step: float
    value: float
    low: float
    high: float
    source: str
    """What it is held against: "3 earlier runs", "its own curve"."""

    @property
    def words(self) -> str:
        """A description on one line: "above: 3.412 at step 1,200, expected 2.911 to 3.104 (2
        earlier runs)"."""
        expected = f"expected {self.low:.4g} to {self.high:.4g}"
        if self.low <= 0:
            expected = f"expected at most {self.high:.4g}"
        return f"{self.word}: {self.value:.4g} at step {self.step:,.0f}, {expected} ({self.source})"

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


class _Block(NamedTuple):
    """Points of a curve joined to one: `end` is the last step; `middle` and `log` are means of the
    steps and of the log-losses; `error` the standard error of `log`, None if it has too few
    points."""

    end: float
    middle: float
    log: float
    error: float | None


class _Near(NamedTuple):
    """A block's log-loss between the lowest and the highest of earlier runs."""

    log: float
    low: float
    high: float
    error: float
    runs: int


class _Bounds(NamedTuple):
    """The bounds of a block, in logarithms: `width` is how far they were widened."""

    log: float
    low: float
    high: float
    width: float
    source: str


class _Blocks:
    """A curve as blocks of at least a given number of steps, built point by point."""

    def __init__(self, length: float) -> None:
        self.length = length
        self.done: list[_Block] = []
        self._number = 0
        self._points: list[tuple[float, float]] = []

    def take(self, step: float, loss: float) -> bool:
        """Add a point; return whether it completed the block before it, to which it does not
        belong."""
        if not (math.isfinite(loss) and loss > 0):
            return False
        number, is_done = math.floor((step - 1) / self.length), False
        if self._points and step <= self._points[-1][0]:  # a rollback: its path is another now
            self.done = [block for block in self.done if block.end < step]
            self._points = [point for point in self._points if point[0] < step]
        elif number != self._number and len(self._points) >= _POINTS:
            self.done.append(_block(self._points))
            self._points, is_done = [], True
        if not self._points:
            self._number = number
        self._points.append((step, math.log(loss)))
        return is_done

    def finish(self) -> list[_Block]:
        """All blocks, including the unfinished last one."""
        if self._points:
            self.done.append(_block(self._points))
            self._points = []
        return self.done

    def to_json(self) -> dict[str, Any]:
        return {
            "done": [list(block) for block in self.done],
            "number": self._number,
            "points": [list(point) for point in self._points],
        }

    def load(self, saved: Mapping[str, Any]) -> None:
        self.done = [_Block(*block) for block in saved["done"]]
        self._number = int(saved["number"])
        self._points = [(float(a), float(b)) for a, b in saved["points"]]


def _block(points: Sequence[tuple[float, float]]) -> _Block:
    middle = statistics.fmean(step for step, _ in points)
    log = statistics.fmean(value for _, value in points)
    return _Block(points[-1][0], middle, log, _error(points))


def _error(points: Sequence[tuple[float, float]]) -> float | None:
    """The standard error of the mean, from the scatter of the quarters' means about their line (two
    degrees of freedom), which covers noise with a memory of up to a quarter."""
    count = len(points)
    if count < _QUARTERS:
        return None
    cuts = [round(count * k / _QUARTERS) for k in range(_QUARTERS + 1)]
    means = [statistics.fmean(v for _, v in points[a:b]) for a, b in pairwise(cuts)]
    slope = sum((k - 1.5) * mean for k, mean in enumerate(means)) / 5.0
    middle = statistics.fmean(means)
    squares = sum((mean - middle - slope * (k - 1.5)) ** 2 for k, mean in enumerate(means))
    return math.sqrt(squares / (_QUARTERS - 2) / _QUARTERS)


def _error_near(blocks: Sequence[_Block], index: int) -> float:
    """The root mean square of the errors of the blocks near one."""
    near = blocks[max(0, index - _NEAR) : index + _NEAR + 1]
    known = [block.error * block.error for block in near if block.error is not None]
    return math.sqrt(statistics.fmean(known)) if known else 0.0


def _at(blocks: Sequence[_Block], step: float) -> tuple[float, float]:
    """Log-loss and its error at a step, interpolated linearly between the middles of blocks."""
    index = bisect.bisect_left([block.middle for block in blocks], step)
    if index == 0 or index == len(blocks):
        index = min(index, len(blocks) - 1)
        return blocks[index].log, _error_near(blocks, index)
    left, right = blocks[index - 1], blocks[index]
    share = (step - left.middle) / (right.middle - left.middle)
    return left.log + share * (right.log - left.log), _error_near(blocks, index)


@dataclass(frozen=True)
class PowerLaw:
    """L(t) = a + b t^-c; `scatter` is the standard deviation about it, as a share of the loss."""

    a: float
    b: float
    c: float
    scatter: float

    def at(self, step: float) -> float:
        return self.a + self.b * math.pow(step, -self.c)


def fit_power_law(points: Iterable[tuple[float, float]]) -> PowerLaw | None:
    """Fit a power law to (step, loss), weighted evenly in log(step); None for fewer than four
    points, or if the loss does not fall. a and b by least squares, c by the best of a grid; a is at
    least 0.
    """
    known = [(t, y) for t, y in points if t > 0 and math.isfinite(y)]
    if len(known) < 4:
        return None
    weights = _log_weights([t for t, _ in known])
    best: tuple[float, PowerLaw] | None = None
    for c in _EXPONENTS:
        a, b = _line([t**-c for t, _ in known], [y for _, y in known], weights)
        if b <= 0:
            continue
        pairs = zip(known, weights, strict=True)
        squares = sum(w * (y - a - b * t**-c) ** 2 for (t, y), w in pairs)
        if best is None or squares < best[0]:
            level = abs(known[-1][1]) or 1.0
            scatter = math.sqrt(squares / sum(weights) * len(known) / max(1, len(known) - 3))
            best = squares, PowerLaw(a, b, c, scatter / level)
    return None if best is None else best[1]


def _log_weights(steps: Sequence[float]) -> list[float]:
    """The weight of each point: the length of the axis of log(step) that it stands for."""
    logs = [math.log(step) for step in steps]
    edges = [logs[0], *((x + y) / 2 for x, y in pairwise(logs)), logs[-1]]
    return [max(high - low, 1e-9) for low, high in pairwise(edges)]


def _line(x: Sequence[float], y: Sequence[float], w: Sequence[float]) -> tuple[float, float]:
    """Intercept, at least 0, and slope of the weighted least squares line."""
    total = sum(w)
    mean_x = sum(wi * xi for wi, xi in zip(w, x, strict=True)) / total
    mean_y = sum(wi * yi for wi, yi in zip(w, y, strict=True)) / total
    spread = sum(wi * (xi - mean_x) ** 2 for wi, xi in zip(w, x, strict=True))
    joint = sum(wi * (xi - mean_x) * (yi - mean_y) for wi, xi, yi in zip(w, x, y, strict=True))
    slope = joint / spread if spread > 0 else 0.0
    if (intercept := mean_y - slope * mean_x) >= 0:
        return intercept, slope
    squares = sum(wi * xi * xi for wi, xi in zip(w, x, strict=True))
    return 0.0, sum(wi * xi * yi for wi, xi, yi in zip(w, x, y, strict=True)) / squares


class ExpectedLoss:
    """Judges one run's curve, point by point."""

    def __init__(
        self, references: Sequence[Curve] = (), *, num_steps: float | None = None, warmup: float = 0
    ) -> None:
        """`references` are losses of earlier runs of the same config; `num_steps` the planned last
        step; before `warmup` ends no power law holds.
        """
        usable = [curve for curve in references if len(curve.steps) >= _LEAST_POINTS]
        self._length = _block_length(usable, num_steps)
        self._warmup = warmup
        self._references = [_blocks_of(curve, self._length) for curve in usable]
        self._own = _Blocks(self._length or 1.0)
        self._law: PowerLaw | None = None
        self._fitted = 0
        self._side, self._weight = ON_TRACK, 0
        self.newest: Expectation | None = None
        """None before there is something to say."""

    def take(self, step: float, loss: float) -> Expectation | None:
        """Add a logged loss; return the verdict if it completes a block, else None."""
        if self._length is None or not self._own.take(step, loss):
            return None
        blocks = self._own.done
        bounds = self._corridor() if self._references else self._fit()
        if bounds is None or len(blocks) < FIRST:
            return None
        log, low, high, width, source = bounds
        beyond = max(log - high, low - log) / width
        side = ON_TRACK if beyond <= 0 else ABOVE if log > high else BELOW
        self._weight = (self._weight if side == self._side else 0) + 1 + (beyond > 1)
        self._side = side
        is_sure = self._weight >= (ENOUGH if self._references else _OWN_ENOUGH)
        word = side if is_sure else ON_TRACK
        losses = (_loss(log), _loss(low), _loss(high))
        self.newest = Expectation(word, blocks[-1].end, *losses, source)
        return self.newest

    def _corridor(self) -> _Bounds | None:
        """The bounds from earlier runs, over as many of the newest blocks as make the noise small
        against MARGIN, if there are that many: one if it is small already.
        """
        blocks = self._own.done
        newest = self._between(len(blocks) - 1)
        if newest is None:
            return None
        count = math.ceil((_ERRORS * newest.error / MARGIN) ** 2)
        count = max(1, min(count, _MOST_JOINED, len(blocks) // 2))
        joined = [one for k in range(count) if (one := self._between(len(blocks) - 1 - k))]
        memory = _MEMORY if len(joined) > 1 else 1.0
        width = max(MARGIN, memory * _ERRORS * newest.error / math.sqrt(len(joined)))
        return _Bounds(
            statistics.fmean(one.log for one in joined),
            statistics.fmean(one.low for one in joined) - width,
            statistics.fmean(one.high for one in joined) + width,
            width,
            counted(newest.runs, "earlier run"),
        )

    def _between(self, index: int) -> _Near | None:
        """One block and what earlier runs did at its steps; None beyond the end of all of them."""
        block, own_error = self._own.done[index], _error_near(self._own.done, index)
        near = [one for one in self._references if one and one[-1].end >= block.middle]
        if not near:
            return None
        found = [
            _at(one, block.middle * shift) for one in near for shift in (1 - _SHIFT, 1 + _SHIFT)
        ]
        error = max(math.hypot(other, own_error) for _, other in found)
        logs = [log for log, _ in found]
        return _Near(block.log, min(logs), max(logs), error, len(near))

    def _fit(self) -> _Bounds | None:
        """The bounds of the newest block, from a power law through the earlier ones."""
        blocks = self._own.done
        if self._law is None or len(blocks) >= self._fitted * _FIT_AGAIN:
            kept = [block for block in blocks if block.middle > self._warmup][:-1]
            if len(kept) < _FIT_FROM:
                return None
            if self._side != ABOVE:  # what is judged would else become what is expected
                self._law = fit_power_law((b.middle, math.exp(b.log)) for b in kept)
                self._fitted = len(blocks)
        if self._law is None:
            return None
        error = _error_near(blocks, len(blocks) - 1)
        width = max(_OWN_MARGIN, _ERRORS * error, _ERRORS * self._law.scatter)
        expected = math.log(self._law.at(blocks[-1].middle))
        return _Bounds(blocks[-1].log, -math.inf, expected + width, width, "its own curve")

    def to_json(self) -> dict[str, Any]:
        law = None if self._law is None else asdict(self._law)
        return {
            "own": self._own.to_json(),
            "law": law,
            "fitted": self._fitted,
            "side": self._side,
            "weight": self._weight,
            "length": self._length,
        }

    def load(self, saved: Mapping[str, Any]) -> None:
        """Restore the state that `to_json` returned; blocks of another length begin anew."""
        if saved["length"] != self._length:
            return
        self._own.load(saved["own"])
        self._law = None if saved["law"] is None else PowerLaw(**saved["law"])
        self._fitted, self._side, self._weight = saved["fitted"], saved["side"], saved["weight"]


def _block_length(references: Sequence[Curve], num_steps: float | None) -> float | None:
    """Steps per block; None if the length of the run is unknown."""
    ends = [float(curve.steps[-1]) for curve in references]
    steps = num_steps if num_steps is not None else max(ends, default=0.0)
    return steps / BLOCKS if steps > 0 else None


def _blocks_of(curve: Curve, length: float | None) -> list[_Block]:
    blocks = _Blocks(length or 1.0)
    for step, value in zip(curve.steps, curve.values, strict=True):
        blocks.take(step, value)
    return blocks.finish()


def _loss(log: float) -> float:
    """The loss of a logarithm: 0 or infinity if that is beyond a float."""
    try:
        return math.exp(log)
    except OverflowError:
        return math.inf
