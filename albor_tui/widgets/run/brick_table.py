"""The timed parts of a step as a table: how long now, on average, against the budget, and which of
them held the run up."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from textual.content import Content
from textual.reactive import reactive

from albor_core.andon.bricks.names import in_order, is_of_step
from albor_core.feed.view.run_view import BrickView
from albor_core.run.light_dataclass import dataclass
from albor_core.store.rows.series import Series
from albor_tui.look import quantity
from albor_tui.widgets.base import styled
from albor_tui.widgets.base.line_list import LineList
from albor_tui.widgets.run.system_lines import trace

if TYPE_CHECKING:
    from albor_core.store.rows.rows import EventRow

_SHORTEST, _LONGEST = 11, 16  # cells of a name: "clip+optimizer" is the longest of ours
_SPARK = 60  # buckets of a brick's past that its line can show


@dataclass(frozen=True)
class BrickRow:
    """One brick: milliseconds now and on average (per step, or per log interval for what happens
    between steps), its budget or the one that was learned, its share of the step if it is part of
    one, how often it paused the run and when last, and its past."""

    name: str
    last_ms: float | None
    mean_ms: float | None
    budget_ms: float | None
    share: float | None
    pauses: int = 0
    paused_at: int | None = None
    past: tuple[float, ...] = ()
    learned_ms: float | None = None

    @property
    def limit_ms(self) -> float | None:
        """The limit of its time: its budget, else the learned one."""
        return self.budget_ms if self.budget_ms is not None else self.learned_ms

    @property
    def is_over(self) -> bool:
        both = self.last_ms is not None and self.budget_ms is not None
        return both and self.last_ms > self.budget_ms  # type: ignore[operator]


def brick_rows(
    bricks: Sequence[BrickView], curves: Mapping[str, Series], events: Iterable[EventRow]
) -> tuple[BrickRow, ...]:
    """Bricks of the live state and those that only history knows, as they come in a step."""
    known = {brick.name: brick for brick in bricks}
    for key in curves:
        name = key.removeprefix("brick/").removesuffix("_ms")
        known.setdefault(name, BrickView(name))
    pauses = [event for event in events if event.name == "jidoka.pause"]
    last = {name: _last(brick, curves) for name, brick in known.items()}
    finite_now = {name: ms for name, ms in last.items() if ms is not None and math.isfinite(ms)}
    step = sum(ms for name, ms in finite_now.items() if is_of_step(name))
    rows = []
    for name in in_order(known):
        brick = known[name]
        past = curves.get(f"brick/{name}_ms", Series("")).mean
        finite = [ms for ms in past if math.isfinite(ms)]
        mine = [event.step for event in pauses if event.data.get("brick") == name]
        now = last[name]
        rows.append(
            BrickRow(
                name,
                now,
                sum(finite) / len(finite) if finite else None,
                brick.budget_ms,
                now / step if now is not None and step and is_of_step(name) else None,
                len(mine),
                max((s for s in mine if s is not None), default=None),
                tuple(past[-_SPARK:]),
                brick.learned_ms,
            )
        )
    return tuple(rows)


def _deviations(row: BrickRow, width: int) -> Content:
    """The past of a brick: half its mean is the ground, half as much again the top."""
    mean = row.mean_ms or 0.0
    return trace(row.past, width, 1.5 * mean, low=0.5 * mean)


def _last(brick: BrickView, curves: Mapping[str, Series]) -> float | None:
    if brick.measured_ms is not None:
        return brick.measured_ms
    past = curves.get(f"brick/{brick.name}_ms", Series("")).mean
    return past[-1] if past else None


class BrickTable(LineList):
    """A table with a line per brick below a line of headings."""

    rows: reactive[tuple[BrickRow, ...]] = reactive((), init=False, repaint=False)

    @property
    def current(self) -> BrickRow | None:
        at = self.cursor - 1
        return self.rows[at] if 0 <= at < len(self.rows) else None

    def count(self) -> int:
        return len(self.rows) + 1 if self.rows else 0

    def can_stand(self, index: int) -> bool:
        return index > 0

    def watch_rows(self, old: tuple[BrickRow, ...], new: tuple[BrickRow, ...]) -> None:
        names = [row.name for row in old], [row.name for row in new]
        if names[0] != names[1]:
            self.lines_changed()
        else:
            self.redraw(index + 1 for index, row in enumerate(new) if row != old[index])

    def draw_line(self, index: int, width: int) -> Content:
        names = min(_LONGEST, max(_SHORTEST, *(len(row.name) + 1 for row in self.rows)))
        left = width - 47 - names
        bars = left if left < 22 else min(40, left // 2)
        past = left - bars - 2
        if index == 0:
            return _headings(names, bars)
        row = self.rows[index - 1]
        scale = self._scale_of(row)
        tone = "$error" if row.is_over else "$ink"
        limit = row.limit_ms / scale if row.limit_ms else None
        held = f"{row.pauses} @ {quantity.si(row.paused_at)}" if row.pauses else "no"
        share = quantity.percent(row.share) if is_of_step(row.name) else "apart"
        tone_of_bar = "$error" if row.is_over else "$line-second"
        drawn = styled.bar((row.last_ms or 0) / scale, bars, tone_of_bar, mark=limit)
        return Content.assemble(
            styled.fit(styled.text(row.name, "bold $ink"), names),
            (quantity.milliseconds(row.last_ms).rjust(9), tone),
            (quantity.milliseconds(row.mean_ms).rjust(9), "$ink"),
            (limit_words(row.budget_ms, row.learned_ms).rjust(9), "$ink-muted"),
            (share.rjust(7), "$ink"),
            (held.rjust(11), "$warning" if row.pauses else "$ink-faint"),
            "  ",
            drawn
            if limit is not None
            else " " * bars,  # against no budget there is nothing to draw
            "  " + _deviations(row, past) if past >= 8 else "",
        )

    def _scale_of(self, row: BrickRow) -> float:
        """Milliseconds of a full bar: the same for all parts of a step, and for all of the rest,
        so that their lengths can be compared.
        """
        peers = [r for r in self.rows if is_of_step(r.name) == is_of_step(row.name)]
        longest = max((max(r.last_ms or 0, r.limit_ms or 0) for r in peers), default=0)
        return longest if longest and math.isfinite(longest) else 1.0


def _headings(names: int, bars: int) -> Content:
    """Over names of `names` cells and bars of `bars`."""
    heads = ("brick".ljust(names), "now".rjust(9), "mean".rjust(9), "budget".rjust(9))
    line = "".join(heads) + "share".rjust(7) + "paused".rjust(11) + "  "
    last = "against the budget" if bars >= 18 else "of budget"
    return Content.styled(line + last, "$ink-muted")


def limit_words(budget_ms: float | None, learned_ms: float | None) -> str:
    """A budget, or with a ~ the learned one."""
    if budget_ms is None and learned_ms is not None:
        return f"~{quantity.milliseconds(learned_ms)}"
    return quantity.milliseconds(budget_ms)
