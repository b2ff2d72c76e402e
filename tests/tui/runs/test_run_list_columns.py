"""The user's own columns, orders and groups in the list of runs."""

from __future__ import annotations

import math
import statistics
from dataclasses import replace

import pytest
from settled import until
from textual.widgets import Input

from albor_core.feed.runs.cells import RunCells
from albor_core.feed.view.run_view import RunsView
from albor_core.feed.workspace.views import View
from albor_core.store.query.column_names import ColumnNames
from albor_tui.model.views import ViewKeeper
from albor_tui.screens.dialogs.columns import ColumnsScreen
from albor_tui.screens.runs.listing import RunListing
from albor_tui.screens.runs.order import arrange, column_order
from albor_tui.widgets.run_table import RunTable

LRS = (1e-3, 1e-3, 3e-4, 3e-4, 3e-3, None)
MSE = (0.14559, 0.14562, 0.1768, 0.17, 0.16, math.nan)
NAMES = ColumnNames((("val/mse", 6), ("val/r2", 6)), (("lr", 5), ("optim.wd", 6)))


@pytest.fixture
def sweep(source, desk):
    """Six runs that log val/mse and no loss; one diverged, and has no lr."""
    one = next(view for view in source.rows if view.status == "completed")
    one = replace(one, experiment="sweep", loss=None, val_loss=None, val_ppl=None, mfu=None)
    one = replace(one, tokens_per_s=None, loss_history=(), metrics=(), alerts_open=0, age_s=1e6)
    rows = tuple(
        replace(one, id=f"mlp-{n}", name=f"mlp-{n}", created=float(-n), status=status)
        for n, status in enumerate(("completed",) * 5 + ("failed",))
    )
    source.show(rows)
    source.cells = {
        "lr": {f"mlp-{n}": lr for n, lr in enumerate(LRS)},
        "val/mse": {f"mlp-{n}": mse for n, mse in enumerate(MSE)},
        "optim.wd": {f"mlp-{n}": 0.1 for n in range(6)},
        "notes": {"mlp-0": "the \x1b[31mbest\x1b[0m [bold]one"},
    }
    source.differing = ("lr",)
    desk.names = NAMES
    return source


async def ready(pilot) -> RunTable:
    table = pilot.app.screen.query_one(RunTable)
    await until(pilot, lambda: len(table.runs) == 6)
    return table


def shown(table: RunTable) -> list[str]:
    return [table.render_line(y).text.rstrip() for y in range(table.content_size.height)]


async def add(pilot, *words: str) -> None:
    for word in words:
        await pilot.press("C", *word)
        screen = pilot.app.screen
        await until(pilot, lambda s=screen: not s.query_one("#reading").display)
        await pilot.press("enter")
        await until(pilot, lambda s=screen: pilot.app.screen is not s)


async def test_a_column_is_added_by_typing_and_sorted_by_with_a_click_on_its_head(cockpit, sweep):
    async with cockpit().run_test(size=(160, 45)) as pilot:
        table = await ready(pilot)
        await add(pilot, "lr", "mse")
        await until(pilot, lambda: "0.14559" in shown(table)[1])
        head, first, *_ = shown(table)
        point = head.index("val/mse") + len("val/mse") - len("0.14559")
        assert first[point:].startswith("0.14559"), "a column stands below its head"
        assert "1e-3" in first
        assert "0.17680" in shown(table)[3], "all of a column have the same digits"
        assert "NaN" in shown(table)[6] and " - " in shown(table)[6]
        assert "loss" not in head and "ppl" not in head, "what no run has gives its room away"
        await pilot.click(RunTable, offset=(head.index("val/mse"), 0))
        order = [0, 1, 4, 3, 2, 5]
        await until(pilot, lambda: [v.name for v in table.runs] == [f"mlp-{n}" for n in order])
        await pilot.click(RunTable, offset=(head.index("val/mse"), 0))
        turned = [2, 3, 4, 1, 0, 5]
        await until(pilot, lambda: [v.name for v in table.runs] == [f"mlp-{n}" for n in turned])
        kept = pilot.app.views.current
        assert kept.sort == "val/mse" and kept.is_reversed
        assert kept.columns[2:4] == ("lr", "val/mse")


async def test_only_the_runs_on_the_screen_are_asked_for_until_the_order_needs_all(cockpit, sweep):
    one = sweep.rows[0]
    sweep.show(tuple(replace(one, id=f"r-{n:04d}", name=f"r-{n}") for n in range(2_000)))
    async with cockpit().run_test(size=(120, 30)) as pilot:
        table = pilot.app.screen.query_one(RunTable)
        await until(pilot, lambda: len(table.runs) == 2_000)
        await add(pilot, "mse")
        await until(pilot, lambda: sweep.cells_asked[-1].get("val/mse"))
        assert sweep.cells_asked[-1]["val/mse"] < 100
        table.post_message(RunTable.HeadClicked("val/mse"))
        await until(pilot, lambda: sweep.cells_asked[-1].get("val/mse") == 2_000)


async def test_columns_that_do_not_fit_are_counted_and_scrolled_to(cockpit, sweep):
    async with cockpit().run_test(size=(80, 24)) as pilot:
        table = await ready(pilot)
        await add(pilot, "lr", "mse", "wd", "notes")
        frame = pilot.app.screen.query_one("#list")
        await until(pilot, lambda: "columns" in str(frame.border_title))
        for _ in range(12):
            await pilot.press("right")
        await until(pilot, lambda: "columns" not in str(frame.border_title))
        assert "experiment" in shown(table)[0] and "lr" not in shown(table)[0]
        assert "mlp-0" in shown(table)[1], "the name stays"
        for _ in range(12):
            await pilot.press("left")
        assert "lr" in shown(table)[0]
        assert all(len(line) <= table.size.width for line in shown(table))


async def test_a_note_is_never_markup_and_a_column_that_no_run_has_says_so(cockpit, sweep):
    async with cockpit().run_test(size=(160, 45)) as pilot:
        table = await ready(pilot)
        pilot.app.views.update(columns=("name", "notes", "val/gone", "status"))
        pilot.app.screen.show_current_view()
        await until(pilot, lambda: "[bold]one" in shown(table)[1])
        assert "\x1b" not in shown(table)[1]
        assert "val/gone" in shown(table)[0]
        foot = pilot.app.screen.query_one("#list")
        await until(pilot, lambda: "no run has val/gone" in str(foot.border_subtitle))


async def test_groups_by_a_param_have_mean_spread_distance_and_states(cockpit, sweep):
    async with cockpit().run_test(size=(160, 45)) as pilot:
        table = await ready(pilot)
        await add(pilot, "mse")
        pilot.app.views.set_metric("sweep", "val/mse")
        await pilot.press("s", "G", *"lr")
        await until(pilot, lambda: isinstance(pilot.app.screen, ColumnsScreen))
        screen = pilot.app.screen
        await until(pilot, lambda: not screen.query_one("#reading").display)
        await pilot.press("enter")
        await until(pilot, lambda: "missing" in "\n".join(shown(table)))
        head, *lines = shown(table)
        assert head.split() == ["lr", "n", "val/mse", "vs", "best", "state"]
        assert [line.split()[-1] for line in lines[:4]] == ["2", "1", "2", "1"]
        mean = statistics.mean(MSE[:2])
        assert f"{mean:.4f}" in lines[0] and "best" in lines[0]
        assert "0.003" in lines[1] and "+0.01" in lines[1]
        assert "missing" in lines[3] and "1 not finite" in lines[3]
        assert table.heading is not None and table.acted_on == []
        await pilot.press("enter")
        await until(pilot, lambda: table.lines == 6)
        await pilot.press("down")
        assert table.current.name == "mlp-0"
        await pilot.press("up", "space")
        assert table.selection.marked == {"mlp-0", "mlp-1"}, "a heading stands for its runs"
        await pilot.press("z")
        await until(pilot, lambda: table.lines == 4)
        await pilot.press("z")
        await until(pilot, lambda: table.lines == 10)


async def test_g_goes_on_to_the_params_that_differ_among_the_runs(cockpit, sweep):
    async with cockpit().run_test(size=(120, 40)) as pilot:
        table = await ready(pilot)
        await until(pilot, lambda: bool(sweep.cells_asked))
        await pilot.pause(0.3)
        groups = []
        for _ in range(6):
            await pilot.press("g")
            groups.append(pilot.app.views.current.group)
        assert groups == ["experiment", "status", "tags", "host", "lr", ""]
        assert table.lines == 6


async def test_a_selects_all_that_are_shown_and_none_again(cockpit, sweep):
    async with cockpit().run_test(size=(120, 40)) as pilot:
        table = await ready(pilot)
        await pilot.press("a")
        assert len(table.selection.chosen) == 6
        await pilot.press("a")
        assert table.selection.marked == frozenset()


async def test_space_adds_and_removes_and_the_order_can_be_changed(cockpit, sweep):
    async with cockpit().run_test(size=(120, 40)) as pilot:
        await ready(pilot)
        await pilot.press("C")
        screen = pilot.app.screen
        await until(pilot, lambda: not screen.query_one("#reading").display)
        await pilot.press(*"r2", "down", "space", *["backspace"] * 2, *"mse", "space")
        await pilot.press(*["backspace"] * 3, *"r2", "shift+down", "enter")
        assert pilot.app.views.current.columns[2:4] == ("val/mse", "val/r2:min")
        await pilot.press("C", *"r2", "space", "enter")
        assert "val/r2:min" not in pilot.app.views.current.columns
        await pilot.press("C", "ctrl+r")
        assert pilot.app.views.current.columns == ()


async def test_what_the_list_is_sorted_by_has_room_and_the_cursor_begins_above(cockpit, sweep):
    views = ViewKeeper()
    views.update(columns=("status", "name", "lr", "experiment", "notes", "optim.wd"))
    views.update(sort="val/mse", is_reversed=True)
    async with cockpit(views=views).run_test(size=(80, 24)) as pilot:
        table = await ready(pilot)
        await until(pilot, lambda: table.runs[0].name == "mlp-2")
        assert table.cursor == 0 and table.current.name == "mlp-2", "not on the newest"
        await until(pilot, lambda: "0.17680" in shown(table)[1])
        assert "val/mse" in shown(table)[0] and "lr" in shown(table)[0]
        await pilot.press("slash", *"mlp")
        await pilot.press("enter", "slash", *"-2")
        box = pilot.app.screen.query_one("#filter", Input)
        assert box.value == "mlp-2", "the text of a filter goes on where it ends"
        await pilot.press("enter")
        await until(pilot, lambda: len(table.runs) == 1)
        await pilot.press("a", "escape")
        await ready(pilot)
        assert table.selection.marked == {"mlp-2"}, "the first esc clears the filter alone"
        await pilot.press("escape")
        assert not table.selection.marked


def test_the_order_is_known_once_each_run_is_read_and_names_count_as_people_do(sweep):
    listing = RunListing()
    listing.view = RunsView(rows=sweep.rows)
    listing.show(View(sort="val/mse"))
    assert not listing.is_in_order
    listing.cells = RunCells(values={"val/mse": dict.fromkeys(sweep.cells["lr"], 0.1)})
    assert listing.is_in_order
    names = ("m10", "m2", "m", "M1", "2", "10")
    rows = [replace(sweep.rows[0], id=name, name=name) for name in names]
    order = arrange(rows, column_order("name", rows, RunCells()))
    assert [view.name for view in order] == ["2", "10", "m", "M1", "m2", "m10"]
