"""The lines of a workspace: its runs or groups of them, as legend and charts name them. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from textual.content import Content

from albor_core.feed.runs.column_values import UNREAD, column_values
from albor_core.feed.view.run_view import RunView
from albor_core.feed.workspace.groups import RunGroup, group_label, group_runs
from albor_core.store.query.group import Band
from albor_tui.look import figures, glyphs, quantity
from albor_tui.model.workspace import Workspace
from albor_tui.screens.workspace.legend import BEST, LegendLine
from albor_tui.screens.workspace.marks import LineMark
from albor_tui.screens.workspace.reading import WorkspaceFacts
from albor_tui.widgets.base import styled

_WIDEST = 9  # cells of a figure


def group_values(facts: WorkspaceFacts, key: str) -> dict[str, object] | None:
    """What each run has of a column, as the list has it; None before that is read."""
    found = column_values(facts.views, key, facts.cells)
    return None if any(value is UNREAD for value in found.values()) else found


def drawn_groups(state: Workspace, facts: WorkspaceFacts) -> tuple[RunGroup, ...]:
    """The groups of the runs, each of those of its runs that are not hidden, or of all where all
    are; none where runs are not grouped or their values are not read."""
    values = group_values(facts, state.group) if state.group else None
    if values is None:
        return ()
    figures = facts.figures or {}
    states = {view.id: view.status for view in facts.views}
    whole = group_runs(state.listed, values, figures, states)
    seen = [run for run in state.listed if run not in state.hidden]
    drawn = {one.label: one for one in group_runs(seen, values, figures, states)}
    return tuple(drawn.get(one.label, one) for one in whole)


def legend_of_runs(
    state: Workspace, facts: WorkspaceFacts, names: Mapping[str, str], marks: Mapping[str, LineMark]
) -> list[LegendLine]:
    """A line for each run."""
    shown = frozenset(state.shown)
    place = {run: n for n, run in enumerate(state.listed)}
    views = sorted(facts.views, key=lambda view: place.get(view.id, len(place)))
    figures = None if facts.figures is None else {v.id: facts.figures.get(v.id) for v in views}
    values = [] if figures is None else list(figures.values())
    words = _aligned(values)
    gaps = gaps_to_best(values, [view.id not in state.hidden for view in views], facts.better)
    return [
        LegendLine(
            key=view.id,
            members=frozenset((view.id,)),
            label=names.get(view.id) or view.name or view.id,
            mark=marks[view.id].text if view.id in marks else "",
            tone=marks[view.id].ink if view.id in marks else "$ink-muted",
            is_shown=view.id in shown,
            figure=None if figures is None else words[i],
            is_odd=bool(values) and values[i] is not None and not math.isfinite(values[i]),  # type: ignore[arg-type]
            gap=gaps[i] if gaps else "",
            state=_state(view),
        )
        for i, view in enumerate(views)
    ]


def legend_of_groups(
    state: Workspace,
    facts: WorkspaceFacts,
    groups: Sequence[RunGroup],
    marks: Mapping[str, LineMark],
) -> list[LegendLine]:
    """A line for each group."""
    shown = frozenset(state.shown)
    bands = [one.band for one in groups]
    means, spreads = _aligned([band.mean for band in bands]), _spreads(bands)
    is_shown = [not shown.isdisjoint(one.runs) for one in groups]
    counts = [not state.hidden.issuperset(one.runs) for one in groups]
    gaps = gaps_to_best([band.mean for band in bands], counts, facts.better)
    by_id = {view.id: view for view in facts.views}
    everyone = {one.label: whole_members(state, facts, one) for one in groups}
    return [
        LegendLine(
            key=one.label,
            members=everyone[one.label],
            label=one.label,
            mark=marks[one.label].text if one.label in marks else "",
            tone=marks[one.label].ink if one.label in marks else "$ink-muted",
            is_shown=is_shown[i],
            is_group=True,
            n=len(one.runs),
            figure=None if facts.figures is None else _mean(one.band, means[i]),
            is_odd=bool(one.band.nonfinite) and one.band.mean is None,
            odd=_odd(one.band),
            spread=spreads[i] if facts.figures is not None else "",
            gap=gaps[i] if gaps else "",
            state=_worst(one, by_id),
        )
        for i, one in enumerate(groups)
    ]


def whole_members(state: Workspace, facts: WorkspaceFacts, group: RunGroup) -> frozenset[str]:
    """All listed runs of a group, hidden ones too."""
    values = group_values(facts, state.group) or {}
    return frozenset(run for run in state.listed if group_label(values.get(run)) == group.label)


def _mean(band: Band, words: str) -> str:
    if band.mean is None and band.nonfinite:
        return "not finite"
    return words


def _odd(band: Band) -> str:
    return f"{band.nonfinite} not finite" if band.nonfinite and band.mean is not None else ""


def _aligned(values: Sequence[float | None]) -> list[str]:
    """Figures with one number of digits after the point, as many as tell them apart."""
    return figures.apart(values, [quantity.ratio(value) for value in values], _WIDEST)


def _spreads(bands: Sequence[Band]) -> list[str]:
    """Standard deviations with the digits of the means."""
    form = _form_beside([band.mean for band in bands])
    return [
        "" if band.std is None else f"{glyphs.current.plus_minus} {form(band.std)}"
        for band in bands
    ]


def _form_beside(values: Sequence[float | None]) -> Callable[[float], str]:
    """How differences of these values are written: with their digits behind the point, where that
    says more than 0."""
    words = [word for word in _aligned(values) if word[-1:].isdigit() and "e" not in word]
    digits = max((len(word.partition(".")[2]) for word in words), default=0)

    def form(value: float) -> str:
        is_plain = words and (value == 0 or 10**-digits <= value < 10**_WIDEST)
        return f"{value:.{digits}f}" if is_plain else quantity.exponent(value)

    return form


def gaps_to_best(
    values: Sequence[float | None], counts: Sequence[bool], better: str | None
) -> list[str]:
    """How far each value is from the best that counts, of a run that is not hidden; nothing where
    no way is better."""
    known = [
        value
        for value, does_count in zip(values, counts, strict=False)
        if does_count and value is not None and math.isfinite(value)
    ]
    if better is None or len(known) < 2:
        return []
    best = min(known) if better == "min" else max(known)
    gaps = [None if value is None or not math.isfinite(value) else value - best for value in values]
    form = _form_beside(values)
    return [
        glyphs.current.missing
        if gap is None
        else BEST
        if gap == 0
        else f"{'+' if gap > 0 else '-'}{form(abs(gap))}"
        for gap in gaps
    ]


def _state(view: RunView) -> Content:
    return _dimmed(styled.state_of(view), view.status)


def _dimmed(state: Content, status: str) -> Content:
    """What is as it should be and over is said, not shown off."""
    return Content.styled(state.plain, "$ink-muted") if status == "completed" else state


def _worst(group: RunGroup, by_id: Mapping[str, RunView]) -> Content:
    """The worst state of a group, and how many of its runs are in it."""
    count = Counter(by_id[run].status for run in group.runs if run in by_id)[group.state]
    state = _dimmed(styled.state(group.state), group.state)
    return state if count == len(group.runs) else state + Content.styled(f" {count}", "$ink-muted")
