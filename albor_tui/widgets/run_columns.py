"""The columns of the table of runs: what each says of a run, and which of them fit.

Columns have priorities: as many as fit are shown, and the name takes the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from rich.cells import cell_len
from textual.content import Content

from albor_core.feed.runs.listed_metric import beside
from albor_core.feed.view.run_view import RunView
from albor_core.run.headlines import HEADLINES, Headline
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
METRIC = "metric"  # the column of what stands for a run
GUTTER = 3  # cursor, mark, air
_MOST_NAMES = 0.9  # so many of the names are shown whole before bars get wider

_LISTED = tuple(one for one in HEADLINES if one.is_listed)


@dataclass(frozen=True)
class TableColumn:
    """How one fact of a run is shown. A lower `rank` gives way later; width excludes the gap."""

    title: str
    width: int
    rank: int
    cell: Callable[[RunView, int], Content]
    align: str = "right"


def _figure(value: str, view: RunView) -> Content:
    unknown = value == glyphs.current.missing
    odd = value in ("NaN", "inf", "-inf")
    tone = (
        "$error" if odd else "$ink-faint" if unknown else "$ink" if view.is_live else "$ink-muted"
    )
    return Content.styled(value, tone)


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
    tone = STATE_TONE.get(view.status, "$ink-muted")
    share = Content.styled(quantity.percent(view.progress).rjust(4), "$ink-muted")
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
    value = _figure(quantity.metric(one.last, one.name), view)
    value += Content.styled(figures.way(one), "$ink-muted")
    room = max(1, width - value.cell_length - 1)
    name = styled.text(figures.name_in(one.name, room), "$ink-muted")
    name = styled.fit(styled.fit_middle(name, room), room)
    return name + " " + value


def _title(one: Headline) -> str:
    return one.title.removeprefix("val ")


def _headline(one: Headline, rank: int) -> TableColumn:
    def cell(view: RunView, width: int) -> Content:
        return _figure(figures.text_of(one.unit, getattr(view, one.name)), view)

    first = 1 if one.name == "loss" else rank
    return TableColumn(_title(one), figures.WIDTHS[one.unit], first, cell)


COLUMNS = (
    TableColumn("state", _STATE, 0, lambda v, w: styled.state_of(v), "left"),
    TableColumn("run", _NAME_MIN, 0, _name, "left"),
    TableColumn("experiment", 11, 9, lambda v, w: styled.text(v.experiment, "$ink-muted"), "left"),
    TableColumn("done", 4, 3, _progress),
    TableColumn(METRIC, _METRIC_MIN, 6, _metric, "left"),
    TableColumn("loss trend", 16, 8, _trend, "left"),
    *(_headline(one, rank) for rank, one in enumerate(_LISTED, 3)),
    TableColumn("took", 7, 10, lambda v, w: _figure(quantity.duration(v.elapsed_s), v)),
    TableColumn("ends", 8, 2, styled.ends),
    TableColumn("alert", 5, 1, _alerts),
)


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


def needs_of(runs: Sequence[RunView], tails: Mapping[str, str]) -> TableNeeds:
    """Figures of the house that none of these runs has give way to what stands for them."""
    lengths = sorted(len(name_of(view, tails)) for view in runs) or [_NAME_MIN]
    names = lengths[int((len(lengths) - 1) * _MOST_NAMES)], lengths[-1]
    state = max((_STATE, *(styled.state_of(v).cell_length for v in runs if v.status == "unknown")))
    own = [(view, one) for view in runs if (one := beside(view)) is not None]
    if not own:
        return TableNeeds(*names, longest_state=state)
    absent = {_title(one) for one in _LISTED if not _is_said(one, runs)}
    if not any(view.trend or view.loss_history for view in runs):
        absent.add("loss trend")
    longest = max(cell_len(clean(one.name)) for _, one in own) + _METRIC_VALUE
    is_lossless = any(view.loss is None for view, _ in own)
    return TableNeeds(*names, frozenset(absent), longest, is_lossless, state)


def _is_said(one: Headline, runs: Sequence[RunView]) -> bool:
    return any(getattr(view, one.name) is not None for view in runs)


def layout(width: int, needs: TableNeeds) -> list[tuple[TableColumn, int]]:
    """The columns that fit into `width` cells, in order, each with its width.

    What is left over goes to the metric, to the name as far as most names are long, then to a bar
    that is worth drawing, the trend, and longer names.
    """
    columns = [_ranked(c, needs) for c in COLUMNS if c.title not in needs.absent]
    most_names = needs.most_names
    chosen = [c for c in columns if c.rank == 0]
    used = GUTTER - GAP + sum(c.width + GAP for c in chosen)  # no gap after the last column
    name = max(0, min(most_names, _NAME_FIRST) - _NAME_MIN)
    for column in sorted((c for c in columns if c.rank), key=lambda c: c.rank):
        if used + column.width + GAP + (name if column.rank >= _LUXURY else 0) <= width:
            chosen.append(column)
            used += column.width + GAP
    spare = max(0, width - used)
    widths = {column.title: column.width for column in chosen}
    for title, most in (
        (METRIC, min(needs.longest_metric, _METRIC_MAX)),
        ("run", min(most_names, _NAME_MAX)),
        ("done", _BAR_MAX),
        ("loss trend", _TREND_MAX),
        ("run", min(needs.longest_name, _NAME_LIMIT)),
        ("loss trend", _TREND_LIMIT),
    ):
        if title in widths and most > widths[title]:
            more = min(spare, most - widths[title])
            if title == "done" and widths[title] + more < _BAR_MIN:
                continue
            widths[title] += more
            spare -= more
    return [(c, widths[c.title]) for c in columns if c in chosen]


def _ranked(column: TableColumn, needs: TableNeeds) -> TableColumn:
    """What stands for runs without a loss comes before everything else that may give way."""
    if column.title == "state":
        return replace(column, width=needs.longest_state)
    is_first = column.title == METRIC and needs.is_without_loss
    return replace(column, rank=1) if is_first else column
