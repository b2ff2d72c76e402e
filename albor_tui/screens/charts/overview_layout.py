"""Where the panels of the Overview stand: those that have nothing take no room. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import NamedTuple

from albor_core.feed.view.run_view import RunView
from albor_core.run.light_dataclass import dataclass
from albor_tui.widgets.run.guard_panel import is_guarded
from albor_tui.widgets.run.panels import OVER

SMALL = ("lr", "grad", "speed")  # the small charts, by what the house shows there
WIDE = ("loss", "machine", "bricks", *SMALL, "log", "guard", "alerts")
# a narrow terminal shows what is alive on its first page
NARROW = ("loss", "machine", "guard", "log", "bricks", "alerts", *SMALL)
_FULL = ("loss", "log")  # as wide as a narrow terminal
_LEAST = 8  # lines of a panel in which a chart can be read
_SHARE = "1fr"


@dataclass(frozen=True)
class Room:
    """The space that the panels share."""

    is_wide: bool = True
    is_tall: bool = False
    is_high: bool = False
    is_alerted: bool = False
    height: int = 0  # lines; 0 is not known


@dataclass(frozen=True)
class Layout:
    """Panels in order; columns and the heights of rows, "8" or "1fr"; how many columns and rows a
    panel takes that does not take one of each.
    """

    order: tuple[str, ...]
    columns: int
    rows: tuple[str, ...]
    spans: Mapping[str, tuple[int, int]] = field(default_factory=dict)


def panels_of(
    view: RunView,
    *,
    charts: int,
    has_curve: bool,
    has_log: bool,
    is_troubled: bool,
    is_loading: bool = False,
) -> frozenset[str]:
    """The panels that have, or will have, content for a run. `charts`: the number of small ones
    with data; Albor's own training writes data for all others while it is active.
    """
    is_coming = view.kind == "train" and (is_loading or view.status not in OVER)
    found = {
        "loss": has_curve,
        "machine": bool(view.gpu or view.system or view.device),
        "bricks": any(one.measured_ms is not None for one in view.bricks),
        "log": has_log,
        "guard": _is_kept(view),
        "alerts": view.is_active or is_troubled or bool(view.alerts or view.rules_watching),
    }
    panels = {name for name, is_said in found.items() if is_said or is_coming}
    return frozenset(panels | set(SMALL[:charts]))


def _is_kept(view: RunView) -> bool:
    """Whether there is something to say of what keeps it alive, and of how it fares."""
    has_words = bool(view.health or any(view.guards.values()))
    has_words |= any(one.limit for one in view.budgets)
    is_saved = view.checkpoint.last_step is not None or view.checkpoint.in_flight
    ended_badly = any(one.reason for one in view.attempts)
    return is_guarded(view) or has_words or is_saved or ended_badly


def layout_of(panels: frozenset[str], room: Room) -> Layout:
    """The place of each of `panels`."""
    return _wide(panels, room) if room.is_wide else _narrow(panels, room)


def _wide(panels: frozenset[str], room: Room) -> Layout:
    """Six columns: a large panel with two beside it, the small charts, then what is read."""
    large = next((name for name in _FULL if name in panels), "")
    beside: list[str] = [name for name in ("machine", "bricks") if name in panels]
    small = [name for name in SMALL if name in panels]
    feet: list[str] = [
        name for name in ("log", "guard", "alerts") if name in panels and name != large
    ]
    if large == "log":
        beside, feet = beside + feet, []
    bands = []
    if large:
        bands.append(_top(large, beside))
    else:
        small = beside + small
    bands += [_Band(_alike(small[at : at + 3]), [_SHARE]) for at in range(0, len(small), 3)]
    if feet:
        bands.append(_feet(feet, room))
    spans = {name: span for band in bands for name, span in band.spans.items()}
    rows = _fitting([row for band in bands for row in band.rows], room)
    return Layout(tuple(spans), 6, tuple(rows), spans)


class _Band(NamedTuple):
    """Panels over the whole width: the span of each, in order, and the heights of their rows."""

    spans: dict[str, tuple[int, int]]
    rows: list[str]


def _top(large: str, beside: Sequence[str]) -> _Band:
    """The large panel as tall as all beside it, and as two rows at least."""
    lines = max(2, len(beside))
    alone = lines if len(beside) == 1 else 1
    spans = {large: (4 if beside else 6, lines), **dict.fromkeys(beside, (2, alone))}
    return _Band(spans, [_SHARE] * lines)


def _feet(names: list[str], room: Room) -> _Band:
    if room.is_high and len(names) == 3:
        return _Band({"log": (4, 2), "guard": (2, 1), "alerts": (2, 1)}, ["8", "6"])
    is_calm = names == ["alerts"] and not room.is_alerted
    return _Band(_alike(names), ["4" if is_calm else "7"])


def _fitting(rows: list[str], room: Room) -> list[str]:
    """Row heights; if not all rows fit, the page scrolls, and a row that would be too small gets a
    fixed height."""
    needed = sum(_LEAST if row == _SHARE else int(row) for row in rows)
    if room.is_tall or needed <= room.height:
        return rows
    return [str(_LEAST) if row in (_SHARE, "7") else row for row in rows]


def _alike(names: Sequence[str]) -> dict[str, tuple[int, int]]:
    return {name: (6 // len(names), 1) for name in names}


def _narrow(panels: frozenset[str], room: Room) -> Layout:
    """Two columns that scroll: the first page shows loss, machine, guard and the newest log."""
    heights = {
        **{"loss": 12 if room.is_tall else 7 if room.is_alerted else 8, "machine": 6, "guard": 6},
        **{"log": 8 if room.is_tall else 3, "bricks": 7, "alerts": 7},
        **dict.fromkeys(SMALL, 9),
    }
    order = [name for name in NARROW if name in panels]
    lines: list[list[str]] = []
    for name in order:
        is_room = lines and len(lines[-1]) == 1 and {*lines[-1], name}.isdisjoint(_FULL)
        if is_room:
            lines[-1].append(name)
        else:
            lines.append([name])
    rows = [str(max(heights[name] for name in line)) for line in lines]
    if sum(map(int, rows)) < room.height:  # what is left over makes charts larger
        is_chart = [not {"loss", *SMALL}.isdisjoint(line) for line in lines]
        grown = is_chart if any(is_chart) else [line == ["log"] for line in lines]
        rows = [_SHARE if grows else row for row, grows in zip(rows, grown, strict=True)]
    spans = {line[0]: (2, 1) for line in lines if len(line) == 1}
    return Layout(tuple(order), 2, tuple(rows), spans)
