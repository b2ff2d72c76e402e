"""The list of runs: what it shows, what its keys do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import fake_feed
import pytest
from settled import settled, until
from textual.widgets import Input, Static

from albor_core.feed.view.run_view import CheckpointView
from albor_core.run.errors import StoreError
from albor_tui.app import AlborApp
from albor_tui.look import glyphs
from albor_tui.screens.dialogs.confirm import ConfirmScreen
from albor_tui.screens.dialogs.help import HelpScreen, Pages
from albor_tui.screens.diff import DiffScreen
from albor_tui.screens.run import RunScreen
from albor_tui.screens.runs.screen import RunsScreen
from albor_tui.widgets.base.line_list import LineList
from albor_tui.widgets.base.scrolled_lines import ScrolledLines
from albor_tui.widgets.chart.chart import Chart
from albor_tui.widgets.chart_grid.grid import ChartGrid
from albor_tui.widgets.key_bar import KeyBar
from albor_tui.widgets.run.log_tail import LogTail
from albor_tui.widgets.run.log_view import LogView
from albor_tui.widgets.run.run_preview import RunPreview
from albor_tui.widgets.run_columns import TableNeeds, layout
from albor_tui.widgets.run_table import RunTable
from albor_tui.widgets.status_bar import StatusBar

Cockpit = Callable[..., AlborApp]


async def ready(pilot) -> RunTable:
    table = pilot.app.screen.query_one(RunTable)
    await until(pilot, lambda: len(table.runs) == 7, "the runs never came")
    return table


def row_text(table: RunTable, row: int) -> str:
    return table.render_line(row + 1).text


async def test_a_run_that_appears_elsewhere_appears_without_a_keypress(cockpit, source):
    async with cockpit().run_test(size=(120, 40)) as pilot:
        table = await ready(pilot)
        source.show((*source.rows, fake_feed.training("brand-new-123456")))
        await until(pilot, lambda: len(table.runs) == 8)
        assert any(view.name == "brand-new" for view in table.runs)


async def test_the_arrow_keys_move_among_runs_that_came_to_an_empty_list(cockpit, source):
    runs = source.rows
    source.show(())
    async with cockpit().run_test(size=(120, 40)) as pilot:
        screen = pilot.app.screen
        await until(pilot, lambda: screen.has_class("-empty") and screen.focused is None)
        source.show(runs)
        table = await ready(pilot)
        await until(pilot, lambda: table.has_focus)
        await pilot.press("down", "down")
        assert table.cursor == 2


async def test_numbers_change_in_place_and_the_cursor_stays_on_its_run(cockpit, source):
    async with cockpit().run_test(size=(120, 40)) as pilot:
        table = await ready(pilot)
        await pilot.press("down")
        name = table.current.id
        changed = tuple(replace(v, loss=1.2345) if v.id == name else v for v in source.rows)
        source.show((fake_feed.training("on-top-abcdef", created=fake_feed.WALL), *changed))
        await until(pilot, lambda: len(table.runs) == 8)
        assert table.current.id == name
        assert "1.2345" in row_text(table, table.cursor)


async def test_a_dead_run_shows_its_age_and_is_never_called_running(cockpit):
    async with cockpit().run_test(size=(120, 40)) as pilot:
        table = await ready(pilot)
        rows = [row_text(table, i) for i in range(7)]
        lost = next(row for row in rows if "old-baseline" in row)
        assert "lost" in lost
        assert "2d ago" in lost
        assert "running" not in lost


async def test_nan_and_infinity_are_shown_as_such(cockpit):
    async with cockpit().run_test(size=(120, 40)) as pilot:
        table = await ready(pilot)
        failed = next(row_text(table, i) for i in range(7) if "sweep-lr-3e3" in row_text(table, i))
        assert "NaN" in failed
        assert "inf" in failed


async def test_typing_after_slash_filters_and_escape_shows_all_again(cockpit):
    async with cockpit().run_test(size=(120, 40)) as pilot:
        table = await ready(pilot)
        await pilot.press("slash", *"sweep", "enter")
        await until(pilot, lambda: len(table.runs) == 2)
        assert not pilot.app.screen.query_one("#filter", Input).display
        await pilot.press("escape")
        await until(pilot, lambda: len(table.runs) == 7)


async def test_a_filter_that_matches_nothing_says_so(cockpit):
    async with cockpit().run_test(size=(80, 24)) as pilot:
        table = await ready(pilot)
        await pilot.press("slash", *"zzz", "enter")
        await until(pilot, lambda: not table.runs)
        assert "no run matches" in str(pilot.app.screen.query_one("#empty", Static).content)


async def test_s_sorts_by_the_metric_then_by_the_columns_and_shift_s_turns_it_round(cockpit):
    async with cockpit().run_test(size=(120, 40)) as pilot:
        table = await ready(pilot)
        await pilot.press("s")
        judged = [view.val_loss for view in table.runs[:4]]
        assert judged == sorted(judged), "what the runs are judged by comes first"
        await pilot.press("s")
        assert table.sorted_by == "status"
        await pilot.press(*["s"] * 4)
        losses = [view.loss for view in table.runs]
        assert table.sorted_by == "loss"
        assert losses[:5] == sorted(losses[:5])
        best, *_, nan, unknown = (view.id for view in table.runs)
        await pilot.press("S")
        assert table.runs[0].id != best
        assert [view.id for view in table.runs[-2:]] == [nan, unknown], "which stay below"


@pytest.mark.parametrize("size", [(160, 45), (80, 24)], ids=str)
async def test_another_order_shows_its_first_rows_and_news_and_filters_keep_the_cursor_in_view(
    cockpit, source, size
):
    source.show(
        tuple(
            fake_feed.training(
                f"r-{i:03d}-{i:06x}",
                status="running" if i == 36 else "completed",
                loss=(100.0 - i),
            )
            for i in range(90)
        )
    )
    async with cockpit().run_test(size=size) as pilot:
        table = pilot.app.screen.query_one(RunTable)
        await until(pilot, lambda: len(table.runs) == 90)

        def is_shown() -> bool:
            lines = [table.render_line(y).text for y in range(1, table.content_size.height)]
            name = f"r-{int(table.current.id.split('-')[1]):03d}"
            return sum(line.startswith(glyphs.current.cursor) for line in lines if name in line) > 0

        table.post_message(RunTable.HeadClicked("loss"))
        await until(pilot, lambda: table.runs[0].name == "r-089")
        assert table.current.name == "r-089", "a cursor that was not moved is on the best one"
        await pilot.press("end", "S")
        await until(pilot, lambda: table.runs[0].name == "r-000")
        assert table.current.name == "r-000" and is_shown()
        await pilot.press("end", "home", "down", "S")
        await until(pilot, lambda: table.runs[0].name == "r-089")
        assert table.current.name == "r-001" and round(table.scroll_y) == 0
        assert not is_shown(), "the best are what the user wants to see"
        await pilot.press("down")
        assert table.current.name == "r-089" and is_shown(), "on from where the user looks"
        await pilot.press("slash", *"r-036", "enter")
        await until(pilot, lambda: len(table.runs) == 1)
        await pilot.press("escape")
        await until(pilot, lambda: len(table.runs) == 90)
        assert table.current.status == "running"
        await until(pilot, is_shown, "not after the filter")
        table.scroll_to(y=60 if table.cursor < 30 else 0, animate=False)
        await until(pilot, lambda: not is_shown())
        source.show((*source.rows, fake_feed.training("new-000001", created=fake_feed.WALL)))
        await until(pilot, lambda: len(table.runs) == 91)
        await pilot.pause()
        assert not is_shown(), "news pull nobody back who scrolled away"


async def test_the_key_bar_names_keys_that_do_something_to_the_highlighted_run(cockpit, source):
    completed = next(view for view in source.rows if view.status == "completed")
    failed = next(view for view in source.rows if view.status == "failed")
    running = source.rows[0]
    source.show((running, completed, failed))
    async with cockpit().run_test(size=(80, 24)) as pilot:
        table = pilot.app.screen.query_one(RunTable)
        await until(pilot, lambda: len(table.runs) == 3)
        bar = pilot.app.screen.query_one(KeyBar)

        async def named(run) -> set[str]:
            table.cursor = next(i for i, view in enumerate(table.runs) if view.id == run.id)
            await pilot.pause()
            return set(bar.render_line(0).text.split())

        words = await named(completed)
        assert words >= {"Open", "Filter", "Select", "Workspace", "Sort", "Help", "Quit"}
        assert not words & {"Stop", "Pause", "Save", "Retry", "Diff", "Clear", "Undo"}
        await named(failed)
        await until(pilot, lambda: "Retry" in bar.render_line(0).text)
        words = await named(failed)
        assert "Retry" in words and not words & {"Stop", "Pause", "Save"}
        words = await named(running)
        assert words >= {"Stop", "Pause", "Save"} and "Retry" not in words
        table.cursor = 0
        await pilot.press("space")
        await pilot.pause()
        assert "Diff" in bar.render_line(0).text


async def test_while_a_filter_is_typed_the_bar_names_what_ends_it_and_no_letters(cockpit):
    async with cockpit().run_test(size=(120, 40)) as pilot:
        table = await ready(pilot)
        bar = pilot.app.screen.query_one(KeyBar)
        await pilot.press("slash", "s")
        await until(pilot, lambda: bar.render_line(0).text.startswith("enter Keep  esc Clear"))
        named = set(bar.render_line(0).text.split())
        assert not named & {"/", "Filter", "?", "Help", "q", "Quit", "Open"}
        await pilot.press("enter")
        await until(pilot, lambda: table.has_focus)
        await until(pilot, lambda: "/ Filter" in bar.render_line(0).text)


async def test_enter_opens_the_highlighted_run_and_escape_comes_back(cockpit):
    async with cockpit().run_test(size=(120, 40)) as pilot:
        table = await ready(pilot)
        await pilot.press("down", "enter")
        assert isinstance(pilot.app.screen, RunScreen)
        await pilot.press("escape")
        assert pilot.app.screen.query_one(RunTable) is table


async def test_two_selected_runs_are_compared(cockpit, source):
    async with cockpit().run_test(size=(120, 40)) as pilot:
        table = await ready(pilot)
        chosen = [view.id for view in table.runs[:2]]
        await pilot.press("space", "space", "d")
        assert isinstance(pilot.app.screen, DiffScreen)
        await until(pilot, lambda: bool(source.compared))
        assert list(source.compared[0]) == chosen


async def test_diff_without_a_selection_says_what_to_do(cockpit):
    async with cockpit().run_test(size=(120, 40)) as pilot:
        await ready(pilot)
        await pilot.press("d")
        assert "space" in str(pilot.app.screen.query_one(StatusBar).line)


async def test_x_stops_only_after_a_yes(cockpit, source):
    async with cockpit().run_test(size=(120, 40)) as pilot:
        table = await ready(pilot)
        run_id = table.current.id
        await pilot.press("x")
        assert isinstance(pilot.app.screen, ConfirmScreen)
        await pilot.press("n")
        assert source.commands == []
        await pilot.press("x", "y")
        await until(pilot, lambda: source.commands == [(run_id, "stop")])


async def test_without_runs_only_keys_that_mean_something_are_shown(cockpit, source):
    source.show(())
    async with cockpit().run_test(size=(120, 36)) as pilot:
        await until(pilot, lambda: pilot.app.screen.has_class("-empty"))
        bar = pilot.app.screen.query_one(KeyBar)
        await until(pilot, lambda: "Filter" not in str(bar.render()))
        shown = str(bar.render())
        assert "New" in shown and "Clear" not in shown and "Undo" not in shown
        source.show(fake_feed.rows())
        await until(pilot, lambda: "Filter" in str(bar.render()))
        await pilot.press("slash", *"no such run")
        await until(pilot, lambda: pilot.app.screen.has_class("-empty"))
        await pilot.press("enter")
        await until(pilot, lambda: "Clear" in str(bar.render()))
        await pilot.press("escape")
        await until(pilot, lambda: not pilot.app.screen.has_class("-empty"))


async def test_no_run_at_all_says_what_to_type(cockpit, source):
    source.show(())
    async with cockpit().run_test(size=(80, 24)) as pilot:
        empty = pilot.app.screen.query_one("#empty", Static)
        await until(pilot, lambda: "albor demo" in str(empty.content))
        assert "albor guard run -- python train.py" in str(empty.content)


async def test_a_store_that_cannot_be_read_is_reported_and_tried_again(
    cockpit, source, monkeypatch
):
    monkeypatch.setattr("albor_tui.screens.base.polling_screen.RETRY_S", 0.05)
    source.failure = StoreError("experiments.db: file is not a database")
    async with cockpit().run_test(size=(100, 30)) as pilot:
        bar = pilot.app.screen.query_one(StatusBar)
        await until(pilot, lambda: "not a database" in str(bar.line))
        source.failure = None
        await ready(pilot)


async def test_help_lists_the_keys_of_the_screen_below(cockpit):
    async with cockpit().run_test(size=(80, 24)) as pilot:
        await ready(pilot)
        await pilot.press("question_mark")
        assert isinstance(pilot.app.screen, HelpScreen)
        shown = str(pilot.app.screen.query(Static).first().content)
        for words in ("Compare the selected runs", "Next theme", "Leave; runs go on"):
            assert words in shown
        now, later = shown.split("not now:")
        assert "Compare the selected runs" in later, "none is selected"
        assert "Stop; says how and asks first" in now


async def test_t_walks_through_the_themes_and_every_one_draws(cockpit):
    async with cockpit().run_test(size=(120, 40)) as pilot:
        await ready(pilot)
        seen = {pilot.app.theme}
        for _ in range(4):
            await pilot.press("t")
            await settled(pilot)
            seen.add(pilot.app.theme)
        assert len(seen) == 5


async def test_q_leaves(cockpit):
    app = cockpit()
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("q")
    assert app.return_code == 0


@pytest.mark.parametrize("width", [20, 40, 78, 98, 158, 300])
def test_columns_never_exceed_the_width_once_the_essential_ones_fit(width):
    chosen = layout(width, TableNeeds(20, 20)).shown
    used = 3 + sum(size for _, size in chosen) + 2 * (len(chosen) - 1)
    titles = [column.title for column, _ in chosen]
    assert titles[:2] == ["state", "run"]
    assert used <= max(width, 31)
    if width >= 78:
        assert {"done", "loss", "ppl", "tok/s", "ends", "alert"} <= set(titles)


def test_a_long_name_comes_before_columns_that_few_look_at():
    short = {column.title: size for column, size in layout(98, TableNeeds(14, 14)).shown}
    long = {column.title: size for column, size in layout(98, TableNeeds(24, 24)).shown}
    assert "experiment" in short
    assert "experiment" not in long
    assert long["run"] >= 24


async def test_ten_thousand_runs_cost_no_more_than_a_screenful(cockpit, source):
    one = fake_feed.rows()[4]
    many = tuple(
        replace(one, id=f"run-{i:05d}", name=f"run {i}", created=float(i)) for i in range(10_000)
    )
    source.show(many)
    async with cockpit().run_test(size=(120, 40)) as pilot:
        table = pilot.app.screen.query_one(RunTable)
        await until(pilot, lambda: len(table.runs) == 10_000)
        drawn: list[int] = []
        real = table._line
        table._line = lambda view, *rest: drawn.append(1) or real(view, *rest)  # type: ignore[method-assign]
        await pilot.press("end")
        await until(pilot, lambda: table.cursor == 9_999)
        await pilot.pause()
        assert "run 0" in row_text(table, table.cursor - round(table.scroll_y))
        assert len(drawn) < 200


async def test_rows_that_a_larger_terminal_or_the_wheel_brings_are_asked_for(cockpit, source):
    one = fake_feed.rows()[4]
    source.show(tuple(replace(one, id=f"run-{i:03d}", created=float(-i)) for i in range(300)))
    async with cockpit().run_test(size=(100, 24)) as pilot:
        table = pilot.app.screen.query_one(RunTable)
        await until(pilot, lambda: len(table.runs) == 300)
        await until(pilot, lambda: "run-010" in pilot.app.screen._on_screen)
        assert "run-060" not in pilot.app.screen._on_screen
        await pilot.resize_terminal(100, 60)
        await until(pilot, lambda: "run-060" in pilot.app.screen._on_screen)
        table.scroll_to(y=150, animate=False)
        await until(pilot, lambda: "run-160" in pilot.app.screen._on_screen)


async def test_the_glance_of_a_run_that_has_ended_shows_what_its_own_records_say(cockpit, source):
    """The list knows neither rate nor device nor checkpoint of it; the run's own files do."""
    whole = next(view for view in source.rows if view.status == "completed")
    bare = replace(whole, lr=None, device="", checkpoint=CheckpointView(), step_ms=None)

    class Knowing(fake_feed.FakeFollower):
        def poll(self):
            return whole

    source.show((bare,))
    source.follow = lambda view: Knowing(source, view.id)
    async with cockpit().run_test(size=(160, 45)) as pilot:
        glance = pilot.app.screen.query_one(RunPreview)
        await until(pilot, lambda: "2.61e-4" in str(glance.render()))
        shown = str(glance.render())
        assert "step 15,000   best 14,000  2.4107" in shown
        assert "cuda:0" in shown
        source.show((bare, *source.rows[1:]))  # news of the list does not take it away
        await pilot.pause()
        assert "2.61e-4" in str(glance.render())


@pytest.mark.parametrize(
    ("days", "shown"),
    [(2, "2d ago"), (99, "99d ago"), (524, "524d ago"), (1000, "2y ago"), (36_500, "99y ago")],
)
@pytest.mark.parametrize("width", [80, 160])
async def test_how_long_ago_a_run_ended_is_never_cut(cockpit, source, days, shown, width):
    ended = next(view for view in source.rows if view.status == "completed")
    source.show((replace(ended, age_s=days * 86_400.0 + 1),))
    async with cockpit().run_test(size=(width, 30)) as pilot:
        table = pilot.app.screen.query_one(RunTable)
        await until(pilot, lambda: len(table.runs) == 1)
        line = table.render_line(1).text
        assert f" {shown} " in f"{line} "
        assert glyphs.current.ellipsis not in line


async def test_j_and_k_move_in_the_list_and_ask_nothing(cockpit):
    async with cockpit().run_test(size=(120, 40)) as pilot:
        table = await ready(pilot)
        names = []
        for key in ("home", "j", "k"):
            await pilot.press(key)
            names.append(pilot.app.screen.acted_on()[0].id)
        assert names == [table.runs[0].id, table.runs[1].id, table.runs[0].id]
        assert isinstance(pilot.app.screen, RunsScreen)


@pytest.mark.parametrize(
    "kind", [RunTable, LineList, ScrolledLines, ChartGrid, LogTail, LogView, Pages]
)
def test_the_keys_that_move_work_wherever_something_moves(kind):
    keys = {key: bound[0].action for key, bound in kind._merge_bindings().key_to_bindings.items()}
    assert keys["j"] == keys["down"]
    assert keys["k"] == keys["up"]


async def test_a_run_without_a_loss_is_previewed_by_its_own_first_metric(cockpit, source):
    reward = fake_feed.curve("episode_reward", [1.0, 2.0, 3.0], 30.0)
    source.show((replace(source.rows[0], kind="track", loss=None, loss_history=()),))

    class Agent(fake_feed.FakeFollower):
        def main_metrics(self, view, most=1):
            return (reward.key,)

        def curves(self, keys, max_points):
            return {key: reward for key in keys if key == reward.key}

    source.follow = lambda view: Agent(source, view.id)
    async with cockpit().run_test(size=(160, 45)) as pilot:
        chart = pilot.app.screen.query_one("#preview-chart", Chart)
        await until(pilot, lambda: chart.data.lines)
        assert [line.y for line in chart.data.lines] == [tuple(reward.mean)]
        assert "episode_reward " in str(chart.border_title)
