"""The learning rate of a run over its steps, drawn in cells.

Steps are those of the config, which are counted in sequences (config/clock.py): smaller steps at
the beginning (training.batch_ramp) move nothing here. Pure.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from albor_core.andon.health.schedule import Promise
from albor_core.config.config import Config

ROWS = 5
POINTS = 61
_EIGHTHS = " \u2581\u2582\u2583\u2584\u2585\u2586\u2587\u2588"
_INDENT, _LABEL = 4, 9


def promise_of(config: Config, max_steps: int | None) -> Promise | None:
    """The learning rate schedule of `config`; None while the run's length is unknown."""
    return Promise.from_config(config.resolved(), max_steps) if max_steps else None


def points(promise: Promise, count: int = POINTS) -> list[tuple[float, float]]:
    """(step, rate) at `count` equal distances, from the first step to the last."""
    first, last = 1.0, float(promise.num_steps)
    steps = [first + (last - first) * n / (count - 1) for n in range(count)]
    return [(step, promise.at(step) or 0.0) for step in steps]


def marks(config: Config, promise: Promise) -> list[tuple[float, str]]:
    """The changes of the schedule: (step, what begins or ends there), ascending."""
    training, end = config.training, float(promise.num_steps)
    found = [(float(promise.warmup_steps), "peak")] if promise.warmup_steps else []
    if promise.decay_steps is not None and promise.name != "constant":
        found.append((max(float(promise.warmup_steps), end - promise.decay_steps), "decay"))
    for stage in training.batch_ramp:
        found.append((float(stage.until), "batch"))
    for length in training.seq_len_ramp:
        found.append((float(length.until), "length"))
    return sorted((step, word) for step, word in found if step < end)


def drawn(config: Config, promise: Promise, width: int, *, is_ascii: bool) -> Iterator[str]:
    """Lines of at most `width` cells: the curve from 0 to the peak, and its marks below."""
    cells = max(16, width - _INDENT - _LABEL - 2)
    rates = [rate for _, rate in points(promise, cells)]
    peak = promise.lr
    for row in range(ROWS - 1, -1, -1):
        label = f"{peak:.3g}" if row == ROWS - 1 else "0" if row == 0 else ""
        line = "".join(_cell(rate / peak * ROWS - row, is_ascii=is_ascii) for rate in rates)
        yield f"{'':{_INDENT}}{label:>{_LABEL}} |{line}".rstrip()
    yield f"{'':{_INDENT + _LABEL}} +{'-' * cells}"
    ticks, told = [" "] * cells, []
    for step, word in marks(config, promise):
        ticks[min(cells - 1, int(step / promise.num_steps * cells))] = "^"
        told.append(f"{word} {step:,.0f}")
    if told:
        yield f"{'':{_INDENT + _LABEL}}  {''.join(ticks)}".rstrip()
    *lines, ends = textwrap.wrap(", ".join(["step 1", *told]), cells - 12) or [""]
    last = f"{promise.num_steps:,.0f}"
    gap = max(1, cells - len(ends) - len(last))
    for line in (*lines, f"{ends}{' ' * gap}{last}"):
        yield f"{'':{_INDENT + _LABEL}}  {line}"


def _cell(height: float, *, is_ascii: bool) -> str:
    """The block character of a cell in a column that reaches `height` cells above the cell's lower
    edge."""
    if is_ascii:
        return "#" if height >= 0.75 else "." if height > 0.0 else " "
    return _EIGHTHS[min(8, max(0, round(8 * height)))]
