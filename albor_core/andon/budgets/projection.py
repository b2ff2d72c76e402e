"""Projects the use of a run at its end, and when a budget runs out. Pure.

Formula  at_completion = used + (1 - share) r, where r is the use per share of the run over the
         newest third of its progress (least squares), so that a slow beginning, a changed batch
         or a schedule of evaluations counts as it is now; exhausted_wall = now + (limit - used) /
         w, where w is the use per second over the same points, if that is before the run ends.
Units    Those of the limit; shares 0..1; wall seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

_OLDER = 2 / 3
_LEAST_SHARE = 0.002  # earlier the start-up is most of what was used


class UsePoint(NamedTuple):
    """The use until a moment; `share` is the done part of the run, None if no end is planned."""

    wall: float
    used: float
    share: float | None = None


@dataclass(frozen=True)
class Projection:
    """The projection of one budget. None is unknown, or (exhausted_wall) not before the end."""

    used: float
    limit: float | None
    at_completion: float | None = None
    exhausted_wall: float | None = None


def project(
    limit: float | None, points_of_use: Sequence[UsePoint], share_done: float | None = None
) -> Projection:
    """Project the use from points in order of wall time, at least one; `share_done` is the progress
    at the last of them, if the points lack it.
    """
    last = points_of_use[-1]
    share = last.share if share_done is None else share_done
    newer = _newest_third(points_of_use)
    per_share = _slope([(p.share, p.used) for p in newer if p.share is not None])
    per_second = _slope([(p.wall, p.used) for p in newer])
    at_completion = None
    if share is not None and share >= 1.0:
        at_completion = last.used
    elif share is not None and share >= _LEAST_SHARE:
        rate = last.used / share if per_share is None else per_share
        at_completion = last.used + (1.0 - share) * max(0.0, rate)
    return Projection(
        last.used, limit, at_completion, _exhausted(limit, last, at_completion, per_second)
    )


def _exhausted(
    limit: float | None, last: UsePoint, at_completion: float | None, per_second: float | None
) -> float | None:
    if limit is None or (at_completion is not None and at_completion <= limit):
        return None
    if last.used >= limit:
        return last.wall
    if per_second is None or per_second <= 0:
        return None
    return last.wall + (limit - last.used) / per_second


def _newest_third(points: Sequence[UsePoint]) -> Sequence[UsePoint]:
    """The newest third of the points, by progress if known, else by time; at least two points."""
    first, last = points[0], points[-1]
    if first.share is not None and last.share is not None and last.share > first.share:
        start = _OLDER * last.share
        kept = [p for p in points if p.share is not None and p.share >= start]
    else:
        start = first.wall + _OLDER * (last.wall - first.wall)
        kept = [p for p in points if p.wall >= start]
    return kept if len(kept) > 1 else points[-2:]


def _slope(pairs: Sequence[tuple[float | None, float]]) -> float | None:
    known = [(x, y) for x, y in pairs if x is not None]
    if len(known) < 2:
        return None
    mean_x = sum(x for x, _ in known) / len(known)
    mean_y = sum(y for _, y in known) / len(known)
    spread = sum((x - mean_x) ** 2 for x, _ in known)
    if spread <= 0:
        return None
    return sum((x - mean_x) * (y - mean_y) for x, y in known) / spread
