"""Which metrics stand for a run where there is room for a few: one rule for every list and screen.

First what a person chose for the whole experiment, then what a person pinned, then what has a
declared goal (but no score of an evaluation before a loss of the house), then by use: what is
measured on other data more than once, then the rest; of each what is logged most, and only of what
is logged about as often, what says how good the model is, the house's losses, what moves most. What
a run that learns from rewards earns comes before all of that, unless it logs a validation loss too.
Clocks, counters and settings stand only for a run that logs nothing else. What is measured of its
machine, by whoever watches it, stands for no run unless a person or a goal chose it. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from albor_core.run.headlines import HEADLINES, LOSSES
from albor_core.run.values.defined_metrics import Defined
from albor_core.run.values.directions import (
    Direction,
    direction,
    is_about_model,
    is_background,
    is_of_machine,
    is_reward,
    is_score,
    is_validation,
)

MOST = 4
MOST_KEYS = 2048  # of one run that are looked at, those that it logged first
_OTHER_HEADLINES = frozenset(one.key for one in HEADLINES) - {*LOSSES}
_LAST = 5  # the rank of what stands for a run only where it logs nothing else
_RARER, _ONCE = 4, 10
_GRAIN = 4  # parts of a range that count as one: a live run's order is not to change at every look


class Logged(NamedTuple):
    """One metric that a run logs: its newest value and its finite range, None where not known, and
    how many values it has; 0 where that was not counted.
    """

    name: str
    last: float | None = None
    low: float | None = None
    high: float | None = None
    points: int = 0


class MainMetric(NamedTuple):
    """One that stands for a run. `last` may be NaN; None is unknown. `better`: which way.
    `is_pinned`: a person chose it. `stat`: which of its values `last` is, where the program chose
    another than the newest: min or max.
    """

    name: str
    last: float | None = None
    better: Direction | None = None
    is_pinned: bool = False
    stat: str = "last"


def main_metrics(
    logged: Iterable[Logged],
    *,
    pins: Iterable[str] = (),
    goals: Mapping[str, Direction] | None = None,
    defined: Mapping[str, Defined] | None = None,
    lead: str = "",
    most: int = MOST,
) -> tuple[MainMetric, ...]:
    """The `most` that count, or all that are pinned, of those a run logs, the first one first;
    `logged` in the order that it began to log them. `defined` is what its program said of them.
    `lead` is the metric that its experiment is compared by: where the run logs it, it is the first.
    """
    said, pins = defined or {}, tuple(pins)
    hidden = {name for name, one in said.items() if one.summary == "none"}.difference(pins, (lead,))
    known = {one.name: one for one in logged if one.name not in hidden}
    pinned = [name for name in pins if name in known]
    has_loss = not {*LOSSES}.isdisjoint(known)
    declared = (name for name in goals or () if name in known)
    first = [lead] if lead in known else []
    chosen = [*first, *pinned, *(name for name in declared if not (has_loss and is_score(name)))]
    by_reward = LOSSES[1] not in known and any(map(is_reward, known))
    standing = {name: _standing(one, by_reward, has_loss) for name, one in known.items()}
    standing = _by_use(known, standing)
    rest = sorted((n for n in known if not is_of_machine(n)), key=lambda name: standing[name])
    telling = [name for name in rest if standing[name][0] < _LAST]
    names = dict.fromkeys((*chosen, *(telling or rest)))
    return tuple(
        _told(known[name], direction(name, goals), name in pinned, said.get(name, Defined()))
        for name in [*names][: max(most, len({*first, *pinned}))]
    )


def _told(one: Logged, better: Direction | None, is_pinned: bool, said: Defined) -> MainMetric:
    edge = {"min": one.low, "max": one.high}.get(said.summary)
    if edge is None:
        return MainMetric(one.name, one.last, better, is_pinned)
    newest = edge if one.last is None or not math.isfinite(one.last) else one.last
    value = min(edge, newest) if said.summary == "min" else max(edge, newest)
    return MainMetric(one.name, value, better, is_pinned, said.summary)


def beside_columns(mains: Iterable[MainMetric], shown: Collection[str]) -> MainMetric | None:
    """The first that columns of `shown` metrics do not say. Where a loss is shown it says all that
    the house's losses say, other losses come after what is none, and of several whose better side
    is not known none is named; a pinned one comes first.
    """
    has_loss = not {*LOSSES}.isdisjoint(shown)
    left = [one for one in mains if one.name not in shown]
    if left and left[0].is_pinned:
        return left[0]
    left = [one for one in left if not (has_loss and one.name in LOSSES)]
    if has_loss and sum(one.better is None for one in left) > 1:
        left = [one for one in left if one.better is not None]
    told = [one for one in left if has_loss and "loss" in one.name.lower()]
    return next((one for one in left if one not in told), next(iter(told), None))


def pinned_after(said: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """The metrics that are pinned after (`metric.pin` or `metric.unpin`, name) in order; the one
    that was pinned last comes last.
    """
    now: dict[str, None] = {}
    for kind, name in said:
        now.pop(name, None)
        if kind == "metric.pin":
            now[name] = None
    return tuple(now)


_Standing = tuple[int, int, int, int, int]


def _standing(one: Logged, by_reward: bool, has_loss: bool) -> _Standing:
    """The smaller, the earlier: a rank, and within it what its name says and how much it moves."""
    name = one.name
    order = LOSSES.index(name) if name in LOSSES else len(LOSSES)
    about = 0, int(not is_about_model(name)), order, -_moved(one)
    if by_reward and is_reward(name):
        return 0, *about
    if name not in LOSSES and (name in _OTHER_HEADLINES or is_background(name)):
        return _LAST, *about
    if has_loss and is_score(name):
        return 3, *about
    return (1 if is_validation(name) else 2), *about


def _by_use(known: Mapping[str, Logged], standing: Mapping[str, _Standing]) -> dict[str, _Standing]:
    """The same with how rarely each is logged beside those of its rank, as a power of `_RARER`, so
    that a live run's order does not change at every look.
    """
    most: dict[int, int] = {}
    for name, (rank, *_) in standing.items():
        most[rank] = max(most.get(rank, 0), known[name].points)
    found = {}
    for name, (rank, _, *about) in standing.items():
        points, of_rank = known[name].points, most[rank]
        if rank == 1 and points == 1 and most.get(2, 0) > _ONCE:
            rank = 3  # measured once: of a run that goes on, or at its end
        rarer = int(math.log(of_rank / points, _RARER)) if points else 0
        found[name] = (rank, rarer, about[0], about[1], about[2])
    return found


def _moved(one: Logged) -> int:
    """How far it went, in parts of the largest value that it had."""
    if one.low is None or one.high is None:
        return 0
    far, size = one.high - one.low, max(abs(one.low), abs(one.high))
    share = far / size if size and math.isfinite(far) else 0.0
    return int(share * _GRAIN)
