"""U9: a widget that fails shows it in its own place, is logged, and the cockpit lives."""

from __future__ import annotations

import pytest
from screen_stage import at, change, text_of
from settled import settled, until

from albor_core.run.errors import StoreError
from albor_tui import error_log
from albor_tui.screens.run import RunScreen
from albor_tui.screens.tabs.checkpoints import CheckpointsPage
from albor_tui.screens.tabs.events import EventsPage
from albor_tui.screens.tabs.system import SystemPage
from albor_tui.widgets.base.line_list import LineList
from albor_tui.widgets.base.scrolled_lines import ScrolledLines
from albor_tui.widgets.chart.chart import Chart
from albor_tui.widgets.run.event_list import EventList
from albor_tui.widgets.run.guard_panel import GuardPanel
from albor_tui.widgets.run.log_view import LogView
from albor_tui.widgets.tab_bar import TabBar


def fail(*_: object, **__: object) -> None:
    raise ValueError("a [bold]bad[/] value \x1b[2J")


SHOWN = "ValueError: a [bold]bad[/] value \u241b[2J"


@pytest.mark.parametrize(
    ("tab", "widget", "method"),
    [
        ("overview", GuardPanel, "show"),
        ("events", EventList, "draw_line"),
        ("logs", LogView, "render_line"),
        ("system", ScrolledLines, "render_line"),
        ("checkpoints", TabBar, "render"),
    ],
)
@pytest.mark.slow
async def test_what_cannot_be_drawn_says_so_in_place(
    cockpit, source, monkeypatch, tab, widget, method
):
    monkeypatch.setattr(widget, method, fail)
    async with cockpit(run=at(source), tab=tab).run_test(size=(140, 40)) as pilot:
        await until(pilot, lambda: SHOWN[:24] in text_of(pilot.app.screen))
        assert "code-125m" in text_of(pilot.app.screen)
        monkeypatch.undo()
        pilot.app.screen.query_one(widget).refresh()
        change(source, step=15_300)
        await until(pilot, lambda: "15,300" in text_of(pilot.app.screen))
        assert pilot.app.is_running


@pytest.mark.parametrize(
    ("tab", "page", "method"),
    [
        ("checkpoints", CheckpointsPage, "show_answer"),
        ("events", EventsPage, "show_view"),
        ("events", EventsPage, "show_answer"),
        ("system", SystemPage, "show_view"),
    ],
)
@pytest.mark.slow
async def test_a_page_that_fails_over_a_message_shows_it_above_itself(
    cockpit, source, monkeypatch, tab, page, method
):
    monkeypatch.setattr(page, method, fail)
    async with cockpit(run=at(source), tab=tab).run_test(size=(140, 40)) as pilot:
        await until(pilot, lambda: f"cannot show this: {SHOWN}" in text_of(pilot.app.screen))
        monkeypatch.undo()
        change(source, step=15_300)
        source.shelf, source.events = source.shelf.__class__(), source.events[1:]
        await until(pilot, lambda: "cannot show this" not in text_of(pilot.app.screen))


@pytest.mark.slow
async def test_an_error_while_a_tab_opens_stays_until_it_opens_again(cockpit, source, monkeypatch):
    monkeypatch.setattr(SystemPage, "enter", fail)
    async with cockpit(run=at(source), tab="system").run_test(size=(140, 40)) as pilot:
        change(source, step=15_300)
        await until(pilot, lambda: "15,300" in text_of(pilot.app.screen))
        assert f"cannot show this: {SHOWN}" in text_of(pilot.app.screen)
        monkeypatch.undo()
        await pilot.press("5", "4")
        await until(pilot, lambda: "cannot show this" not in text_of(pilot.app.screen))


async def test_errors_are_written_down_once_as_plain_text(cockpit, source, monkeypatch, tmp_path):
    error_log.forget()
    monkeypatch.setattr(EventList, "draw_line", fail)
    async with cockpit(run=at(source), tab="events").run_test(size=(140, 40)) as pilot:
        await until(pilot, lambda: SHOWN[:24] in text_of(pilot.app.screen))
        for key in ("down", "up", "f", "F"):
            await pilot.press(key)
    log = tmp_path / "home" / "cockpit.log"
    text = log.read_text()
    assert "EventList cannot draw" in text
    assert "\nValueError: a [bold]bad[/] value" in text
    assert text.count("Traceback") == 1
    assert "\x1b" not in text
    assert log.stat().st_mode & 0o777 == 0o600


def test_the_log_of_errors_is_bounded(monkeypatch, tmp_path):
    error_log.forget()
    monkeypatch.setattr(error_log, "MAX_BYTES", 2_000)
    for number in range(50):
        error_log.note(f"widget {number}", ValueError("x" * 400))
    sizes = {path.name: path.stat().st_size for path in (tmp_path / "home").glob("cockpit.log*")}
    assert set(sizes) == {"cockpit.log", "cockpit.log.1"}
    assert max(sizes.values()) < 3_000


@pytest.mark.slow
async def test_an_archive_that_fails_is_told_on_the_page_and_asked_again(cockpit, source):
    source.archive_failure = StoreError("the store has gone fishing")
    async with cockpit(run=at(source), tab="events").run_test(size=(100, 30)) as pilot:
        await until(pilot, lambda: "gone fishing" in text_of(pilot.app.screen))
        source.archive_failure = None
        await until(pilot, lambda: "gone fishing" not in text_of(pilot.app.screen))


@pytest.mark.slow
async def test_a_store_that_cannot_be_read_is_named_on_the_tab(cockpit, source):
    source.problem = "experiments.db: not a database (albor db rebuild)"
    async with cockpit(run=at(source), tab="samples").run_test(size=(100, 30)) as pilot:
        await until(pilot, lambda: "albor db rebuild" in text_of(pilot.app.screen))


async def test_a_key_whose_action_fails_leaves_the_app_alive(cockpit, source, monkeypatch):
    monkeypatch.setattr(EventsPage, "action_kind", fail)
    monkeypatch.setattr(RunScreen, "action_zoom", fail)
    async with cockpit(run=at(source), tab="events").run_test(size=(100, 30)) as pilot:
        await pilot.press("f")
        await until(pilot, lambda: "cannot show this" in text_of(pilot.app.screen))
        await pilot.press("z")
        await until(pilot, lambda: SHOWN in text_of(pilot.app.screen))
        await pilot.press("7")
        assert pilot.app.screen.tab == "checkpoints"


async def test_a_click_that_fails_leaves_the_app_alive(cockpit, source, monkeypatch):
    monkeypatch.setattr(LineList, "on_click", fail)
    async with cockpit(run=at(source), tab="events").run_test(size=(100, 30)) as pilot:
        await pilot.click(EventList, offset=(5, 2))
        await pilot.press("7")
        await until(pilot, lambda: "verified" in text_of(pilot.app.screen))


@pytest.mark.slow
async def test_the_charts_go_on_beside_a_broken_panel(cockpit, source, monkeypatch):
    monkeypatch.setattr(GuardPanel, "show", fail)
    async with cockpit(run=at(source)).run_test(size=(160, 45)) as pilot:
        await settled(pilot)
        assert pilot.app.screen.query_one("#loss", Chart).is_painted
