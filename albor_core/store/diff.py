"""What differs between runs, and whether it mattered: config, code, data, environment, curves,
verdict.

Everything is relative to the first run. Curves come from a run's own store where it still exists,
from the preview in the global one otherwise.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from albor_core.run.errors import AlborError, NotFoundError, UsageError
from albor_core.run.flatten import flatten
from albor_core.run.rundir import RunDir, read_json
from albor_core.run.state import finite
from albor_core.store import diff_facts
from albor_core.store.connect import REBUILD_HINT
from albor_core.store.names import meant_metric
from albor_core.store.paths import local_store
from albor_core.store.reader import KeyStat, Reader, RunRow, Series
from albor_core.store.rows import lower_is_better
from albor_core.store.verdict import (
    MIN_POINTS,
    WINDOW,
    Curve,
    Verdict,
    not_comparable,
    same_run,
    verdict,
)
from albor_core.store.write import WALL_KEY

CURVE_POINTS = 80
_REACH_POINTS = 1000
_MAX_WINDOW_STEPS = 4000
_TOKENS_A_STEP = (1e-9, 1e18)  # what is beyond was never a count of tokens
_SMOOTH = 0.02  # of a curve's points: what a loss is averaged over before it counts as reached
# settings that do not change what is learned, only where it lies and who looks at it
_INCIDENTAL = ("training.seed", "training.output_dir", "monitoring.", "guard.", "data.num_workers")
_PLACES = ("data.train", "data.val", "data.tokenizer")  # of data that have the same hashes


@dataclass(frozen=True)
class Change:
    """A value that is not the same in all runs, in their order; None where a run has none."""

    key: str
    values: tuple[Any, ...]


@dataclass(frozen=True)
class UnknownConfig:
    """A run whose config nobody can compare: why, and the command that may bring it back."""

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
    """The comparison. `verdicts` has one entry per run after the first, each against the first.

    `unrecorded` names the parts (config, code, data) that no run said anything about: they are not
    the same, they are unknown. So it is with the config where fewer than two runs have one;
    `unknown_config` says of each run without one why.
    """

    metric: str
    runs: tuple[RunRow, ...]
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
            "runs": [asdict(run) for run in self.runs],
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
        strict: dict[str, Any] = finite(document)
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
    metric: str = "val/loss",
    own_stores: Mapping[str, Path] | None = None,
) -> RunDiff:
    """Compare two or more runs of a store; of a run that it does not know, what `own_stores` has.

    A run beside itself differs in nothing. Raises NotFoundError for an unknown run, UsageError for
    fewer than two.
    """
    if len(run_ids) < 2:
        raise UsageError("diff needs at least two runs", hint="albor runs diff A B")
    rows = tuple(row_of(reader, run_id, own_stores or {}) for run_id in run_ids)
    with _sources(reader, rows) as readers:
        sources = [_Source(found, row) for found, row in zip(readers, rows, strict=True)]
        metric = _meant(metric, sources)
        verdicts = tuple(_judge(sources[0], other, metric) for other in sources[1:])
        shown = _shown(metric, sources)
        return RunDiff(
            metric=metric,
            runs=rows,
            config=_config_changes(sources),
            code=_changes([source.code for source in sources]),
            data=_changes([source.data for source in sources]),
            environment=_changes([source.environment() for source in sources]),
            unrecorded=_unrecorded(sources),
            unknown_config=_unknown_configs(sources),
            metrics=_shared_metrics(sources),
            reach=tuple(_reaches(sources, metric)),
            verdicts=verdicts,
            curves={
                key: tuple(source.series(key, CURVE_POINTS) for source in sources) for key in shown
            },
        )


def _meant(metric: str, sources: Sequence[_Source]) -> str:
    """The key that is asked about. Raises NotFoundError where no run has such a metric, but for the
    one that is compared by default.
    """
    try:
        return meant_metric(metric, {key for source in sources for key in source.summary})
    except NotFoundError as error:
        if metric == "val/loss":
            return metric
        error.hint = f"albor runs show {sources[0].row.id}"
        raise


def row_of(reader: Reader, run_id: str, own_stores: Mapping[str, Path]) -> RunRow:
    """A run as the store knows it, or else the run's own store, which survives the loss of the
    global one. Raises NotFoundError.
    """
    try:
        return reader.run(run_id)
    except NotFoundError as error:
        if (own := own_stores.get(run_id)) is None:
            raise
        with suppress(AlborError), Reader(own) as found:
            return found.run(run_id)
        error.hint = REBUILD_HINT
        raise


@contextmanager
def _sources(reader: Reader, rows: Iterable[RunRow]) -> Iterator[list[Reader]]:
    """For each run the store that knows most about it."""
    with ExitStack() as stack:
        found = []
        for row in rows:
            path = local_store(RunDir(Path(row.path)))
            best = reader
            if path != reader.path and path.is_file():
                try:
                    own = stack.enter_context(Reader(path))
                    own.run(row.id)
                    best = own
                except AlborError:  # damaged or another run's: the given store has the preview
                    best = reader
            found.append(best)
        yield found


class _Source:
    """One run and where its rows are."""

    def __init__(self, reader: Reader, row: RunRow) -> None:
        self.reader, self.row = reader, row
        self.params: Mapping[str, Any] = reader.params(row.id) or _written_config(row)
        self.facts = reader.detail(row.id).facts
        self.code = diff_facts.code(self.facts, row.git_commit, row.git_dirty)
        self.data = diff_facts.data(self.facts)
        self.summary = {k: s for k, s in reader.summary(row.id).items() if s.count}

    def has_own_store(self) -> bool:
        return self.reader.path == local_store(RunDir(Path(self.row.path)))

    def series(self, key: str, max_points: int) -> Series:
        return self.reader.series(self.row.id, key, max_points=max_points)

    def environment(self) -> dict[str, Any]:
        """Host, device and versions of the newest attempt."""
        starts = self.reader.events(self.row.id, names=("run.start",), limit=1)
        started = starts[0].data if starts else {}
        return diff_facts.environment(self.facts, self.row.host, started)

    def tokens_per_step(self) -> float | None:
        stat = self.summary.get("train/tokens")
        if stat is None or not stat.last or not stat.last_step:
            return None
        tokens = stat.last / stat.last_step
        return tokens if _TOKENS_A_STEP[0] < tokens < _TOKENS_A_STEP[1] else None

    def tail(self, key: str, end: int) -> tuple[list[int], list[float]]:
        """Points in the last WINDOW up to `end`, and enough before it to know where the window
        starts.
        """
        stat = self.summary[key]
        first = stat.first_step or 0
        spacing = max(1, (end - first) // max(stat.count, 1))
        span = min(WINDOW * (end - first), float(_MAX_WINDOW_STEPS * spacing))
        start = end - int(span / WINDOW)
        # where the shared range starts and its last part: nothing in between decides
        rows = (
            *self.reader.points(self.row.id, key, start, end - int(span) - 1, limit=1),
            *self.reader.points(self.row.id, key, end - int(span), end),
        )
        if rows:
            return [step for step, _, _ in rows], [value for _, value, _ in rows]
        series = self.series(key, _REACH_POINTS)  # the global store: means of buckets
        return [*series.steps], [*series.mean]


def _written_config(row: RunRow) -> dict[str, Any]:
    """The resolved config in the run's folder, as a store would have it."""
    return flatten(read_json(RunDir(Path(row.path)).config_resolved) or {})


def _config_changes(sources: Sequence[_Source]) -> tuple[Change, ...]:
    """What differs between the configs that are known: an unknown one is no other config."""
    known = [source.params for source in sources if source.params]
    keys = [change.key for change in _changes(known)] if len(known) > 1 else []
    return tuple(Change(key, tuple(s.params.get(key) for s in sources)) for key in keys)


def _unknown_configs(sources: Sequence[_Source]) -> tuple[UnknownConfig, ...]:
    if not any(source.params for source in sources):
        return ()
    return tuple(UnknownConfig(s.row.id, *_why_none(s)) for s in sources if not s.params)


def _why_none(source: _Source) -> tuple[str, str]:
    if source.has_own_store():
        return "it recorded none", ""
    if Path(source.row.path).is_dir():
        return "it is not in the store", REBUILD_HINT
    return "it is not in the store, and the run's folder is gone", ""


def _changes(maps: Sequence[Mapping[str, Any]]) -> tuple[Change, ...]:
    changes = []
    for key in sorted({key for found in maps for key in found}):
        values = tuple(found.get(key) for found in maps)
        if any(value != values[0] for value in values[1:]):
            changes.append(Change(key, values))
    return tuple(changes)


def _unrecorded(sources: Sequence[_Source]) -> tuple[str, ...]:
    known = {
        "config": sum(bool(source.params) for source in sources) > 1,
        "code": any(source.code["commit"] for source in sources),
        "data": any(source.data for source in sources),
    }
    return tuple(part for part, is_known in known.items() if not is_known)


def _shared_metrics(sources: Sequence[_Source]) -> dict[str, tuple[KeyStat | None, ...]]:
    keys = set.intersection(*(set(source.summary) for source in sources))
    return {key: tuple(source.summary.get(key) for source in sources) for key in sorted(keys)}


def _shown(metric: str, sources: Sequence[_Source]) -> tuple[str, ...]:
    wanted = dict.fromkeys((metric, "train/loss", "val/loss"))
    return tuple(key for key in wanted if any(key in source.summary for source in sources))


def _judge(a: _Source, b: _Source, metric: str) -> Verdict:
    if a.row.id == b.row.id:
        return same_run()
    found = _on(metric, a, b)
    if found.outcome == "not_comparable" and metric == "val/loss":
        found = _by_training_loss(a, b, found)
    if found.outcome in ("better", "worse") and (only := _only_chance(a, b)):
        return replace(found, outcome="indistinguishable", detail=f"{found.detail}; {only}")
    return found


def _only_chance(a: _Source, b: _Source) -> str:
    """Why two runs of one recipe have no winner; empty if the recipes differ."""
    incidental = (*_INCIDENTAL, *(_PLACES if a.data and a.data == b.data else ()))
    config = [change.key for change in _changes([a.params, b.params])]
    if a.code != b.code or a.data != b.data:
        return ""
    if not all(key == "seed" or key.startswith(incidental) for key in config):
        return ""
    seeds = a.row.seed != b.row.seed or any(key.endswith("seed") for key in config)
    what = "only the seed differs: this is what seeds do" if seeds else "nothing but chance differs"
    return f"same code and config, {what}"


def _by_training_loss(a: _Source, b: _Source, found: Verdict) -> Verdict:
    """Too few evaluations to know their noise: train/loss decides, unless the evaluations
    contradict.
    """
    fallback = _on("train/loss", a, b)
    if fallback.outcome == "not_comparable":
        return found
    detail = f"on train/loss, since val/loss has too few points ({found.detail}); {fallback.detail}"
    outcome = fallback.outcome
    mine, other = (source.summary.get("val/loss") for source in (b, a))
    if mine is not None and other is not None and mine.last is not None and other.last is not None:
        detail += f"; last val/loss {other.last:.4g} and {mine.last:.4g}"
        says = "better" if mine.last < other.last else "worse"
        if outcome in ("better", "worse") and says != outcome:
            outcome, detail = "indistinguishable", detail + " say the opposite"
    return Verdict(outcome, fallback.interval, fallback.difference, fallback.method, detail)


def _on(key: str, a: _Source, b: _Source) -> Verdict:
    left, right = a.summary.get(key), b.summary.get(key)
    if left is None or right is None or left.last_step is None or right.last_step is None:
        return not_comparable(f"not both runs have {key}")
    scale_a, scale_b = a.tokens_per_step(), b.tokens_per_step()
    by_tokens = scale_a is not None and scale_b is not None and abs(scale_a / scale_b - 1) > 1e-3
    factor_a, factor_b = (scale_a or 1.0, scale_b or 1.0) if by_tokens else (1.0, 1.0)
    end = min(left.last_step * factor_a, right.last_step * factor_b)
    curves = []
    for source, factor in ((a, factor_a), (b, factor_b)):
        steps, values = source.tail(key, int(end / factor))
        curves.append(Curve([step * factor for step in steps], values))
    unit = "token" if by_tokens else "step"
    return verdict(*curves, lower_is_better=lower_is_better(key), unit=unit)


def _reaches(sources: Sequence[_Source], metric: str) -> Iterator[Reach]:
    key = metric if all(metric in source.summary for source in sources) else "train/loss"
    if not all(key in source.summary for source in sources):
        return
    sources = [*{source.row.id: source for source in sources}.values()]
    curves = {source.row.id: _smoothed(source.series(key, _REACH_POINTS)) for source in sources}
    lower = lower_is_better(key)
    for source in sources:
        for other in sources:
            if source.row.id == other.row.id or not curves[other.row.id]:
                continue
            target = curves[other.row.id][-1][1]
            step = next(
                (
                    step
                    for step, value in curves[source.row.id]
                    if (value <= target if lower else value >= target)
                ),
                None,
            )
            yield _reach(source, other, target, step)


def _reach(source: _Source, other: _Source, target: float, step: int | None) -> Reach:
    if step is None:
        return Reach(source.row.id, other.row.id, target, None, None, None)
    tokens = _value_at(source.series("train/tokens", _REACH_POINTS), step)
    seconds = _elapsed(source.row.first_wall, source.series(WALL_KEY, _REACH_POINTS), step)
    return Reach(source.row.id, other.row.id, target, step, tokens, seconds)


def _elapsed(start: float | None, walls: Series, step: int) -> float | None:
    """Seconds from `start` to `step`, by a clock that never goes back."""
    reached = bisect.bisect_right(walls.steps, step)
    if start is None or not reached:
        return None
    return sum(max(0.0, b - a) for a, b in pairwise((start, *walls.last[:reached])))


def _smoothed(series: Series) -> list[tuple[int, float]]:
    """Trailing means over _SMOOTH of the points; few evaluations stay as they are."""
    points = [(s, v) for s, v in zip(series.steps, series.mean, strict=True) if v == v]
    size = max(1, int(len(points) * _SMOOTH)) if len(points) >= MIN_POINTS else 1
    found, total = [], 0.0
    for i, (step, value) in enumerate(points):
        total += value - (points[i - size][1] if i >= size else 0.0)
        if i + 1 >= size:
            found.append((step, total / size))
    return found


def _value_at(series: Series, step: int) -> float | None:
    place = bisect.bisect_right(series.steps, step) - 1
    return None if place < 0 else series.last[place]
