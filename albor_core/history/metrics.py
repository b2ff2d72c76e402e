"""The metrics of one run side by side, along steps, tokens, time or another metric."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, NamedTuple

from albor_core.history.columns import Column, Columns, column
from albor_core.history.frames import Frame
from albor_core.run.errors import NotFoundError, UsageError
from albor_core.run.headlines import HOUSE_NAMES
from albor_core.run.home.runs import placed
from albor_core.run.rundir import RunDir
from albor_core.store.file.axis import SECONDS, STEP, WALL_KEY
from albor_core.store.query.names import metric_of
from albor_core.store.query.reader import Reader
from albor_core.store.query.series.series_reader import SeriesIds
from albor_core.store.rows.rows import KeyStat
from albor_core.store.rows.ruler import Ruler

Points = Sequence[tuple[int, float]]
OpenReader = Callable[[], Reader]
TOKENS = HOUSE_NAMES["tokens"]


class Metrics(Frame):
    """Metrics of one run: a column for x, then one per metric; a row for each step with any value.

    All are read together when first asked for. A metric that was not logged at a step is None
    there, one that was NaN is NaN. A metric with the name of the x column is `metrics.NAME`.
    Figures of the machine, which are sampled per second, are included if they are named: each at
    the step of the run at that second, or along x="wall".
    """

    def __init__(self, run_id: str, opened: OpenReader, keys: Sequence[str] | None, x: str) -> None:
        self._id, self._opened, self._keys, self.x = run_id, opened, keys, x

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.to_list())

    def __len__(self) -> int:
        return len(self._columns[self.x].values)

    def __repr__(self) -> str:
        return f"<metrics of {self._id} by {self.x}>"

    def columns(self) -> Columns:
        """As `Frame.columns`. Raises NotFoundError for a metric that the run does not have and for
        points that are gone, UsageError for an x that does not fit a metric, StoreError.
        """
        return self._columns

    @cached_property
    def _columns(self) -> Columns:
        with self._opened() as reader:
            known = reader.summary(self._id)
            ids = reader.series_ids(self._id)
            row = reader.run(self._id)
            found = placed(row.id, row.path)
            chosen = self._chosen(known, ids, found)
            along = _along(self.x, known, ids, found)
            created = row.created
            points = reader.together(self._id, {*chosen.values(), *along})
            if self.x != "wall":
                points |= {
                    key: ids.at_steps(key, points[key]) for key in ids.began if key in points
                }
        place = _places(self.x, along, points, created, self._id)
        timed = ids.began if self.x == "wall" else ()
        blocks = []
        for axis in (STEP, SECONDS):
            series = {
                label: points[key]
                for label, key in chosen.items()
                if (key in timed) == (axis == SECONDS)
            }
            blocks.append(_block(series, partial(place, axis)))
        return _joined(self.x, list(chosen), [block for block in blocks if block.xs])

    def _chosen(self, known: Mapping[str, KeyStat], ids: SeriesIds, run: RunDir) -> dict[str, str]:
        """The key of each column, by the column's name."""
        if self._keys is None:
            keys = [key for key in known if self.x == "wall" or key not in ids.began]
            return {_label(key, self.x): key for key in keys}
        found = {}
        for said in self._keys:
            key = metric_of(run, said, known)
            if key in ids.timed and self.x != "wall":
                raise _without_steps(f"cannot put {said!r} along {self.x!r}", self._id)
            found[_label(said, self.x)] = key
        return found


def _label(name: str, x: str) -> str:
    return f"metrics.{name}" if name == x else name


def _along(x: str, known: Mapping[str, KeyStat], ids: SeriesIds, run: RunDir) -> tuple[str, ...]:
    """The series that x is read from."""
    if x == "step":
        return ()
    if x == "wall":
        return (WALL_KEY,)
    if x == "tokens":
        return (TOKENS,)
    key = metric_of(run, x, known)
    if key in ids.timed:
        raise _without_steps(f"cannot use {x!r} as x", run.id)
    return (key,)


def _without_steps(cannot: str, run_id: str) -> UsageError:
    what = f"{cannot}: {run_id} logged no step, and its machine is seen by time"
    return UsageError(what, hint="x='wall'")


Place = Callable[[str, int], float | None]


def _places(
    x: str,
    along: Sequence[str],
    points: Mapping[str, Points],
    created: float | None,
    run_id: str,
) -> Place:
    """The function from a step, or a second, to its x; None if that is unknown."""
    if x == "step":
        return lambda _, step: step
    if x == "tokens":
        ruler = Ruler.of(points[TOKENS])
        if ruler is None:
            raise NotFoundError(f"{run_id}: no tokens were logged", hint="x='step'")
        return lambda _, step: ruler.at(step)
    logged = dict(points[along[0]])
    if x != "wall":
        return lambda _, step: logged.get(step)
    return lambda axis, at: (
        logged.get(at) if axis == STEP else None if created is None else created + at
    )


class _Block(NamedTuple):
    """Series over one kind of steps: the x of each row, and a column for each series."""

    xs: list[float]
    values: dict[str, list[float | None]]


def _block(series: Mapping[str, Points], place: Callable[[int], float | None]) -> _Block:
    steps = sorted({step for points in series.values() for step, _ in points})
    found = [(step, x) for step in steps if (x := place(step)) is not None]
    row = {step: i for i, (step, _) in enumerate(found)}
    values: dict[str, list[float | None]] = {}
    for label, points in series.items():
        cells = values[label] = [None] * len(found)
        for step, value in points:
            if (at := row.get(step)) is not None:
                cells[at] = value
    return _Block([x for _, x in found], values)


def _joined(x: str, labels: Sequence[str], blocks: Sequence[_Block]) -> Columns:
    """Join blocks in order of steps; of steps and seconds together in order of time."""
    xs = [place for block in blocks for place in block.xs]
    values = {
        label: [v for b in blocks for v in b.values.get(label) or [None] * len(b.xs)]
        for label in labels
    }
    if len(blocks) > 1:
        order = sorted(range(len(xs)), key=xs.__getitem__)
        xs = [xs[i] for i in order]
        values = {label: [cells[i] for i in order] for label, cells in values.items()}
    kind = "int" if x == "step" else "float"
    return {x: column(xs, kind), **{label: Column("float", v) for label, v in values.items()}}
