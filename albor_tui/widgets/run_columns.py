"""The columns of the table of runs: what each says of a run, and which of them fit.

Columns have priorities, first what the list is sorted by and those that the user added: as many as
fit are shown in their order, and the name takes the rest. What does not fit stands to the right and
is scrolled to; a column that no run fills gives its room away.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from rich.cells import cell_len
from textual.content import Content

from albor_core.feed.runs.listed_metric import beside
from albor_core.feed.view.run_view import RunView
from albor_core.run.headlines import HEADLINES, STORED, Headline
from albor_core.run.light_dataclass import dataclass
from albor_core.run.values.clean import clean
from albor_tui.look import figures, glyphs, quantity
from albor_tui.look.naming import name_of
from albor_tui.look.themes import SEVERITY_TONE, STATE_TONE
from albor_tui.widgets.base import styled

_NAME_MIN, _NAME_MAX, _NAME_LIMIT = 14, 48, 100
GAP = 2
_NAME_FIRST, _LUXURY = 28, 8  # so long a name comes before columns of such a rank
_METRIC_MIN, _METRIC_MAX, _METRIC_VALUE = 20, 36, 12
_BAR_MIN, _BAR_MAX, _TREND_MAX, _TREND_LIMIT = 10, 24, 32, 160
_STATE = 12
_TEXT_MAX = 60  # of notes and other texts, where there is room
_LEAST = 6  # cells of a column that is cut
_CUT_TO = {"metric": 16, "trend": 8}  # of those that say little in as few
METRIC = "metric"  # the column of what stands for a run
GUTTER = 3  # cursor, mark, air
_MOST_NAMES = 0.9  # so many of the names are shown whole before bars get wider

_LISTED = tuple(one for one in HEADLINES if one.is_listed)


@dataclass(frozen=True)
class TableColumn:
    """How one fact of a run is shown. A lower `rank` gives way later; width excludes the gap. `key`
    is its name as users write it. One that the user added (`is_own`) stays where no run fills it.
    """

    title: str
    width: int
    rank: int
    cell: Callable[[RunView, int], Content]
    align: str = "right"
    key: str = ""
    has: Callable[[RunView], object] = bool
    is_own: bool = False
    is_absent: bool = False
    """Whether no run of the store has such a value."""
    most: int = 0
    """How wide it may become where there is room."""


def figure(value: str, tone: str = "$ink") -> Content:
    """A figure in a cell: what is not a number is said, what is not known is dim."""
    unknown = value == glyphs.current.missing
    odd = value in ("NaN", "inf", "-inf")
    return Content.styled(value, "$error" if odd else "$ink-faint" if unknown else tone)


def _name(view: RunView, width: int) -> Content:
    return styled.fit_middle(styled.text(view.name or view.id, "$ink"), width)


def named(view: RunView, tail: str, width: int) -> Content:
    """A name that others have too, and what tells it apart: the name gives way."""
    end = styled.text(f" {tail}", "$ink-muted")
    name = styled.text(view.name or view.id, "$ink")
    room = max(1, width - end.cell_length)
    return styled.fit_middle(name, room) + end


def _progress(view: RunView, width: int) -> Content:
    if view.progress is None:
        done = glyphs.current.missing if view.step is None else _steps(view.step, width)
        return Content.styled((f"step {done}" if width >= 10 else done).rjust(width), "$ink-muted")
    if view.status == "completed" and view.progress >= 1.0:
        return Content.styled(glyphs.current.check.rjust(width), "$ink-faint")
    tone = STATE_TONE.get(view.status, "$ink-muted")
    share = Content.styled(quantity.percent(view.progress).rjust(4), "$ink-muted")
    if not view.is_active:
        return Content(" " * (width - share.cell_length)) + share
    bar = styled.bar(view.progress, width - 5, tone) if width >= _BAR_MIN else Content("")
    return Content(" ").join([bar, share]) if width >= _BAR_MIN else share


def _steps(step: int, width: int) -> str:
    """A step number with as many digits as fit: 1.23k, 1.2k."""
    done = quantity.si(step)
    if len(done) <= width or "." not in done:
        return done
    return f"{done[: width - 1].rstrip('.')}{done[-1]}"


def _alerts(view: RunView, width: int) -> Content:
    if not view.alerts_open:
        return Content.styled(glyphs.current.dot, "$ink-faint")
    tone = SEVERITY_TONE.get(view.severity, "$warning")
    return Content.styled(f"{glyphs.current.alert} {min(view.alerts_open, 99)}", tone)


def _trend(view: RunView, width: int) -> Content:
    tone = "$line-main" if view.is_live else "$ink-faint"
    return styled.spark(view.trend or view.loss_history, width, tone)


def _metric(view: RunView, width: int) -> Content:
    one = beside(view)
    if one is None:
        return Content.styled(glyphs.current.missing.rjust(width), "$ink-faint")
    value = figure(quantity.metric(one.last, one.name))
    value += Content.styled(figures.way(one), "$ink-muted")
    room = max(1, width - value.cell_length - 1)
    name = styled.text(figures.name_in(one.name, room), "$ink-muted")
    name = styled.fit(styled.fit_middle(name, room), room)
    return name + " " + value


def _title(one: Headline) -> str:
    return one.title.removeprefix("val ")


def _headline(one: Headline, rank: int) -> TableColumn:
    def cell(view: RunView, width: int) -> Content:
        tone = "$ink" if one.unit == "loss" or view.is_live else "$ink-muted"
        return figure(figures.text_of(one.unit, getattr(view, one.name)), tone)

    def has(view: RunView) -> bool:
        return getattr(view, one.name) is not None

    first, title = 1 if one.name == "loss" else rank, _title(one) if one.is_listed else one.title
    return TableColumn(title, figures.WIDTHS[one.unit], first, cell, key=one.name, has=has)


def _ends(view: RunView, width: int) -> Content:
    """The end of a run of another machine that may be at work is not known."""
    if view.status == "unknown":
        return Content.styled(glyphs.current.missing, "$ink-faint")
    return styled.ends(view, width)


def _ago(seconds: float | None) -> str:
    if seconds is None:
        return glyphs.current.missing
    return f"{quantity.age(seconds) if seconds >= 60.0 else '<1m'} ago"


def _plain(
    key: str,
    width: int,
    words: Callable[[RunView], object],
    *,
    title: str = "",
    align: str = "left",
) -> TableColumn:
    """A column of what a run's row says by itself."""

    def cell(view: RunView, width: int) -> Content:
        said = words(view)
        text = "" if said is None else str(said)
        return styled.text(text, "$ink-muted") if text else figure(glyphs.current.missing)

    return TableColumn(title or key, width, 11, cell, align, key, has=words)


COLUMNS = (
    TableColumn("state", _STATE, 0, lambda v, w: styled.state_of(v), "left", "status"),
    TableColumn("run", _NAME_MIN, 0, _name, "left", "name"),
    replace(_plain("experiment", 11, lambda v: v.experiment), rank=9),
    TableColumn(
        "done", 4, 3, _progress, key="done", has=lambda v: (v.progress, v.step) != (None, None)
    ),
    TableColumn(METRIC, _METRIC_MIN, 6, _metric, "left", METRIC, has=beside),
    TableColumn("loss trend", 16, 8, _trend, "left", "trend", lambda v: v.trend or v.loss_history),
    *(_headline(one, rank) for rank, one in enumerate(_LISTED, 3)),
    TableColumn(
        *("took", 7, 10, lambda v, w: figure(quantity.duration(v.elapsed_s), "$ink-muted")),
        key="duration",
        has=lambda v: v.elapsed_s is not None,
    ),
    TableColumn("ends", 8, 2, _ends, key="ends"),
    TableColumn("alert", 5, 1, _alerts, key="alerts", has=lambda v: v.alerts_open),
)
"""Those of a list whose user chose none."""
MORE_COLUMNS = (
    *(_headline(one, 11) for one in STORED if not one.is_listed and one.title),
    _plain("step", 9, lambda v: None if v.step is None else quantity.count(v.step), align="right"),
    _plain(
        *("created", 12, lambda v: v.created and quantity.moment(v.created, time.time())),
        align="right",
    ),
    _plain("seen", 8, lambda v: _ago(v.age_s), align="right"),
    _plain("tags", 16, lambda v: " ".join(v.tags)),
    _plain("host", 12, lambda v: v.host),
    _plain("kind", 8, lambda v: v.kind),
    _plain("seed", 6, lambda v: v.seed, align="right"),
    _plain("commit", 10, lambda v: v.git_commit[:10]),
    _plain("attempts", 8, lambda v: v.attempts_total, align="right"),
    _plain("id", 20, lambda v: v.id),
)
"""Those that the user may add besides metrics, params and notes."""
BUILT_IN = {column.key: column for column in (*COLUMNS, *MORE_COLUMNS)}
ALIASES = {
    **{"state": "status", "run": "name", "took": "duration", "alert": "alerts", "tag": "tags"},
    **{"ppl": "val_ppl", "tok/s": "tokens_per_s", "loss trend": "trend", "recent": ""},
}
"""Other names of columns and orders, as the heads of the table have them."""


def column_key(said: str) -> str:
    """The key of a column or an order as a user wrote it."""
    return ALIASES.get(said, said)


@dataclass(frozen=True)
class TableNeeds:
    """What decides the columns, of the runs that are shown: how long most names are, and the
    longest one; columns that none of them fills; how long a metric is that stands for one of them,
    and whether one of them has no loss.
    """

    most_names: int = _NAME_MAX
    longest_name: int = _NAME_MAX
    absent: frozenset[str] = frozenset({METRIC})
    longest_metric: int = _METRIC_MIN
    is_without_loss: bool = False
    longest_state: int = _STATE
    has_bars: bool = True
    """Whether a run is at work, whose progress is worth a bar."""
    is_loss_trend: bool = True
    """Whether each trend is of a loss."""


def needs_of(
    runs: Sequence[RunView],
    tails: Mapping[str, str],
    columns: Sequence[TableColumn] = COLUMNS,
) -> TableNeeds:
    """What the columns of these runs need. One that no run fills is absent, unless the user added
    it; so is what stands for runs, where columns of the user's say it of each.
    """
    lengths = sorted(len(name_of(view, tails)) for view in runs) or [_NAME_MIN]
    names = lengths[int((len(lengths) - 1) * _MOST_NAMES)], lengths[-1]
    state = max((_STATE, *(styled.state_of(v).cell_length for v in runs if v.status == "unknown")))
    has_bars = any(view.is_active and view.progress is not None for view in runs)
    of_losses = not any(view.trend for view in runs)
    said = {column.key for column in columns if column.is_own}
    told = [one for view in runs if (one := beside(view)) is not None]
    own = [one for one in told if one.name not in said]
    own = own if 2 * len(own) > len(told) else []  # else the user's columns say it
    absent = {
        column.key
        for column in columns
        if runs and not column.is_own and column.rank and not any(map(column.has, runs))
    }
    if not own:
        absent.add(METRIC)
        return TableNeeds(
            *names,
            frozenset(absent),
            longest_state=state,
            has_bars=has_bars,
            is_loss_trend=of_losses,
        )
    longest = max(cell_len(clean(one.name)) for one in own) + _METRIC_VALUE
    is_lossless = any(view.loss is None for view in runs if beside(view) is not None)
    return TableNeeds(*names, frozenset(absent), longest, is_lossless, state, has_bars, of_losses)


class ColumnLayout(NamedTuple):
    """The columns on the screen, each with its width, and how many are to their left and right."""

    shown: tuple[tuple[TableColumn, int], ...]
    left: int = 0
    right: int = 0


def layout(
    width: int,
    needs: TableNeeds,
    columns: Sequence[TableColumn] = COLUMNS,
    *,
    first: int = 0,
    sorted_by: str = "",
) -> ColumnLayout:
    """The columns that fit into `width` cells, in order, from the one numbered `first` on of those
    that can be scrolled.

    What is left over goes to the metric, to the name as far as most names are long, then to a bar
    that is worth drawing, the trend, and longer names.
    """
    known = [_ranked(c, needs, sorted_by) for c in columns if c.key not in needs.absent or c.is_own]
    fixed = [c for c in known if c.rank == 0]
    used = GUTTER - GAP + sum(c.width + GAP for c in fixed)  # no gap after the last column
    name = max(0, min(needs.most_names, _NAME_FIRST) - _NAME_MIN)
    loose = [c for c in known if c.rank]
    most = _by_rank(loose, width - used, name)
    fitting = [most[c.key] for c in loose if c.key in most]
    loose = [*fitting, *(c for c in loose if c.key not in most)]
    limit = len(loose) if first else len(most) or len(loose)
    name = 0 if most else name
    first = max(0, min(first, len(loose) - 1))
    room = width - used
    name = max(0, min(name, room - _LEAST - GAP))
    chosen: list[TableColumn] = []
    for column in loose[first : first + limit]:
        if column.width + GAP > room - name:
            break
        chosen.append(column)
        room -= column.width + GAP
    if loose and not chosen and room - GAP >= _LEAST:  # wider than there is room
        chosen = [replace(loose[first], width=min(loose[first].width, room - GAP))]
        room -= chosen[0].width + GAP
    shown = _widened([*fixed, *chosen], max(0, room), needs)
    return ColumnLayout(shown, first, len(loose) - first - len(chosen))


def _by_rank(columns: Sequence[TableColumn], room: int, name: int) -> dict[str, TableColumn]:
    """Those of the columns that fit, by their keys, the lowest rank first; one more in what would
    be blank, where it says something in fewer cells.
    """
    chosen, by_rank = dict[str, TableColumn](), sorted(columns, key=lambda c: c.rank)
    for column in by_rank:
        if column.width + GAP + (name if column.rank >= _LUXURY else 0) <= room:
            chosen[column.key] = column
            room -= column.width + GAP
    spare = room - name - GAP
    for column in by_rank:
        least = _CUT_TO.get(column.key, _LEAST)
        if column.key not in chosen and column.align == "left" and spare >= least:
            chosen[column.key] = replace(column, width=spare)
            break
    return chosen


def _widened(
    columns: Sequence[TableColumn], spare: int, needs: TableNeeds
) -> tuple[tuple[TableColumn, int], ...]:
    widths = {column.key: column.width for column in columns}
    for key, most in (
        (METRIC, min(needs.longest_metric, _METRIC_MAX)),
        ("name", min(needs.most_names, _NAME_MAX)),
        ("done", _BAR_MAX if needs.has_bars else 0),
        ("trend", _TREND_MAX),
        *((c.key, min(c.most, _TEXT_MAX)) for c in columns),
        ("name", min(needs.longest_name, _NAME_LIMIT)),
        ("trend", _TREND_LIMIT),
    ):
        if key in widths and most > widths[key]:
            more = min(spare, most - widths[key])
            if key == "done" and widths[key] + more < _BAR_MIN:
                continue
            widths[key] += more
            spare -= more
    return tuple((column, widths[column.key]) for column in columns)


def _ranked(column: TableColumn, needs: TableNeeds, sorted_by: str) -> TableColumn:
    """What the list is sorted by comes before everything else that may give way, then what the user
    added, and what stands for runs without a loss.
    """
    if column.key == "status":
        return replace(column, width=needs.longest_state)
    if not column.rank:
        return column
    if column.key == sorted_by:
        return replace(column, rank=-1)
    is_first = column.key == METRIC and needs.is_without_loss
    return replace(column, rank=1) if is_first or column not in COLUMNS else column
