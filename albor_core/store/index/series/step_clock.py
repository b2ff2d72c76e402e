"""Where a run was at a moment of its life: its steps, by the wall time of each.

Figures of the machine are kept by the second, since a step may take a millisecond or an hour; what
is read of them lies at the step where the run was then, found here when it is read. So figures of
older versions have their places too, and a rewind moves them without a line of its own: what was
seen while a stretch was trained that was taken back has no place among the steps that count.
"""

from __future__ import annotations

import math
import sqlite3
from bisect import bisect_right
from collections.abc import Callable, Sequence

from albor_core.store.index.series.levels import TOP, Bucket, point, width
from albor_core.store.index.series.zoom import Zoom

KNOTS = 2048  # of a clock: a longer run has stretches between them, whose steps are looked up
_PREVIEW_ERROR_S = 128.0  # a preview keeps wall times in 32 bits
_WALLS = (
    "SELECT key_id, base, count, first_step, last_step FROM keys"
    " WHERE run_id = ? AND name = ? AND count > 0"
)
_EDGE = (
    "SELECT step, value FROM metrics_discarded WHERE run_id = ? AND at = ? AND key_id = ?"
    " AND value IS NOT NULL ORDER BY step {} LIMIT 1"
)
Knot = tuple[float, float]  # a step, and the wall time when it was logged
Fine = Callable[[int, int], Sequence[tuple[int, float | None]]]


class StepsByTime:
    """The steps that count of one run, by time. Reads the store that it was made of."""

    def __init__(
        self,
        knots: Sequence[Knot],
        created: float,
        *,
        begun: Sequence[float] = (),
        lost: Sequence[tuple[int, float, float]] = (),
        fine: Fine | None = None,
        stride: float | None = None,
    ) -> None:
        """`knots` in order of steps; `begun` are the times when attempts began, `lost` what rewinds
        took back: the first step, when it was logged and when the last one was. `fine` gives the
        points of a stretch [first, end) between two knots; `stride` is how far steps are apart.
        """
        self._steps, self._walls = _ascending(knots)
        apart = self._steps[1] - self._steps[0] if len(self._steps) > 1 else 1.0
        self._stride = apart if stride is None else stride
        self._created, self._fine = created, fine
        self._begun = sorted(begun)
        self._newest: tuple[int, tuple[list[float], list[float]]] | None = None
        self._lost = [(low, self._end_of(first, high)) for first, low, high in lost]

    @classmethod
    def of(cls, db: sqlite3.Connection, run_id: int, walls: str) -> StepsByTime | None:
        """The clock of a run, from the series called `walls`; None where it logged no step, or
        it is not known when it began.
        """
        (created, first_wall, last_wall) = db.execute(
            "SELECT created, first_wall, last_wall FROM runs WHERE id = ?", (run_id,)
        ).fetchone()
        row = db.execute(_WALLS, (run_id, walls)).fetchone()
        if row is None or created is None:
            return None
        key_id, base, count, first, last = row
        stride = (last - first) / (count - 1) if count > 1 else 1.0
        zoom = Zoom(db, run_id, key_id, max(base, 1))
        if (preview := zoom.preview()) is not None:
            inner = [(one.start, one.minimum) for one in preview]
            knots = _between(inner, (first, first_wall), (last, last_wall))
            return cls(knots, created, stride=stride)
        buckets = _coarse(zoom, first, last, count)
        return cls(
            [(one.start, one.minimum) for one in buckets],
            created,
            begun=[
                wall
                for (wall,) in db.execute(
                    "SELECT started FROM attempts WHERE run_id = ? AND started IS NOT NULL",
                    (run_id,),
                )
            ],
            lost=_taken_back(db, run_id, key_id),
            fine=None if all(one.points == 1 for one in buckets) else zoom.points,
            stride=stride,
        )

    def at(self, second: float) -> float | None:
        """The step where the run was, so and so many seconds after it was made: between two that it
        logged in proportion to the time. None while it trained what was taken back.
        """
        wall = self._created + second
        if any(low <= wall < high for low, high in self._lost):
            return None
        return self._place(wall)

    def kept_at(self, second: float) -> float:
        """As `at`, but of a stretch that was taken back the step to which the run went back."""
        wall = self._created + second
        lost = [low for low, high in self._lost if low <= wall < high]
        return self._place(math.nextafter(min(lost), 0) if lost else wall)

    def second_at(self, step: float) -> float:
        """When a step was reached, in seconds since the run was made: of those between two that are
        known, the earlier one's time.
        """
        i = bisect_right(self._steps, step) - 1
        return self._walls[i] - self._created if i >= 0 else 0.0

    def _place(self, wall: float) -> float:
        steps, walls = self._steps, self._walls
        i = bisect_right(walls, wall) - 1
        if i < 0:
            if steps[0] > self._stride:
                return steps[0]  # it did not begin at 0, and where is not known
            return self._within((0.0, self._created), 0, wall)
        low = steps[i], walls[i]
        if self._fine is not None:
            fine_steps, fine_walls = self._stretch(i)
            if j := bisect_right(fine_walls, wall):
                low = fine_steps[j - 1], fine_walls[j - 1]
            if j < len(fine_steps):
                return self._share(low, (fine_steps[j], fine_walls[j]), wall)
        return self._within(low, i + 1, wall)

    def _within(self, low: Knot, above: int, wall: float) -> float:
        if above >= len(self._steps):
            return low[0]
        return self._share(low, (self._steps[above], self._walls[above]), wall)

    def _share(self, low: Knot, high: Knot, wall: float) -> float:
        """The fractional step at a time between two steps; an attempt between them counts from
        the lower one."""
        (step, since), (end, until) = low, high
        if begun := [at for at in self._begun if since < at < until]:
            if wall < begun[-1]:
                return step
            since = begun[-1]
        if until <= since or wall <= since:
            return step
        return step + (end - step) * min(1.0, (wall - since) / (until - since))

    def _stretch(self, i: int) -> tuple[list[float], list[float]]:
        """The points from a knot to the next one. The newest is kept: who asks goes on in time, and
        all of a long run would not fit into memory.
        """
        if self._newest is not None and self._newest[0] == i:
            return self._newest[1]
        assert self._fine is not None
        is_last = i + 1 >= len(self._steps)
        points = self._fine(int(self._steps[i]), 2**62 if is_last else int(self._steps[i + 1]))
        known_walls = [(float(step), wall) for step, wall in points if wall is not None]
        end = [] if is_last else [(self._steps[i + 1], self._walls[i + 1])]
        steps, walls = _ascending([*known_walls, *end])
        if not is_last:
            steps, walls = steps[:-1], walls[:-1]
        found = (steps, walls) if steps else ([self._steps[i]], [self._walls[i]])
        self._newest = i, found
        return found

    def _end_of(self, first: int, high: float) -> float:
        """When what was taken back was over: with the attempt that went back, if it was another,
        else with the last step of it.
        """
        after = next((at for at in self._begun if at > high), None)
        if after is not None and self._steps and self._place(after) < first:
            return after
        return math.nextafter(high, math.inf)


def _ascending(knots: Sequence[Knot]) -> tuple[list[float], list[float]]:
    """Steps, and when each was reached: a step that was logged again later, such as a score of an
    old checkpoint, was reached before those that follow it.
    """
    steps, walls = [], []
    newest = math.inf
    for step, wall in reversed(knots):
        newest = min(newest, wall) if wall == wall else newest
        steps.append(float(step))
        walls.append(newest)
    return steps[::-1], walls[::-1]


def _coarse(zoom: Zoom, first: int, last: int, count: int) -> list[Bucket]:
    if count <= KNOTS:
        return [point(step, value) for step, value in zoom.points(first, last + 1)]
    level = zoom.base
    while level < TOP and width(level) * KNOTS < last - first:
        level += 1
    return zoom.cover(level, first, last + 1, last)


def _taken_back(db: sqlite3.Connection, run_id: int, key_id: int) -> list[tuple[int, float, float]]:
    found, at = [], -1
    following = "SELECT min(at) FROM metrics_discarded WHERE run_id = ? AND at > ?"
    while (at := db.execute(following, (run_id, at)).fetchone()[0]) is not None:
        low = db.execute(_EDGE.format("ASC"), (run_id, at, key_id)).fetchone()
        high = db.execute(_EDGE.format("DESC"), (run_id, at, key_id)).fetchone()
        if low is not None:
            found.append((low[0], low[1], max(low[1], high[1])))
    return found


def _between(
    inner: Sequence[Knot], first: tuple[int, float | None], last: tuple[int, float | None]
) -> list[Knot]:
    """A preview's knots between the exact ends, as far as they are apart by more than its error."""
    if first[1] is None or last[1] is None:
        return list(inner)
    knots: list[Knot] = [(first[0], first[1])]
    for step, wall in inner:
        is_apart = min(wall - knots[-1][1], last[1] - wall) > 2 * _PREVIEW_ERROR_S
        if is_apart and step > knots[-1][0]:
            knots.append((step, wall))
    return [*knots, (last[0], last[1])] if last[0] > first[0] else knots
