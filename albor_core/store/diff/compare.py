"""What differs between runs, and whether it mattered: config, code, data, environment, curves,
verdict.

Everything is relative to the first run. Curves come from a run's own store where it still exists,
from the preview in the global one otherwise.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from albor_core.run.errors import DataError, NotFoundError, UsageError
from albor_core.run.home.runs import placed
from albor_core.run.rundir import RunDir
from albor_core.run.values.directions import Direction, Goals, direction
from albor_core.run.values.lenient import strict_json
from albor_core.store.diff.judge import (
    ASKED,
    INSTEAD,
    chosen_metric,
    corrected,
    default_metric,
    judge,
)
from albor_core.store.diff.source import REACH_POINTS, ComparedRun, open_sources, row_of
from albor_core.store.diff.verdict import MIN_POINTS, Verdict, apart
from albor_core.store.file.axis import WALL_KEY
from albor_core.store.file.crowded import refuse_without_room
from albor_core.store.file.paths import rebuild_hint
from albor_core.store.query.names import meant_metric
from albor_core.store.query.reader import Reader
from albor_core.store.rows.rows import KeyStat
from albor_core.store.rows.run_row import RunRow
from albor_core.store.rows.series import Series

MOST_CURVES = 8
MOST_RUNS = 26  # letters name them
CURVE_POINTS = 80
_COUNTS = {"", "calls of log", "order"}  # axes of an import that may be steps
_ALIKE = 1.5
_SMOOTH = 0.02  # of a curve's points: what a loss is averaged over before it counts as reached


@dataclass(frozen=True)
class Change:
    """A value that is not the same in all runs, in their order; None where a run has none."""

    key: str
    values: tuple[Any, ...]


@dataclass(frozen=True)
class UnknownConfig:
    """A run whose config cannot be compared: the reason, and the command that may bring it back."""

    run: str
    reason: str
    hint: str


@dataclass(frozen=True)
class Reach:
    """When `run` first had the smoothed final loss of `other`; None in all three: never.

    `seconds` counts from the first line of the journal, pauses and restarts included; where the
    clock was set back that step counts as none.
    """

    run: str
    other: str
    target: float
    step: int | None
    tokens: float | None
    seconds: float | None


@dataclass(frozen=True)
class RunDiff:
    """The comparison. `verdicts` has one entry per run after the first, each against the first,
    corrected for how many there are.

    `unrecorded` names the parts (config, code, data) that no run said anything about: they are not
    the same, they are unknown. So it is with the config where fewer than two runs have one;
    `unknown_config` says of each run without one why. `left_out` are the runs beyond MOST_RUNS.
    """

    metric: str
    direction: Direction | None
    runs: tuple[RunRow, ...]
    left_out: tuple[str, ...]
    config: tuple[Change, ...]
    code: tuple[Change, ...]
    data: tuple[Change, ...]
    environment: tuple[Change, ...]
    unrecorded: tuple[str, ...]
    unknown_config: tuple[UnknownConfig, ...]
    metrics: dict[str, tuple[KeyStat | None, ...]]
    reach: tuple[Reach, ...]
    verdicts: tuple[Verdict, ...]
    curves: dict[str, tuple[Series, ...]]

    @property
    def verdict(self) -> Verdict:
        """The second run against the first."""
        return self.verdicts[0]

    def to_json(self) -> dict[str, Any]:
        """Schema albor.runs.diff/1: strict JSON."""
        document = {
            "schema": "albor.runs.diff/1",
            "metric": self.metric,
            "direction": self.direction,
            "runs": [asdict(run) for run in self.runs],
            "left_out": [*self.left_out],
            "config": [asdict(change) for change in self.config],
            "code": [asdict(change) for change in self.code],
            "data": [asdict(change) for change in self.data],
            "environment": [asdict(change) for change in self.environment],
            "unrecorded": [*self.unrecorded],
            "unknown_config": [asdict(unknown) for unknown in self.unknown_config],
            "metrics": {
                key: [None if stat is None else asdict(stat) for stat in stats]
                for key, stats in self.metrics.items()
            },
            "reach": [asdict(reach) for reach in self.reach],
            "verdict": self.verdict.to_json(),
            "verdicts": [
                {"run": run.id, "against": self.runs[0].id, **found.to_json()}
                for run, found in zip(self.runs[1:], self.verdicts, strict=True)
            ],
            "curves": {
                key: [
                    {
                        "steps": [*series.steps],
                        "min": [*series.minimum],
                        "max": [*series.maximum],
                        "mean": [*series.mean],
                    }
                    for series in found
                ]
                for key, found in self.curves.items()
            },
        }
        strict: dict[str, Any] = strict_json(document)
        return strict


def is_at_work(run: Mapping[str, Any]) -> bool:
    """Whether a process works on a run of the document: its locks know, the store does not. Not for
    a run that the asking process tracks itself (run/liveness.py).
    """
    path = run.get("path")
    return bool(path) and RunDir(Path(str(path))).liveness().is_alive


def diff_runs(
    reader: Reader,
    run_ids: Sequence[str],
    *,
    metric: str | None = None,
    goals: Goals | None = None,
    own_stores: Mapping[str, Path] | None = None,
    chosen: Mapping[str, str] | None = None,
) -> RunDiff:
    """Compare two or more runs of a store, the first MOST_RUNS of them; of a run that it does not
    know, what `own_stores` has. Without a `metric` they are compared by the one that a person has
    `chosen` for their experiment, else by the one that stands for all of them
    (`judge.default_metric`). `goals` win over those that the runs' experiments declared.

    A run beside itself differs in nothing. Raises NotFoundError for an unknown run, metric or
    goal, UsageError for fewer than two, DataError where the metric lies over two kinds of axis.
    """
    if len(run_ids) < 2:
        raise UsageError("diff needs at least two runs", hint="albor runs diff A B")
    compared = run_ids[:MOST_RUNS]
    rows = tuple(row_of(reader, run_id, own_stores or {}) for run_id in compared)
    with open_sources(reader, rows) as readers:
        ways = _goals_of(reader, readers, rows) | dict(goals or {})
        sources = [ComparedRun(found, row, ways) for found, row in zip(readers, rows, strict=True)]
        mains = [source.main_metrics() for source in sources]
        asked = chosen_metric(sources, chosen or {}) if metric is None else _meant(metric, sources)
        by = asked or default_metric(sources, mains)
        for goal in goals or ():
            _meant(goal, sources)  # one misspelt would change nothing, and say nothing
        _refuse_two_axes(by, sources)
        verdicts = corrected(
            [judge(sources[0], other, by, ways, is_asked=bool(asked)) for other in sources[1:]]
        )
        shown = _shown(by, sources, mains)
        return RunDiff(
            metric=by,
            direction=direction(by, ways),
            runs=rows,
            left_out=tuple(run_ids[MOST_RUNS:]),
            config=_config_changes(sources),
            code=_changes([source.code | source.command() for source in sources]),
            data=_changes([source.data for source in sources]),
            environment=_changes([source.environment() for source in sources]),
            unrecorded=_unrecorded(sources),
            unknown_config=_unknown_configs(sources),
            metrics=_shared_metrics(sources),
            reach=tuple(_reaches(sources, by, ways)),
            verdicts=verdicts,
            curves={
                key: tuple(source.series(key, CURVE_POINTS) for source in sources) for key in shown
            },
        )


def _goals_of(
    reader: Reader, readers: Sequence[Reader], rows: Sequence[RunRow]
) -> dict[str, Direction]:
    """The goals that the runs' experiments declared; if they disagree the first run's counts."""
    found: dict[str, Direction] = {}
    for own, row in [*zip(readers, rows, strict=True)][::-1]:
        found |= own.goals(row.id)
        found |= reader.goals(row.id)
    return found


def _meant(metric: str, sources: Sequence[ComparedRun]) -> str:
    """The key that is asked about. Raises NotFoundError where no run has such a metric."""
    try:
        return meant_metric(metric, {key for source in sources for key in source.summary})
    except NotFoundError as error:
        folders = ((placed(one.row.id, one.row.path), one.summary) for one in sources)
        refuse_without_room(folders, metric)
        error.hint = f"albor runs show {sources[0].row.id}"
        raise


def _refuse_two_axes(metric: str, sources: Sequence[ComparedRun]) -> None:
    """Raise DataError if the steps of the metric count different things, as imported histories may.
    Calls of `log` and an order are steps where they are as far apart as those.
    """
    metric = metric if all(metric in source.summary for source in sources) else INSTEAD
    known = [source for source in sources if metric in source.summary]
    for other in known[1:]:
        first = known[0]
        axes = [one.axis(metric) for one in (first, other)]
        if axes[0] == axes[1] or ({*axes} <= _COUNTS and _are_alike(metric, first, other)):
            continue
        said = [
            f"{one.row.id} counts {axis or 'steps'}"
            for one, axis in zip((first, other), axes, strict=True)
        ]
        raise DataError(
            f"cannot compare {metric!r}: it lies over two kinds of axis, {' and '.join(said)}",
            hint="albor runs diff A B --metric with one that both have over the same axis",
        )


def _are_alike(metric: str, one: ComparedRun, other: ComparedRun) -> bool:
    """Whether the steps of two series are about as far apart; a single point says nothing."""
    apart = []
    for stat in (one.summary[metric], other.summary[metric]):
        if stat.count < 2 or stat.first_step is None or stat.last_step is None:
            return True
        apart.append((stat.last_step - stat.first_step) / (stat.count - 1))
    return max(apart) < _ALIKE * min(apart)


def _config_changes(sources: Sequence[ComparedRun]) -> tuple[Change, ...]:
    """Differences of known configs: an unknown one does not differ."""
    known = [source.params for source in sources if source.params]
    keys = [change.key for change in _changes(known)] if len(known) > 1 else []
    return tuple(Change(key, tuple(s.params.get(key) for s in sources)) for key in keys)


def _unknown_configs(sources: Sequence[ComparedRun]) -> tuple[UnknownConfig, ...]:
    if not any(source.params for source in sources):
        return ()
    return tuple(UnknownConfig(s.row.id, *_why_none(s)) for s in sources if not s.params)


def _why_none(source: ComparedRun) -> tuple[str, str]:
    if source.has_own_store():
        return "it recorded none", ""
    if Path(source.row.path).is_dir():
        return "it is not in the store", rebuild_hint()
    return "it is not in the store, and the run's folder is gone", ""


def _changes(maps: Sequence[Mapping[str, Any]]) -> tuple[Change, ...]:
    changes = []
    for key in sorted({key for found in maps for key in found}):
        values = tuple(found.get(key) for found in maps)
        if any(value != values[0] for value in values[1:]):
            changes.append(Change(key, values))
    return tuple(changes)


def _unrecorded(sources: Sequence[ComparedRun]) -> tuple[str, ...]:
    known = {
        "config": sum(bool(source.params) for source in sources) > 1,
        "code": any(value for source in sources for value in source.code.values()),
        "data": any(source.data for source in sources),
    }
    return tuple(part for part, is_known in known.items() if not is_known)


def _shared_metrics(sources: Sequence[ComparedRun]) -> dict[str, tuple[KeyStat | None, ...]]:
    keys = set.intersection(*(set(source.summary) for source in sources))
    return {key: tuple(source.summary.get(key) for source in sources) for key in sorted(keys)}


def _shown(
    metric: str, sources: Sequence[ComparedRun], mains: Sequence[Sequence[str]]
) -> tuple[str, ...]:
    """The metrics whose curves are told: what is judged, the losses, then what stands for all runs;
    of runs without a loss also what else all have.
    """
    shared = [key for key in mains[0] if all(key in one for one in mains[1:])]
    wanted = dict.fromkeys((metric, INSTEAD, ASKED, *shared))
    found = [key for key in wanted if any(key in source.summary for source in sources)]
    if INSTEAD not in found and ASKED not in found:
        found += [key for key in _shared_metrics(sources) if key not in found]
    return tuple(found[:MOST_CURVES])


def _reaches(sources: Sequence[ComparedRun], metric: str, goals: Goals) -> Iterator[Reach]:
    key = metric if all(metric in source.summary for source in sources) else "train/loss"
    way = direction(key, goals)
    if way is None or not all(key in source.summary for source in sources):
        return
    sources = [*{source.row.id: source for source in sources}.values()]
    curves = {source.row.id: _smoothed(source.series(key, REACH_POINTS)) for source in sources}
    for source in sources:
        for other in sources:
            if source.row.id == other.row.id or not curves[other.row.id]:
                continue
            target = curves[other.row.id][-1][1]
            reached = (
                step
                for step, value in curves[source.row.id]
                if (value <= target if way == "min" else value >= target)
                or apart(value, target) == 0.0
            )
            yield _reach(source, other, target, next(reached, None))


def _reach(source: ComparedRun, other: ComparedRun, target: float, step: int | None) -> Reach:
    if step is None:
        return Reach(source.row.id, other.row.id, target, None, None, None)
    seconds = _elapsed(source, step)
    return Reach(
        source.row.id, other.row.id, target, step, source.value_at("train/tokens", step), seconds
    )


def _elapsed(source: ComparedRun, step: int) -> float | None:
    """Seconds from the first record to `step`, by a clock that never goes back."""
    start, reached = source.row.first_wall, source.value_at(WALL_KEY, step)
    if start is None or reached is None:
        return None
    walls = source.series(WALL_KEY, REACH_POINTS)
    before = walls.last[: max(0, bisect.bisect_right(walls.steps, step) - 1)]
    return sum(max(0.0, b - a) for a, b in pairwise((start, *before, reached)))


def _smoothed(series: Series) -> list[tuple[int, float]]:
    """Trailing means over _SMOOTH of the points; few evaluations stay as they are."""
    points = [(int(s), v) for s, v in zip(series.steps, series.mean, strict=True) if v == v]
    size = max(1, int(len(points) * _SMOOTH)) if len(points) >= MIN_POINTS else 1
    found, total = [], 0.0
    for i, (step, value) in enumerate(points):
        total += value - (points[i - size][1] if i >= size else 0.0)
        if i + 1 >= size:
            found.append((step, total / size))
    return found
