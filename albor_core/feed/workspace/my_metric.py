"""The one metric that the runs of an experiment are compared by: what a person chose for it, else
what stands first for most of its runs. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from albor_core.feed.view.run_view import RunView


def leading_metric(experiment: str, runs: Iterable[RunView], chosen: Mapping[str, str]) -> str:
    """The metric of an experiment, of whose `runs` it is the one that stands first for most; of two
    that do for as many, that of the run that comes first. `chosen` is what a person chose, by
    experiment. Runs whose metrics were not read yet have no say beside those whose were. "" where
    nothing is known: no run of it has a metric yet.
    """
    if mine := chosen.get(experiment):
        return mine
    views = [*_of(experiment, runs)]
    views = [view for view in views if view.metrics] or views
    leads = Counter(lead for view in views if (lead := _lead(view)))
    return leads.most_common(1)[0][0] if leads else ""


def known_metrics(experiment: str, runs: Iterable[RunView], chosen: Mapping[str, str]) -> list[str]:
    """What the runs of an experiment can be compared by, those of most runs first; the one that is
    chosen is among them, even where no run has it.
    """
    found: Counter[str] = Counter()
    for view in _of(experiment, runs):
        found.update(dict.fromkeys(_names(view), 1))
    names = [name for name, _ in found.most_common()]
    mine = chosen.get(experiment, "")
    return names if mine in names or not mine else [*names, mine]


def _of(experiment: str, runs: Iterable[RunView]) -> Iterator[RunView]:
    return (view for view in runs if view.experiment == experiment)


def _lead(view: RunView) -> str:
    """The first that says which way it is better; without such a one the first."""
    judged = (one.name for one in view.metrics if one.better is not None)
    return next(judged, next(_names(view), ""))


def _names(view: RunView) -> Iterator[str]:
    """The metrics that stand for a run. Where those were not read yet, its losses in the list."""
    if view.metrics:
        yield from (one.name for one in view.metrics)
        return
    if view.val_loss is not None:
        yield "val/loss"
    if view.loss is not None:
        yield "train/loss"
