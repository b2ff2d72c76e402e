"""Curves of a run as a chart draws them: lines, other measures of a step, what happened. Pure."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from albor_core.feed.view.run_view import RunView
from albor_core.store.rows.ruler import Ruler
from albor_core.store.rows.series import Series
from albor_tui.widgets.chart.data import ChartData, Mark, Trace

WALL, TOKENS = "_wall", "train/tokens"  # what the other x axes are made of
RULER_KEYS = (WALL, TOKENS)
Curves = Mapping[str, Series]
# metrics that are set or counted rather than measured: a smoothed line would say nothing more
_CALM = ("optim/lr", "train/tokens", "train/epoch", "train/loss_ema")


def single_chart(
    view: RunView,
    curve: Series | None,
    tone: str,
    *,
    history: Sequence[float] = (),
    is_noisy: bool = True,
    curves: Curves | None = None,
) -> ChartData:
    """One metric: its envelope, and where it is noisy a smoothed line that can be read. `curves`
    may hold what the other x axes are made of."""
    if curve is None or curve.is_empty:
        curve = from_history(view, history)
    lines = []
    if not curve.is_empty:
        along = rulers(view, curves or {})
        lines = [trace(tone, curve, is_noisy=is_noisy, along=along)]
    return chart_of(view, lines, curves or {})


def metric_chart(view: RunView, key: str, curves: Curves, tone: str) -> ChartData:
    """One metric of a run by its key, with marks, for a grid where all share an x axis."""
    curve = curves.get(key)
    chart = single_chart(view, curve, tone, is_noisy=is_measured(key), curves=curves)
    if curve is None:
        return replace(chart, empty="")
    return replace(chart, subject=f"{view.id}\n{key}")


def is_measured(key: str) -> bool:
    """Whether a metric scatters, so that a smoothed line of it says more."""
    return key not in _CALM and not key.startswith("val/")


def chart_of(view: RunView, lines: Sequence[Trace], curves: Curves) -> ChartData:
    """Lines of one run, with what happened to it."""
    return ChartData(
        tuple(lines),
        view.is_active,
        marks=tuple(marks(view, curves.get("optim/lr"))) if lines else (),
        extent=extent(view, curves),
        subject=view.id,
        empty=_why_empty(view),
    )


def _why_empty(view: RunView) -> str:
    if view.is_loading:
        return view.status
    return "no points yet" if view.is_active or view.status == "queued" else "no points"


def trace(
    tone: str,
    curve: Series,
    label: str = "",
    *,
    is_noisy: bool = False,
    along: Mapping[str, Ruler] | None = None,
) -> Trace:
    """A curve as a chart draws it."""
    has_envelope = not curve.is_raw and len(curve.minimum) == len(curve.steps)
    return Trace(
        tone,
        tuple(map(float, curve.steps)),
        tuple(curve.mean),
        low=tuple(curve.minimum) if has_envelope else (),
        high=tuple(curve.maximum) if has_envelope else (),
        label=label,
        nonfinite=tuple(curve.nonfinite),
        is_noisy=is_noisy,
        rulers=along or {},
        unit=curve.axis,
        last=None if curve.is_raw or curve.is_empty else curve.newest,
    )


def rulers(view: RunView, curves: Curves) -> dict[str, Ruler]:
    """Tokens and seconds along the steps of a run: as logged, else in proportion to what the live
    state says of now."""
    found: dict[str, Ruler | None] = {}
    tokens, wall = curves.get(TOKENS), curves.get(WALL)
    if tokens is not None and not tokens.is_empty:
        found["tokens"] = Ruler.of(list(zip(tokens.steps, tokens.mean, strict=True)))
    elif view.step and view.tokens:
        found["tokens"] = Ruler.of([(view.step, view.tokens)])
    if wall is not None and not wall.is_empty:
        begun = wall.minimum[0] if view.created is None else min(view.created, wall.minimum[0])
        found["time"] = Ruler.of(
            [(s, w - begun) for s, w in zip(wall.steps, wall.minimum, strict=True)]
        )
    elif view.step and view.elapsed_s:
        found["time"] = Ruler.of([(view.step, view.elapsed_s)])
    return {name: ruler for name, ruler in found.items() if ruler is not None}


def span_of(curves: Curves) -> tuple[float, float] | None:
    """The first and last step of curves; seconds where none of them has steps."""
    every = [curve for curve in curves.values() if not curve.is_empty]
    known = [curve for curve in every if curve.axis == "step"] or every
    if not known:
        return None
    return min(curve.steps[0] for curve in known), max(curve.steps[-1] for curve in known)


def extent(view: RunView, curves: Curves) -> tuple[float, float] | None:
    """The same of anything known of a run, which may be at a later step: its charts share it."""
    span = span_of(curves)
    if span is None or not view.is_active:
        return span
    return span[0], max(span[1], float(view.step or 0))


def unit_of(curves: Curves) -> str:
    """The unit of x in a run's charts."""
    units = {curve.axis for curve in curves.values() if not curve.is_empty}
    return "seconds" if units == {"seconds"} else "step"


def marks(view: RunView, lr: Series | None = None) -> Iterator[Mark]:
    """Marks of a run's events: alerts, restarts, rewinds, checkpoints, phases of the learning
    rate."""
    for alert in view.alerts:
        if alert.step is not None and alert.severity != "info":
            kind = "warning" if alert.severity == "warning" else "alert"
            yield Mark(kind, alert.step, alert.message or alert.rule)
    for before, after in itertools.pairwise(view.attempts):
        if before.step is not None:
            why = f" after {before.exit_class}" if before.exit_class else ""
            yield Mark("restart", before.step, f"attempt {after.attempt}{why}")
    for event in view.events:
        if event.step is None:
            continue
        if event.name == "checkpoint.saved":
            yield Mark("checkpoint", event.step, "checkpoint")
        elif "rollback" in event.name or "rewind" in event.name:
            yield Mark("rewind", event.step, event.name.replace(".", " "))
    if lr is not None:
        yield from phases(lr)


def phases(lr: Series) -> Iterator[Mark]:
    """Marks where the learning rate stops rising and where it begins to fall."""
    known = [(s, v) for s, v in zip(lr.steps, lr.mean, strict=True) if math.isfinite(v)]
    if len(known) < 3:
        return
    top = max(value for _, value in known)
    at_top = [step for step, value in known if value >= top * (1 - 1e-6)]
    if known[0][0] < at_top[0] < known[-1][0]:
        yield Mark("phase", at_top[0], "warm-up ends")
    if at_top[0] < at_top[-1] < known[-1][0]:
        yield Mark("phase", at_top[-1], "decay begins")


def from_history(view: RunView, history: Sequence[float]) -> Series:
    """The live state's history carries no steps: it is spread evenly over the run so far."""
    count = len(history)
    last = view.step or count
    steps = tuple(last * (i + 1) / count for i in range(count))
    return Series("", steps, mean=tuple(history))
