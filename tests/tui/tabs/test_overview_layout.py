"""Which panels the Overview has, and where: what has nothing to say takes no room."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fake_feed import training

from albor_core.feed.view.run_view import RunView
from albor_tui.screens.charts.overview_layout import (
    NARROW,
    SMALL,
    WIDE,
    Room,
    layout_of,
    panels_of,
)

LOOP = RunView(id="loop", kind="track", status="running", is_live=True, step=3)
ROOMS = (
    Room(is_wide=True, height=18),
    Room(is_wide=True, height=26),
    Room(is_wide=True, is_tall=True, height=29),
    Room(is_wide=True, is_tall=True, is_high=True, height=38),
    Room(is_wide=False, height=16),
    Room(is_wide=False, is_tall=True, height=50),
)


def panels(view, **said):
    known = {"charts": 0, "has_curve": False, "has_log": False, "is_troubled": False}
    return panels_of(view, **{**known, **said})


def test_albors_own_training_has_every_panel_from_its_first_moment():
    start = RunView(id="r", kind="train", status="queued")
    assert panels(start, charts=3, has_curve=True) == {*WIDE}
    assert panels(training(), charts=3, has_curve=True) == {*WIDE}


def test_a_loop_with_metrics_alone_has_charts_and_what_watches_it():
    assert panels(LOOP, charts=2, has_curve=True) == {"loss", "lr", "grad", "alerts"}


def test_a_program_that_prints_and_logs_nothing_has_its_log():
    guarded = replace(LOOP, kind="guard", guard={"state": "running"})
    assert panels(guarded, has_log=True) == {"log", "guard", "alerts"}


def test_what_is_over_and_left_nothing_of_a_kind_has_no_panel_of_it():
    ended = RunView(id="old", kind="imported", status="completed")
    assert panels(ended, charts=1, has_curve=True) == {"loss", "lr"}
    assert panels(replace(training(), status="completed", bricks=()), has_curve=True) == {
        *("loss", "machine", "guard", "alerts")
    }


def cells(layout):
    """The grid as it is filled, row by row; a panel that finds no place raises."""
    grid: dict[tuple[int, int], str] = {}
    for name in layout.order:
        columns, rows = layout.spans.get(name, (1, 1))
        for y in range(len(layout.rows)):
            x = next(
                (
                    x
                    for x in range(layout.columns - columns + 1)
                    if all((x + i, y + j) not in grid for i in range(columns) for j in range(rows))
                ),
                None,
            )
            if x is not None:
                break
        else:
            raise AssertionError(f"no place for {name}")
        grid |= {(x + i, y + j): name for i in range(columns) for j in range(rows)}
    return grid


@pytest.mark.parametrize("room", ROOMS, ids=str)
@pytest.mark.parametrize(
    "shown",
    [
        *({*WIDE}, {"loss"}, {"log"}, {"alerts"}, {"loss", "alerts"}, {"log", "guard", "alerts"}),
        *({"loss", "lr", "grad", "alerts"}, {"loss", *SMALL}, {"machine", "log", "guard"}),
        *({"loss", "machine", "lr", "log", "alerts"}, {"machine", "bricks", "lr", "guard"}),
    ],
    ids=lambda names: "-".join(sorted(names)),
)
def test_the_panels_fill_the_grid_and_leave_no_hole(room, shown):
    layout = layout_of(frozenset(shown), room)
    assert {*layout.order} == shown
    grid = cells(layout)
    assert {*grid.values()} == shown
    assert len(grid) == layout.columns * len(layout.rows)


def test_the_order_of_all_panels_is_that_of_the_terminals_width():
    assert layout_of(frozenset(WIDE), Room()).order == WIDE
    assert layout_of(frozenset(WIDE), Room(is_wide=False)).order == NARROW


def test_a_line_without_alerts_takes_little_room_and_open_alerts_take_more():
    shown, room = frozenset({"loss", "alerts"}), Room(is_tall=True, height=30)
    assert layout_of(shown, room).rows == ("1fr", "1fr", "4")
    assert layout_of(shown, replace(room, is_alerted=True)).rows == ("1fr", "1fr", "7")


def test_a_chart_that_is_alone_takes_the_room_of_a_narrow_terminal():
    few = layout_of(frozenset({"loss", "alerts"}), Room(is_wide=False, height=18))
    assert few.rows == ("1fr", "7")
