"""One run: its panels, its commands, and what a viewer must never do."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import fake_feed
import pytest
from screen_stage import text_of
from settled import settled, until
from textual.widgets import Static

from albor_tui.app import AlborApp
from albor_tui.screens.dialogs.confirm import ConfirmScreen
from albor_tui.screens.run import TABS, RunScreen
from albor_tui.widgets.chart.chart import Chart
from albor_tui.widgets.key_bar import KeyBar
from albor_tui.widgets.run.alerts import AlertBanner, Alerts
from albor_tui.widgets.run.guard_panel import GuardPanel
from albor_tui.widgets.run.log_tail import KEPT_LINES, LogTail
from albor_tui.widgets.run.panels import BricksPanel, Head, Vitals
from albor_tui.widgets.search_line import SearchLine
from albor_tui.widgets.status_bar import StatusBar, TopBar

Cockpit = Callable[..., AlborApp]


def at(source: fake_feed.FakeSource, name: str):
    return next(view for view in source.rows if view.name == name)


def shown(screen, panel) -> str:
    return str(screen.query_one(panel).render())


async def test_the_screen_follows_the_run(cockpit, source):
    view = at(source, "code-125m")
    async with cockpit(run=view).run_test(size=(160, 45)) as pilot:
        screen = pilot.app.screen
        assert isinstance(screen, RunScreen)
        await until(pilot, lambda: "2.3142" in shown(screen, Vitals))
        source.show(tuple(replace(v, loss=2.0001) if v is view else v for v in source.rows))
        await until(pilot, lambda: "2.0001" in shown(screen, Vitals))


async def test_every_panel_shows_its_facts(cockpit, source):
    async with cockpit(run=at(source, "code-125m")).run_test(size=(160, 45)) as pilot:
        screen = pilot.app.screen
        await until(pilot, lambda: "code-125m" in shown(screen, Head))
        await settled(pilot)
        assert "15,280 / 40,000" in shown(screen, Head)
        assert "2h24m" in shown(screen, Head)
        assert "optimizer" in shown(screen, BricksPanel)
        assert "31.4ms" in shown(screen, BricksPanel)
        assert "1 restart" in shown(screen, GuardPanel)
        assert "step 15,000" in shown(screen, GuardPanel)
        assert "gradient_norm > 5" in shown(screen, Alerts)
        assert "a acknowledge" in shown(screen, AlertBanner)
        log = screen.query_one(LogTail)
        await until(pilot, lambda: "clipped" in log.render_line(log.content_size.height - 1).text)


async def test_a_run_that_gave_no_news_says_for_how_long(cockpit, source):
    async with cockpit(run=at(source, "old-baseline")).run_test(size=(100, 30)) as pilot:
        await until(pilot, lambda: "old-baseline" in shown(pilot.app.screen, Head))
        head = shown(pilot.app.screen, Head)
        assert "lost" in head
        assert "last news 2d ago" in head
        assert "eta" not in head


async def test_pause_goes_through_the_guard_and_its_answer_is_shown(cockpit, source):
    view = at(source, "code-125m")
    async with cockpit(run=view).run_test(size=(100, 30)) as pilot:
        await pilot.press("p")
        await until(pilot, lambda: source.commands == [(view.id, "pause")])
        bar = pilot.app.screen.query_one(StatusBar)
        await until(pilot, lambda: "done" in str(bar.line))
        assert "in 0.8 s" in str(bar.line)


async def test_p_resumes_a_paused_run(cockpit, source):
    view = at(source, "distill-50m")
    async with cockpit(run=view).run_test(size=(100, 30)) as pilot:
        await until(pilot, lambda: "paused" in shown(pilot.app.screen, Head))
        await pilot.press("p")
        await until(pilot, lambda: source.commands == [(view.id, "resume")])


async def test_c_asks_for_a_checkpoint(cockpit, source):
    view = at(source, "code-125m")
    async with cockpit(run=view).run_test(size=(100, 30)) as pilot:
        await pilot.press("c")
        await until(pilot, lambda: source.commands == [(view.id, "checkpoint")])


async def test_stop_is_sent_only_after_a_yes(cockpit, source):
    view = at(source, "code-125m")
    async with cockpit(run=view).run_test(size=(100, 30)) as pilot:
        await pilot.press("x")
        assert isinstance(pilot.app.screen, ConfirmScreen)
        await pilot.press("enter")  # the careless key keeps it running
        assert source.commands == []
        await pilot.press("x", "y")
        await until(pilot, lambda: source.commands == [(view.id, "stop")])


async def test_nothing_is_sent_to_a_run_that_has_ended(cockpit, source):
    async with cockpit(run=at(source, "sweep-lr-1e3")).run_test(size=(100, 30)) as pilot:
        for key in ("p", "c", "x"):
            await pilot.press(key)
        assert source.commands == []
        assert "it is complete" in str(pilot.app.screen.query_one(StatusBar).line)


async def test_a_acknowledges_the_open_alert(cockpit, source):
    view = at(source, "code-125m")
    async with cockpit(run=view).run_test(size=(100, 30)) as pilot:
        await until(pilot, lambda: "gradient_norm" in shown(pilot.app.screen, Alerts))
        await pilot.press("a")
        await until(pilot, lambda: source.acknowledged == [(view.id, fake_feed.ALERT.id)])
        calm = replace(fake_feed.ALERT, acked_by="me")
        source.show(
            tuple(
                replace(v, alerts=(calm,), alerts_open=0) if v is view else v for v in source.rows
            )
        )
        banner = pilot.app.screen.query_one(AlertBanner)
        await until(pilot, lambda: not banner.display)


async def test_z_gives_a_panel_the_screen_and_takes_it_back(cockpit, source):
    async with cockpit(run=at(source, "code-125m")).run_test(size=(80, 24)) as pilot:
        await pilot.press("z")
        assert pilot.app.screen.maximized is pilot.app.screen.query_one("#loss", Chart)
        await pilot.press("escape")
        assert pilot.app.screen.maximized is None
        assert isinstance(pilot.app.screen, RunScreen)


async def test_what_is_done_in_a_zoomed_panel_is_answered_there(cockpit, source):
    app = cockpit(run=at(source, "code-125m"))
    async with app.run_test(size=(80, 24)) as pilot:
        screen = pilot.app.screen
        await pilot.press("z", "p")
        bar = screen.query_one(StatusBar)
        await until(pilot, lambda: "done" in str(bar.line) and bool(bar.region))
        visible = (TopBar, Chart, StatusBar, KeyBar)
        heights = [screen.query(kind).first().region.height for kind in visible]
        assert heights == [1, 21, 1, 1]
        app.is_read_only = True
        await pilot.press("c")
        await until(pilot, lambda: "read-only" in str(bar.line))
        assert bar.region.height == 1


async def test_keys_without_an_object_are_not_named(cockpit, source):
    view = at(source, "code-125m")
    async with cockpit(run=view).run_test(size=(160, 45)) as pilot:
        bar = pilot.app.screen.query_one(KeyBar)
        await until(pilot, lambda: "a Ack" in bar.render_line(0).text)
        calm = replace(view, alerts=(), alerts_open=0)
        source.show(tuple(calm if v is view else v for v in source.rows))
        await until(pilot, lambda: "Ack" not in bar.render_line(0).text)
        await pilot.press("question_mark")
        help_text = str(pilot.app.screen.query(Static).first().content)
        assert "Acknowledge an open alert" in help_text.split("not now:")[1]


@pytest.mark.parametrize("size", [(80, 24), (160, 45)], ids=str)
async def test_what_is_damaged_of_a_live_run_stands_on_its_first_tab(cockpit, source, size):
    view = at(source, "code-125m")
    flaw = "run.json is empty since 14:05; put it back from a copy"
    async with cockpit(run=view).run_test(size=size) as pilot:
        screen = pilot.app.screen
        excuse = screen.query_one(".excuse", Static)
        await until(pilot, lambda: "2.3142" in shown(screen, Vitals))
        assert not excuse.display
        source.problem = flaw
        source.show(tuple(replace(v, detail=flaw) if v is view else v for v in source.rows))
        await until(pilot, lambda: excuse.display and flaw in str(excuse.content))
        await until(pilot, lambda: "run.json is" in shown(screen, Head))
        await pilot.press("3")
        assert "run.json is" in shown(screen, Head)
        await pilot.press("1")
        await until(pilot, lambda: bool(excuse.region) and flaw in str(excuse.content))
        source.problem = ""
        source.show(tuple(view if v.id == view.id else v for v in source.rows))
        await until(pilot, lambda: not excuse.display)


async def test_a_phase_is_said_once(cockpit, source):
    view = replace(at(source, "code-125m"), phase="evaluating", detail="evaluating")
    source.show((view,))
    async with cockpit(run=view).run_test(size=(160, 45)) as pilot:
        await until(pilot, lambda: shown(pilot.app.screen, Head).count("evaluating") == 1)


async def test_a_run_that_is_over_is_not_said_to_have_no_news_yet(cockpit, source):
    over = replace(at(source, "sweep-lr-1e3"), age_s=None, step=None)
    source.show((over,))
    async with cockpit(run=over).run_test(size=(100, 30)) as pilot:
        await until(pilot, lambda: "completed" in shown(pilot.app.screen, Head))
        assert "yet" not in shown(pilot.app.screen, Head)


async def test_absurd_numbers_stay_in_their_tile(cockpit, source):
    absurd = dict.fromkeys(("tokens_per_s", "val_ppl", "grad_norm", "mfu", "step_ms"), 1e308)
    view = replace(at(source, "code-125m"), **absurd, batch_size=10**300)
    source.show((view,))
    async with cockpit(run=view).run_test(size=(160, 45)) as pilot:
        await until(pilot, lambda: "1e308" in shown(pilot.app.screen, Vitals))
        values = shown(pilot.app.screen, Vitals).split("\n")[1].split()
        assert len(values) == 11 and values.count("1e308") == 3


async def test_a_panel_that_cannot_draw_says_so_and_the_others_live(cockpit, source, monkeypatch):
    def fail(*_: object) -> None:
        raise ValueError("bad value")

    monkeypatch.setattr(GuardPanel, "show", fail)
    async with cockpit(run=at(source, "code-125m")).run_test(size=(160, 45)) as pilot:
        await until(pilot, lambda: "ValueError" in shown(pilot.app.screen, GuardPanel))
        await until(pilot, lambda: "code-125m" in shown(pilot.app.screen, Head))


async def test_nan_leaves_a_mark_on_the_chart(cockpit, source):
    async with cockpit(run=at(source, "sweep-lr-3e3")).run_test(size=(160, 45)) as pilot:
        chart = pilot.app.screen.query_one("#loss", Chart)
        await until(pilot, lambda: "\u2717" in chart.render_line(0).text)


async def test_the_log_keeps_a_bounded_number_of_lines(cockpit, source):
    source.log_lines = tuple(f"line {i}" for i in range(KEPT_LINES + 500))
    async with cockpit(run=at(source, "code-125m")).run_test(size=(160, 45)) as pilot:
        log = pilot.app.screen.query_one(LogTail)
        await until(pilot, lambda: log.virtual_size.height == KEPT_LINES)
        assert f"line {KEPT_LINES + 499}" in log.render_line(log.content_size.height - 1).text


async def test_a_line_of_the_log_that_the_bar_leaves_no_room_for_ends_with_a_mark(cockpit, source):
    source.log_lines = tuple(f"line {i} {'x' * 90}" for i in range(100))
    async with cockpit(run=at(source, "code-125m")).run_test(size=(80, 24)) as pilot:
        log = pilot.app.screen.query_one(LogTail)
        await until(pilot, lambda: log.show_vertical_scrollbar)
        await settled(pilot)
        assert "x\u2026 " in text_of(pilot.app.screen).splitlines()[-3]


async def test_garbage_numbers_do_not_take_the_screen_down(cockpit, source):
    view = at(source, "code-125m")
    odd = dict.fromkeys(("loss", "val_ppl", "lr", "grad_norm", "mfu", "tokens_per_s"), math.inf)
    odd |= dict.fromkeys(("step_ms", "eta_s", "elapsed_s", "progress"), math.nan)
    garbage = replace(view, **odd, step=-5, tokens=10**30, loss_history=(math.nan, 1e308, -1e308))
    async with cockpit(run=garbage).run_test(size=(80, 24)) as pilot:
        source.show(tuple(garbage if v is view else v for v in source.rows))
        await until(pilot, lambda: "inf" in shown(pilot.app.screen, Vitals))
        for panel in (Head, Vitals, GuardPanel, BricksPanel):
            assert "cannot draw" not in shown(pilot.app.screen, panel)


@pytest.mark.slow
@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
@pytest.mark.parametrize("tab", [tab.key for tab in TABS])
async def test_a_zoomed_panel_fills_the_screen_on_every_tab(cockpit, source, tab, size):
    async with cockpit(run=at(source, "code-125m"), tab=tab).run_test(size=size) as pilot:
        screen = pilot.app.screen
        await until(pilot, lambda: screen.focused is not None and screen.focused.size.height > 0)
        await settled(pilot)
        await pilot.press("z")
        if screen.maximized is None:  # a tab with nothing to zoom
            return
        await pilot.pause()
        zoomed, keys = screen.maximized.region, screen.query_one(KeyBar).region
        assert (keys.y, keys.height) == (size[1] - 1, 1)
        assert (zoomed.x, zoomed.width) == (0, size[0])
        assert (zoomed.y, zoomed.bottom) == (1, keys.y)
        screen.show_message("a word")
        await until(pilot, lambda: screen.query_one(StatusBar).region.y == size[1] - 2)
        assert screen.maximized.region.bottom == size[1] - 2


@pytest.mark.parametrize("tab", ["logs", "config"])
async def test_a_search_from_a_zoomed_panel_is_seen(cockpit, source, tab):
    async with cockpit(run=at(source, "code-125m"), tab=tab).run_test(size=(80, 24)) as pilot:
        screen = pilot.app.screen
        await until(pilot, lambda: screen.focused is not None and screen.focused.size.height > 0)
        await pilot.press("z", "slash", "l", "r")
        line = screen.query_one(SearchLine)
        assert (screen.maximized, line.value) == (None, "lr")
        await until(pilot, lambda: line.region.height == 1)
        keys = str(screen.query_one(KeyBar).render())
        assert "enter Keep" in keys and "esc Clear" in keys


@pytest.mark.slow
@pytest.mark.parametrize("tab", [tab.key for tab in TABS])
async def test_what_is_damaged_of_a_run_is_told_on_every_tab(cockpit, source, tab):
    source.problem = "run.json is damaged since 14:05; albor doctor says what to do"
    async with cockpit(run=at(source, "code-125m"), tab=tab).run_test(size=(80, 24)) as pilot:
        excuse = pilot.app.screen.query_one(".excuse", Static)
        await until(pilot, lambda: "what to do" in str(excuse.content) and excuse.display)
