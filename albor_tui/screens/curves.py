"""From what the feeds know to what the charts draw. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from albor_core.feed.view import Curve, RunView
from albor_tui.plot import Line
from albor_tui.widgets.chart import ChartData

MAX_POINTS = 400  # more than the columns of any terminal; the feed keeps every spike
EMA_SPAN = 20  # buckets: enough to see a trend through the noise of single intervals
KEYS = (
    "train/loss",
    "train/loss_ema",
    "val/loss",
    "optim/lr",
    "optim/grad_norm",
    "perf/tokens_per_s",
)
PREVIEW_KEYS = ("train/loss", "train/loss_ema", "val/loss")


def loss_chart(view: RunView, curves: Mapping[str, Curve]) -> ChartData:
    """Raw loss under its smoothed line, validation on top."""
    raw = curves.get("train/loss")
    lines: list[Line] = []
    if raw is None or raw.is_empty:
        if view.loss_history:
            lines = _from_history(view, view.loss_history)
    else:
        lines = [_line("raw", raw, envelope=True)]
        ema = curves.get("train/loss_ema")
        lines.append(smoothed(raw) if ema is None or ema.is_empty else _line("main", ema))
    val = curves.get("val/loss")
    if val is not None and not val.is_empty:
        lines.append(_line("val", val))
    return ChartData(tuple(lines), view.is_active)


def single_chart(
    view: RunView,
    curve: Curve | None,
    tone: str,
    *,
    history: Sequence[float] = (),
    is_noisy: bool = True,
) -> ChartData:
    """One metric: its envelope, and where it is noisy a smoothed line that can be read."""
    if curve is None or curve.is_empty:
        steps = _steps(view, len(history))
        curve = Curve("", steps, mean=tuple(history))
    if curve.is_empty:
        return ChartData((), view.is_active)
    if not is_noisy:
        return ChartData((_line(tone, curve),), view.is_active)
    return ChartData((_line("raw", curve, envelope=True), smoothed(curve, tone)), view.is_active)


def smoothed(curve: Curve, tone: str = "main") -> Line:
    """Exponential moving average over the buckets of a curve, bias-corrected (Kingma & Ba 2015,
    section 3) so that it starts at the first value. Non-finite buckets do not enter."""
    keep = 1 - 2 / (EMA_SPAN + 1)
    total, weight, ys = 0.0, 0.0, []
    for value in curve.mean:
        if math.isfinite(value):
            total = keep * total + (1 - keep) * value
            weight = keep * weight + (1 - keep)
        ys.append(total / weight if weight else math.nan)
    return Line(tone, tuple(map(float, curve.steps)), tuple(ys))


def _line(tone: str, curve: Curve, *, envelope: bool = False) -> Line:
    steps = tuple(float(step) for step in curve.steps)
    if envelope and not curve.is_raw:
        return Line(
            tone, steps, tuple(curve.mean), low=tuple(curve.minimum), high=tuple(curve.maximum)
        )
    return Line(tone, steps, tuple(curve.mean))


def _from_history(view: RunView, history: Sequence[float]) -> list[Line]:
    steps = _steps(view, len(history))
    curve = Curve("train/loss", steps, mean=tuple(history))
    return [Line("raw", steps, tuple(history)), smoothed(curve)]


def _steps(view: RunView, count: int) -> tuple[float, ...]:
    """The live state's history carries no steps: it is spread evenly over the run so far."""
    last = view.step or count
    return tuple(last * (i + 1) / count for i in range(count))
