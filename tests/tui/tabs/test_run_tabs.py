"""The tabs of a run: how they are reached, what each key does, and that hidden ones rest."""

from __future__ import annotations

from dataclasses import replace

import fake_feed
import incident
import pytest
from screen_stage import at, change, text_of
from settled import settled, until
from textual.widgets import Static

from albor_core.feed.archive.checkpoints import ShelfView
from albor_core.feed.archive.config_sheet import ConfigView, FieldView
from albor_core.feed.archive.crashes import CrashView
from albor_core.feed.archive.log_file import LogName
from albor_core.feed.archive.traced import TracedBrick, TracedBricks, TracedKernel
from albor_core.feed.view.diagnostics import RunDiagnostics, Watched
from albor_core.store.rows.rows import AlertRow, AttemptRow, EventRow, SampleRow
from albor_tui.model.views import ViewKeeper
from albor_tui.screens.dialogs.alert_choice import AlertChoice, OpenAlerts
from albor_tui.screens.dialogs.confirm import ConfirmScreen
from albor_tui.screens.run import TABS, RunScreen
from albor_tui.widgets.base.scrolled_lines import ScrolledLines
from albor_tui.widgets.chart.chart import Chart
from albor_tui.widgets.chart_grid.grid import ChartGrid
from albor_tui.widgets.key_bar import KeyBar
from albor_tui.widgets.run.alerts import AlertBanner
from albor_tui.widgets.run.brick_table import BrickTable
from albor_tui.widgets.run.checkpoint_list import CheckpointList
from albor_tui.widgets.run.config_lists import FieldList, FileList
from albor_tui.widgets.run.event_list import AttemptTable, EventList
from albor_tui.widgets.run.guard_panel import GuardPanel
from albor_tui.widgets.run.log_view import LogView
from albor_tui.widgets.search_line import SearchLine
from albor_tui.widgets.status_bar import StatusBar
from albor_tui.widgets.tab_bar import TabBar

pytestmark = pytest.mark.slow  # in sum; test_run_tabs_open.py is the quick look at each tab


def rows_of(widget) -> str:
    height = widget.content_size.height
    return "\n".join(widget.render_line(y).text for y in range(height))


# -- reaching them ---------------------------------------------------------------------------------


async def test_their_keys_and_brackets_turn_the_tabs_round_the_end(cockpit, source):
    async with cockpit(run=at(source)).run_test(size=(80, 24)) as pilot:
        screen = pilot.app.screen
        for tab in TABS:
            await pilot.press(tab.stroke)
            assert screen.tab == tab.key
        await pilot.press("right_square_bracket")
        assert screen.tab == "overview"
        await pilot.press("left_square_bracket")
        assert screen.tab == "card"


async def test_a_click_on_a_name_opens_it(cockpit, source):
    async with cockpit(run=at(source)).run_test(size=(80, 24)) as pilot:
        bar = pilot.app.screen.query_one(TabBar)
        column = bar.render_line(0).text.index("Conf")
        await pilot.click(TabBar, offset=(column, 0))
        await until(pilot, lambda: pilot.app.screen.tab == "config")


STRIPS = ["TopBar", "#head", "#banner", "StatusBar"]


@pytest.mark.parametrize("tab", [tab.key for tab in TABS])
async def test_a_click_on_a_line_that_does_nothing_leaves_the_keys_where_they_were(
    cockpit, source, tab
):
    async with cockpit(run=with_alerts(source), tab=tab).run_test(size=(160, 45)) as pilot:
        screen = pilot.app.screen
        await settled(pilot)
        before = screen.focused
        assert before is not None and screen.page in before.ancestors_with_self
        keys = str(screen.query_one(KeyBar).render())
        for strip in STRIPS:
            await pilot.click(strip)
            await pilot.pause()
            assert screen.focused is before, strip
        assert str(screen.query_one(KeyBar).render()) == keys


@pytest.mark.parametrize("place", ["#banner", "#head", "ChartHead"])
async def test_after_a_click_beside_the_charts_their_keys_still_work(cockpit, source, place):
    async with cockpit(run=with_alerts(source), tab="charts").run_test(size=(160, 45)) as pilot:
        grid = pilot.app.screen.query_one(ChartGrid)
        await until(pilot, lambda: bool(grid.picture.keys))
        await settled(pilot)
        chosen = grid.current
        await pilot.press("plus")
        await until(pilot, lambda: grid.appearance.window is not None)
        await pilot.click(place)
        await pilot.press("y", "X", "0")
        await until(pilot, lambda: grid.appearance.window is None)
        assert grid.appearance.is_log
        assert grid.appearance.axis != "step"
        assert grid.current == chosen


async def test_what_is_hidden_asks_and_draws_nothing(cockpit, source):
    async with cockpit(run=at(source), tab="checkpoints").run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: source.asked["checkpoints"] > 0)
        await pilot.press("1")
        await pilot.pause(0.3)
        asked = source.asked.copy()
        source.shelf = ShelfView()
        change(source, step=15_300)
        await until(pilot, lambda: "15,300" in text_of(pilot.app.screen))
        await pilot.pause(1.2)
        assert source.asked == asked
        assert pilot.app.screen.query_one(CheckpointList).saved  # as it was when it was left
        await pilot.press("7")
        await until(pilot, lambda: not pilot.app.screen.query_one(CheckpointList).saved or
                    "No checkpoint" in text_of(pilot.app.screen))  # fmt: skip


async def test_a_tab_that_was_left_is_as_it_was_when_one_comes_back(cockpit, source):
    async with cockpit(run=at(source), tab="config").run_test(size=(80, 24)) as pilot:
        fields = pilot.app.screen.query_one(FieldList)
        await until(pilot, lambda: fields.count() > 0)
        await pilot.press("down", "down", "9", "6")
        assert fields.cursor == 4
        assert pilot.app.screen.focused is fields


async def test_the_key_bar_shows_the_keys_of_the_tab_and_a_click_presses_them(cockpit, source):
    async with cockpit(run=at(source), tab="events").run_test(size=(100, 30)) as pilot:
        bar = pilot.app.screen.query_one(KeyBar)
        await until(pilot, lambda: "f Kind" in bar.render_line(0).text)
        listing = pilot.app.screen.query_one(EventList)
        await until(pilot, lambda: listing.count() == len(fake_feed.EVENTS))
        await pilot.click(KeyBar, offset=(bar.render_line(0).text.index("f Kind") + 2, 0))
        await until(pilot, lambda: listing.count() == 2)
        await pilot.press("5")
        await until(pilot, lambda: "/ Search" in bar.render_line(0).text)


# -- logs ------------------------------------------------------------------------------------------


async def log_of(pilot) -> LogView:
    log = pilot.app.screen.query_one(LogView)
    await until(pilot, lambda: bool(log.window.lines))
    return log


async def test_the_log_follows_its_end_until_somebody_goes_up(cockpit, source):
    name = LogName(2)
    async with cockpit(run=at(source), tab="logs").run_test(size=(80, 24)) as pilot:
        log = await log_of(pilot)
        source.logs = {**source.logs, name: (*fake_feed.LOG, "the newest line")}
        await until(pilot, lambda: "the newest line" in rows_of(log))
        await pilot.press("up", "up")
        assert not log.follows
        top = log.scroll_y
        source.logs = {**source.logs, name: (*source.logs[name], "one more", "and one")}
        await until(pilot, lambda: log.window.total == len(fake_feed.LOG) + 3)
        assert log.scroll_y == top
        await pilot.press("f")
        await until(pilot, lambda: "and one" in rows_of(log))
        assert log.follows


async def test_an_older_attempt_is_a_key_away_and_says_how_it_ended(cockpit, source):
    async with cockpit(run=at(source), tab="logs").run_test(size=(100, 24)) as pilot:
        log = await log_of(pilot)
        await pilot.press("less_than_sign")
        await until(pilot, lambda: "OutOfMemoryError" in rows_of(log))
        assert "attempt 1 ended: cuda_oom, code 1 at step 4,112 after 50m00s" in rows_of(log)
        await pilot.press("less_than_sign")
        await until(
            pilot, lambda: "no older log" in str(pilot.app.screen.query_one(StatusBar).line)
        )
        await pilot.press("home")
        await until(pilot, lambda: "attempt 1 began 2025-11-24" in rows_of(log))
        await pilot.press("greater_than_sign")
        await until(pilot, lambda: "clipped to 1.0" in rows_of(log))


async def test_a_search_counts_and_goes_from_match_to_match(cockpit, source):
    async with cockpit(run=at(source), tab="logs").run_test(size=(80, 24)) as pilot:
        log = await log_of(pilot)
        await pilot.press("slash", *"STEP  150", "enter")
        assert not pilot.app.screen.query_one(SearchLine).display
        await until(pilot, lambda: len(log.window.matches) == 10)
        await until(pilot, lambda: "10 lines" in str(log.border_subtitle))
        await until(pilot, lambda: "10 of 10" in str(log.border_subtitle))
        await pilot.press("n")
        await until(pilot, lambda: "1 of 10" in str(log.border_subtitle))
        assert "step  15000" in rows_of(log)
        assert not log.follows
        await pilot.press("N")
        await until(pilot, lambda: "10 of 10" in str(log.border_subtitle))


async def test_escape_forgets_the_search_and_not_the_screen(cockpit, source):
    async with cockpit(run=at(source), tab="logs").run_test(size=(80, 24)) as pilot:
        log = await log_of(pilot)
        await pilot.press("slash", *"loss", "escape")
        await until(pilot, lambda: log.needle == "")
        assert isinstance(pilot.app.screen, RunScreen)
        await pilot.press("n")
        assert "/ searches" in str(pilot.app.screen.query_one(StatusBar).line)


async def test_only_lines_near_the_screen_are_ever_held(cockpit, source):
    source.logs = {LogName(2): tuple(f"line {i}" for i in range(500_000))}
    async with cockpit(run=at(source), tab="logs").run_test(size=(80, 24)) as pilot:
        log = await log_of(pilot)
        for key in ("home", "pagedown", "end", "pageup"):
            await pilot.press(key)
            await until(pilot, lambda: len(rows_of(log).split()) > 30)
            assert len(log.window.lines) <= 3 * log.content_size.height


async def test_a_long_line_is_cut_with_a_mark_and_can_be_shifted(cockpit, source):
    source.logs = {LogName(2): ("a" * 70 + "b" * 200 + "END",)}
    async with cockpit(run=at(source), tab="logs").run_test(size=(80, 24)) as pilot:
        log = await log_of(pilot)
        await until(pilot, lambda: "\u2026" in rows_of(log))
        for _ in range(12):
            await pilot.press("right")
        assert "END" in rows_of(log)


# -- config ----------------------------------------------------------------------------------------


async def test_changed_fields_are_marked_counted_and_can_stand_alone(cockpit, source):
    async with cockpit(run=at(source), tab="config").run_test(size=(80, 24)) as pilot:
        fields = pilot.app.screen.query_one(FieldList)
        await until(pilot, lambda: "6 not the default" in str(fields.border_title))
        await until(pilot, lambda: "\u25c6 weight_decay" in rows_of(fields))
        assert "  rope_theta" in rows_of(fields)
        await pilot.press("o")
        assert "rope_theta" not in rows_of(fields)
        assert "weight_decay" in rows_of(fields)


async def test_of_a_config_whose_defaults_nobody_knows_none_is_claimed(cockpit, source):
    source.config = ConfigView(fields=(FieldView("lr", "0.0003", None, "recorded"),))
    async with cockpit(run=at(source), tab="config").run_test(size=(80, 24)) as pilot:
        screen = pilot.app.screen
        bar = screen.query_one(KeyBar)
        await until(pilot, lambda: "fields 1 " in text_of(screen))
        await until(pilot, lambda: "/ Search" in bar.render_line(0).text)
        assert "default" not in text_of(screen)
        assert "as the run recorded it" in text_of(screen)
        assert "Changed" not in bar.render_line(0).text
        assert "File" not in bar.render_line(0).text


async def test_a_narrow_config_shows_one_side_a_wide_one_both(cockpit, source):
    async with cockpit(run=at(source), tab="config").run_test(size=(80, 24)) as pilot:
        screen = pilot.app.screen
        await until(pilot, lambda: screen.query_one(FieldList).count() > 0)
        assert not screen.query_one(FileList).display
        await pilot.press("v")
        assert screen.query_one(FileList).display
        assert "one epoch and a bit" in text_of(screen)
        await pilot.resize_terminal(140, 40)
        await until(pilot, lambda: screen.query_one(FieldList).display)
        assert screen.query_one(FileList).display


async def test_a_search_in_the_config_finds_keys_and_values(cockpit, source):
    async with cockpit(run=at(source), tab="config").run_test(size=(80, 24)) as pilot:
        fields = pilot.app.screen.query_one(FieldList)
        await until(pilot, lambda: fields.count() > 0)
        await pilot.press("slash", *"exploded", "enter")
        assert fields.current is not None and fields.current.key == "monitoring.alerts"
        await pilot.press("slash", *("backspace",) * 8, *"lr", "enter")
        await pilot.press("n")
        assert fields.current.key in ("optimizer.lr", "optimizer.min_lr")


# -- checkpoints, samples, events ------------------------------------------------------------------


async def test_checkpoints_say_what_they_are_and_why_one_is_bad(cockpit, source):
    async with cockpit(run=at(source), tab="checkpoints").run_test(size=(100, 30)) as pilot:
        screen = pilot.app.screen
        listing = screen.query_one(CheckpointList)
        await until(pilot, lambda: "damaged" in rows_of(listing))
        lines = rows_of(listing).splitlines()
        assert "latest" in next(line for line in lines if "15,000" in line)
        assert "best" in next(line for line in lines if "2.4107" in line)
        await pilot.press("down", "down")
        about = screen.query_one("#checkpoint-about", ScrolledLines)
        assert "model.safetensors is damaged" in about.text
        assert "bad-step-00014500" in about.text


async def test_a_newer_checkpoint_leaves_the_cursor_on_its_line(cockpit, source):
    async with cockpit(run=at(source), tab="checkpoints").run_test(size=(100, 30)) as pilot:
        listing = pilot.app.screen.query_one(CheckpointList)
        await until(pilot, lambda: bool(listing.saved))
        await pilot.press("down", "down", "down")
        stood = listing.current
        newer = replace(source.shelf.saved[1], step=16_000, name="step-00016000")
        source.shelf = replace(source.shelf, saved=(newer, *source.shelf.saved))
        await until(pilot, lambda: len(listing.saved) == 6)
        assert listing.current == stood


async def test_a_sample_shows_its_prompt_apart_from_its_completion(cockpit, source):
    async with cockpit(run=at(source), tab="samples").run_test(size=(80, 24)) as pilot:
        screen = pilot.app.screen
        sheet = screen.query_one("#sample-text", ScrolledLines)
        await until(pilot, lambda: "fibonacci(n - 4)" in sheet.text)
        prompt, completion = sheet.text.split("completion")
        assert "def fibonacci(n):" in prompt
        assert "return n" in completion
        await pilot.press("down")
        assert "fibonacci(n - 3)" in sheet.text
        await pilot.press("enter")
        assert screen.focused is sheet


@pytest.mark.parametrize(("tab", "key"), [("samples", "Read"), ("bricks", "Kernels")])
async def test_a_tab_with_nothing_on_it_offers_no_key_that_opens_it(cockpit, source, tab, key):
    async with cockpit(run=at(source), tab=tab).run_test(size=(80, 24)) as pilot:
        bar = pilot.app.screen.query_one(KeyBar)
        await until(pilot, lambda: f"enter {key}" in bar.render_line(0).text)
    source.samples, source.more_curves = (), {}
    empty = change(source, bricks=(), step=None, events=())
    async with cockpit(run=empty, tab=tab).run_test(size=(80, 24)) as pilot:
        bar = pilot.app.screen.query_one(KeyBar)
        await until(pilot, lambda: "esc Back" in bar.render_line(0).text)
        await settled(pilot)
        assert "enter" not in bar.render_line(0).text


async def test_a_long_sample_is_folded_and_scrolls(cockpit, source):
    text = " ".join(f"word{i}" for i in range(2_000))
    source.samples = (SampleRow(1, fake_feed.WALL, "p", text),)
    async with cockpit(run=at(source), tab="samples").run_test(size=(80, 24)) as pilot:
        sheet = pilot.app.screen.query_one("#sample-text", ScrolledLines)
        await until(pilot, lambda: "word1999" in sheet.text)
        await pilot.press("enter", "end")
        await until(pilot, lambda: "word1999" in rows_of(sheet))


async def test_events_are_newest_first_and_filtered_by_kind(cockpit, source):
    async with cockpit(run=at(source), tab="events").run_test(size=(100, 30)) as pilot:
        listing = pilot.app.screen.query_one(EventList)
        await until(pilot, lambda: listing.count() == len(fake_feed.EVENTS))
        assert listing.current is not None and listing.current.name == "andon.alert"
        kinds = {}
        restarts = len(at(source).attempts) - 1
        assert f"restarts {restarts}   " in str(listing.parent.border_subtitle)
        for kind in ("alerts", "restarts", "rewinds", "checkpoints", "control", "run"):
            await pilot.press("f")
            kinds[kind] = [event.name for event in listing.events]
        assert kinds == {
            "alerts": ["andon.alert", "jidoka.pause"],
            "restarts": ["run.start"],
            "rewinds": [],
            "checkpoints": ["checkpoint.saved", "checkpoint.bad", "checkpoint.saved"],
            "control": ["control.resumed"],
            "run": ["run.start", "guard.preflight_note"],
        }
        await pilot.press("f")
        assert "None of its 9 events" in text_of(pilot.app.screen)


async def test_what_is_cut_of_an_event_ends_with_a_mark(cockpit, source):
    data = {"norm": 0.24263235926628113, "cosine": 0.9999971597612431, "words": "word " * 90}
    source.events = (EventRow(name="own.thing", step=12, wall=fake_feed.WALL, data=data),)
    async with cockpit(run=at(source), tab="events").run_test(size=(100, 30)) as pilot:
        about = pilot.app.screen.query_one("#event-about", Static)
        await until(pilot, lambda: "own.thing" in str(about.render()))
        lines = [line.rstrip() for line in str(about.render()).splitlines()]
        assert "norm=0.242632  cosine=0.999997  words=word word" in lines[1]
        assert len(lines) == 3 and lines[2].endswith("word\u2026")


async def test_where_a_crash_report_lies_fits_its_line(cockpit, source):
    report = f"/runs/{'deep/' * 30}crash-reports/20260301T120000Z-a0002.json"
    source.crashes = (CrashView("a", report, 2, reason="it died of this " * 40),)
    change(source, attempts=())
    async with cockpit(run=at(source), tab="events").run_test(size=(80, 24)) as pilot:
        line = pilot.app.screen.query_one("#why-died", Static)
        await until(pilot, lambda: line.display and "attempt" in str(line.render()))
        lines = str(line.render()).splitlines()
        assert len(lines) <= 4 and all(len(one) <= 76 for one in lines)
        assert "\u2026" in lines[-2]
        assert lines[-1].startswith("o opens the crash report, /runs/")
        assert lines[-1].endswith("-a0002.json")


async def test_attempts_say_how_long_they_took_and_how_they_ended(cockpit, source):
    async with cockpit(run=at(source), tab="events").run_test(size=(120, 36)) as pilot:
        table = pilot.app.screen.query_one(AttemptTable)
        await until(pilot, lambda: "cuda_oom" in str(table.render()))
        newest, oldest = str(table.render()).splitlines()[1:]
        assert "running" in newest and "2h29m" in newest
        assert "50m00s" in oldest and "code 1  restart  CUDA out of memory" in oldest


# -- bricks, system, charts ------------------------------------------------------------------------


async def test_bricks_stand_against_their_budgets_and_say_who_paused_the_run(cockpit, source):
    change(source, events=fake_feed.EVENTS)
    async with cockpit(run=at(source), tab="bricks").run_test(size=(120, 36)) as pilot:
        table = pilot.app.screen.query_one(BrickTable)
        await until(pilot, lambda: any(row.past for row in table.rows))
        rows = {row.name: row for row in table.rows}
        assert rows["optimizer"].is_over and rows["optimizer"].pauses == 1
        assert rows["backward"].share == pytest.approx(208.9 / 349.8, abs=1e-3)
        assert rows["forward"].mean_ms == pytest.approx(104, abs=2)
        assert table.current.name == "optimizer"  # over its budget
        await pilot.press("end")
        chart = pilot.app.screen.query_one("#brick-chart", Chart)
        assert "other" in str(chart.border_title)
        await pilot.press("up")
        assert "budget 25.0ms" in str(chart.border_title)
        await settled(pilot)
        assert set(chart.data.lines[-1].y) == {25.0}


async def test_the_system_tab_names_everything_of_a_gpu(cockpit, source):
    hot = replace(fake_feed.gpu(), temperature_c=91.0, throttle_reasons=("thermal (hardware)",))
    change(source, gpu=(hot, fake_feed.gpu(1, 12.0)))
    async with cockpit(run=at(source), tab="system").run_test(size=(100, 36)) as pilot:
        sheet = pilot.app.screen.query_one(ScrolledLines)
        await until(pilot, lambda: "throttled: thermal (hardware)" in sheet.text)
        wanted = ("612 / 700 W", "91 \u00b0C", "sm 1830 MHz", "memory 3201 MHz", "4242", "gpu 1",
                  "61.0 GiB / 140 GiB", "412 GiB free", "cpu", "8.20 GiB")  # fmt: skip
        for words in wanted:
            assert words in sheet.text, words


async def test_a_run_on_the_processor_says_why_there_is_no_gpu(cockpit, source):
    change(source, gpu=(), device="cpu")
    async with cockpit(run=at(source), tab="system").run_test(size=(80, 24)) as pilot:
        sheet = pilot.app.screen.query_one(ScrolledLines)
        await until(pilot, lambda: "trains on the processor" in sheet.text)


async def test_the_charts_tab_gets_the_curves_it_wants(cockpit, source):
    async with cockpit(run=at(source), tab="charts").run_test(size=(120, 36)) as pilot:
        grid = pilot.app.screen.query_one(ChartGrid)
        await until(
            pilot, lambda: bool(grid.shown) and all(map(grid.picture.key_curves, grid.shown))
        )
        assert "perf/tokens_per_s" in grid.picture.keys
        source.more_curves = {**source.more_curves, "my/metric": fake_feed.curve("m", [1, 2], 9)}
        change(source, step=15_400)
        await until(pilot, lambda: "my/metric" in grid.picture.keys)


async def test_sections_are_as_they_were_left(cockpit, source):
    keys = [f"part{i // 7}/m{i}" for i in range(21)]
    source.more_curves = {key: fake_feed.curve(key, [1, 2], 9) for key in keys}
    views = ViewKeeper()
    async with cockpit(run=at(source), tab="charts", views=views).run_test(size=(120, 36)) as pilot:
        grid = pilot.app.screen.query_one(ChartGrid)
        await until(pilot, lambda: "part0/m0" in grid.picture.keys)
        grid.go_to("part2/m20")
        await until(pilot, lambda: grid.current == "part2/m20")
        await pilot.press("f")
        await until(pilot, lambda: "-part2" in views.current.unfolded)
    views.update(unfolded=(*views.current.unfolded, "part1"))
    async with cockpit(run=at(source), tab="charts", views=views).run_test(size=(120, 36)) as pilot:
        grid = pilot.app.screen.query_one(ChartGrid)
        await until(pilot, lambda: "part1/m7" in grid.order)
        assert "part2/m20" not in grid.order


# -- alerts ----------------------------------------------------------------------------------------

ALERTS = tuple(
    AlertRow(f"r{i}@1.{i}", severity=severity, message=f"alert number {i}", step=i)
    for i, severity in enumerate(("warning", "error", "warning"))
)


def with_alerts(source):
    return change(source, alerts=ALERTS, alerts_open=3, severity="error")


async def test_with_several_open_alerts_a_asks_which(cockpit, source):
    view = with_alerts(source)
    async with cockpit(run=view).run_test(size=(80, 24)) as pilot:
        await pilot.press("a")
        choice = pilot.app.screen
        assert isinstance(choice, AlertChoice)
        assert choice.query_one(OpenAlerts).count() == 3
        await pilot.press("down", "a")
        await until(pilot, lambda: source.acknowledged == [(view.id, "r2@1.2")])


async def test_the_choice_can_be_left_without_acknowledging(cockpit, source):
    async with cockpit(run=with_alerts(source)).run_test(size=(80, 24)) as pilot:
        await pilot.press("a", "escape")
        assert isinstance(pilot.app.screen, RunScreen)
        assert source.acknowledged == []


@pytest.mark.parametrize("keys", [("A",), ("a", "A")])
async def test_all_are_acknowledged_after_a_yes(cockpit, source, keys):
    view = with_alerts(source)
    async with cockpit(run=view).run_test(size=(80, 24)) as pilot:
        await pilot.press(*keys)
        await until(pilot, lambda: isinstance(pilot.app.screen, ConfirmScreen))
        assert source.acknowledged == []
        await pilot.press("y")
        await until(pilot, lambda: len(source.acknowledged) == 3)
        await until(pilot, lambda: "3 alerts" in str(pilot.app.screen.query_one(StatusBar).line))


async def test_on_the_events_tab_a_means_the_alert_under_the_cursor(cockpit, source):
    source.events = tuple(
        fake_feed.EventRow(
            name="andon.alert", severity=a.severity, step=a.step, wall=fake_feed.WALL - 9 + a.step,
            attempt=1, data={"id": a.id, "message": a.message},
        )
        for a in ALERTS
    )  # fmt: skip
    view = with_alerts(source)
    async with cockpit(run=view, tab="events").run_test(size=(80, 24)) as pilot:
        listing = pilot.app.screen.query_one(EventList)
        await until(pilot, lambda: listing.count() == 3)
        await pilot.press("down", "a")
        await until(pilot, lambda: source.acknowledged == [(view.id, "r1@1.1")])


async def test_the_banner_stays_on_every_tab(cockpit, source):
    async with cockpit(run=with_alerts(source), tab="config").run_test(size=(80, 24)) as pilot:
        banner = pilot.app.screen.query_one(AlertBanner)
        await until(pilot, lambda: banner.display and "+2" in str(banner.render()))


# -- words -----------------------------------------------------------------------------------------


async def test_the_guard_of_a_completed_run_has_ended_and_is_not_gone(cockpit, source):
    view = at(source, "sweep-lr-1e3")
    async with cockpit(run=view).run_test(size=(160, 45)) as pilot:
        panel = pilot.app.screen.query_one(GuardPanel)
        await until(pilot, lambda: "ended" in str(panel.render()))
        assert "gone" not in str(panel.render())
        assert "ended 1h ago" in text_of(pilot.app.screen)


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("done", "done: exited with code 0 at step 15000"),
        ("unknown_crash", "unknown_crash: exited with code 139 at step 15000"),
    ],
)
async def test_the_guard_panel_has_all_of_how_an_attempt_ended(
    cockpit, source, width, kind, reason
):
    view = at(source, "sweep-lr-1e3")
    ended = AttemptRow(1, started=1.0, ended=2.0, exit_class=kind, reason=reason)
    view = replace(view, attempts=(ended,), attempt=1)
    source.show((view, *(row for row in source.rows if row.id != view.id)))
    async with cockpit(run=view).run_test(size=(width, 24)) as pilot:
        panel = pilot.app.screen.query_one(GuardPanel)

        def drawn() -> list[str]:
            return [panel.render_line(y).text for y in range(panel.content_size.height)]

        await until(pilot, lambda: "attempt 1" in "".join(drawn()))
        end = "".join(drawn()).partition("attempt 1")[2]
        assert " ".join(end.split()) == reason
        assert any(line.startswith("checkpoint") for line in drawn())


async def test_bricks_say_what_is_joined_learned_uncovered_and_traced(cockpit, source):
    live = incident.runs()[0]
    source.rows, source.more_curves = (live,), {}
    async with cockpit(run=live, tab="bricks").run_test(size=(120, 36)) as pilot:
        table = pilot.app.screen.query_one(BrickTable)
        await until(pilot, lambda: len(table.rows) == 6)
        await until(pilot, lambda: "clip+optimizer" in text_of(pilot.app.screen))
        lines = {
            row.name: line
            for row, line in zip(table.rows, rows_of(table).splitlines()[1:], strict=False)
        }
        assert "~118ms" in lines["forward+loss"] and "~" not in lines["backward"]
        assert "apart" in lines["checkpoint"]
        shown = text_of(pilot.app.screen)
        assert "93.1% of a step is named" in shown
        assert "trace of step 15,102:" in shown and "traces/step-00015102.json.gz" in shown


TRACED = TracedBricks(
    "step-00015102.json.gz",
    is_gpu=True,
    coverage=0.962,
    bricks={
        "forward": TracedBrick(
            (TracedKernel("sm90_gemm", 0.31, 24, 412.5), TracedKernel("layer_norm", 0.02, 12.5, 9)),
            launches=61,
            syncs=1,
        ),
        "optimizer": TracedBrick((), launches=0, syncs=0),
    },
)


@pytest.mark.parametrize("size", [(160, 45), (80, 24)])
async def test_enter_unfolds_the_kernels_of_a_brick_and_folds_them_again(cockpit, source, size):
    source.traced = TRACED
    async with cockpit(run=at(source), tab="bricks").run_test(size=size) as pilot:
        screen = pilot.app.screen
        table = screen.query_one(BrickTable)
        await until(pilot, lambda: any(row.past for row in table.rows))
        assert "traced" not in source.asked and screen.query_one("#brick-chart").display
        await pilot.press("enter")
        await until(pilot, lambda: "no kernel in optimizer" in text_of(screen))
        while table.current.name != "forward":
            await pilot.press("up")
        await until(pilot, lambda: "sm90_gemm" in text_of(screen))
        shown = text_of(screen)
        (line,) = (line for line in shown.splitlines() if "sm90_gemm" in line)
        assert line.split("sm90_gemm")[1].split()[:3] == ["31.0%", "24", "412.5"]
        assert "step-00015102.json.gz" in shown
        assert "61 launches, 1 synchronizations a step; 96.2% of it explained" in shown
        assert not screen.query_one("#brick-chart").display
        await pilot.press("enter")
        await until(pilot, lambda: screen.query_one("#brick-chart").display)
        assert "sm90_gemm" not in text_of(screen)


async def test_without_a_trace_a_brick_says_how_to_get_one_and_a_bad_one_why(cockpit, source):
    view = at(source)
    async with cockpit(run=view, tab="bricks").run_test(size=(120, 36)) as pilot:
        table = pilot.app.screen.query_one(BrickTable)
        await until(pilot, lambda: any(row.past for row in table.rows))
        await pilot.press("enter")
        await until(pilot, lambda: "This run kept no trace." in text_of(pilot.app.screen))
        assert f"albor profile {view.id}" in text_of(pilot.app.screen)
    source.traced = TracedBricks("x.json.gz", problem="x.json.gz: is damaged")
    async with cockpit(run=view, tab="bricks").run_test(size=(120, 36)) as pilot:
        table = pilot.app.screen.query_one(BrickTable)
        await until(pilot, lambda: any(row.past for row in table.rows))
        await pilot.press("enter")
        await until(pilot, lambda: "is damaged" in text_of(pilot.app.screen))


async def test_system_shows_what_was_kept_of_a_program_that_tells_no_figures(cockpit, source):
    loop = fake_feed.training("loop-1a2b3c", kind="track", gpu=(), system=None, device="")
    source.rows = (loop,)
    figures = {
        "program/cpu_percent": 87.0,
        "program/rss_bytes": 3.0 * fake_feed.GIB,
        "gpu10/util_percent": 41.0,
        "gpu2/util_percent": 97.0,
        "host/disk_free_bytes": 412.0 * fake_feed.GIB,
    }
    source.more_curves = {key: fake_feed.curve(key, [v] * 20, 200) for key, v in figures.items()}
    async with cockpit(run=loop, tab="system").run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "disk left" in text_of(pilot.app.screen))
        shown = text_of(pilot.app.screen)
        assert "87 %" in shown and "3.00 GiB" in shown and "412 GiB" in shown
        assert shown.index("program") < shown.index("gpu 2") < shown.index("gpu 10")
        assert "no figures" not in shown


@pytest.mark.parametrize(
    ("watched", "words"),
    [
        (Watched(3, by="index"), "its index process takes them every ten seconds"),
        (Watched(), "Nothing takes its figures now"),
    ],
)
async def test_system_says_why_there_are_no_figures_of_a_tracked_run(
    cockpit, source, watched, words
):
    diagnostics = RunDiagnostics(watched=watched)
    loop = fake_feed.training(
        "loop-1a2b3c", kind="track", gpu=(), system=None, device="", diagnostics=diagnostics
    )
    source.rows, source.more_curves = (loop,), {}
    async with cockpit(run=loop, tab="system").run_test(size=(120, 36)) as pilot:
        await until(pilot, lambda: words in text_of(pilot.app.screen))
