"""The status line: one plain sentence, gone after six seconds or when something else is done."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from settled import settled, until
from textual.widgets import Input

from albor_tui.app import AlborApp
from albor_tui.messages import CommandReport
from albor_tui.screens.dialogs.confirm import ConfirmScreen
from albor_tui.screens.run import RunScreen
from albor_tui.widgets import status_bar
from albor_tui.widgets.run.log_view import LogView
from albor_tui.widgets.run_table import RunTable
from albor_tui.widgets.status_bar import StatusBar, sentence

Cockpit = Callable[..., AlborApp]


@pytest.mark.parametrize(
    ("report", "words"),
    [
        (CommandReport("demo", "stop", "sent"), "stop demo: sent"),
        (CommandReport("demo", "stop", "accepted"), "stop demo: under way"),
        (CommandReport("demo", "retry_now", "done", "in 0.8 s"), "retry demo: done, in 0.8 s"),
        (CommandReport("demo", "ack", "done"), "acknowledge demo: done"),
        (
            CommandReport("demo", "stop", "no guard", "it has failed"),
            "cannot stop demo: it has failed",
        ),
        (
            CommandReport("demo", "tag", "refused", "needs a text"),
            "cannot tag demo: needs a text",
        ),
        (
            CommandReport("a\x1b[31m", "stop", "no answer", "the guard said nothing in 3 s"),
            "stop a\u241b[31m: no answer, the guard said nothing in 3 s",
        ),
    ],
)
def test_how_a_command_fares_is_a_sentence(report, words):
    assert sentence(report).plain == words


async def ready(pilot) -> StatusBar:
    table = pilot.app.screen.query_one(RunTable)
    await until(pilot, lambda: len(table.runs) == 7)
    row = next(i for i, view in enumerate(table.runs) if view.status == "failed")
    await pilot.press("home", *["down"] * row)
    bar: StatusBar = pilot.app.screen.query_one(StatusBar)
    return bar


@pytest.mark.parametrize("key", ["x"])
async def test_a_run_that_has_failed_cannot_be_stopped_and_the_line_says_so(cockpit, key):
    async with cockpit().run_test(size=(120, 40)) as pilot:
        bar = await ready(pilot)
        await pilot.press(key)
        await until(pilot, lambda: bar.display)
        assert str(bar.line) == "cannot stop sweep-lr-3e3: it has failed"


@pytest.mark.parametrize("tab", ["overview", "events"])
@pytest.mark.parametrize("key", ["x"])
@pytest.mark.slow
async def test_both_keys_stop_on_the_screen_of_a_run_too(cockpit, source, tab, key):
    failed = next(view for view in source.rows if view.status == "failed")
    async with cockpit(run=failed, tab=tab).run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        if tab == "overview":
            pilot.app.screen.query_one("#loss").focus()
        await pilot.press(key)
        bar = pilot.app.screen.query_one(StatusBar)
        await until(pilot, lambda: bar.display)
        assert str(bar.line) == "cannot stop sweep-lr-3e3: it has failed"


async def test_a_message_goes_by_itself(cockpit, monkeypatch):
    assert status_bar.STAYS_S == 6.0
    monkeypatch.setattr(status_bar, "STAYS_S", 0.05)
    async with cockpit().run_test(size=(120, 40)) as pilot:
        bar = await ready(pilot)
        bar.show_message("something")
        assert bar.display
        await until(pilot, lambda: not bar.display)


@pytest.mark.slow
async def test_a_message_goes_when_another_screen_comes(cockpit):
    async with cockpit().run_test(size=(120, 40)) as pilot:
        bar = await ready(pilot)
        await pilot.press("x")
        await until(pilot, lambda: bar.display)
        await pilot.press("question_mark")
        await until(pilot, lambda: not bar.display)


@pytest.mark.slow
async def test_a_command_without_an_answer_stays(cockpit):
    async with cockpit().run_test(size=(120, 40)) as pilot:
        bar = await ready(pilot)
        bar.report(CommandReport("demo", "stop", "sent"))
        await pilot.press("question_mark")
        await pilot.pause()
        assert bar.display


@pytest.mark.slow
async def test_x_asks_to_stop_on_the_charts_too_and_is_a_letter_of_a_search(cockpit, source):
    view = source.rows[0]
    async with cockpit(run=view, tab="charts").run_test(size=(120, 40)) as pilot:
        await settled(pilot)
        await pilot.press("X")
        assert isinstance(pilot.app.screen, RunScreen)  # the axis of the charts
        await pilot.press("x")
        assert isinstance(pilot.app.screen, ConfirmScreen)
        await pilot.press("escape", "5")
        await until(pilot, lambda: isinstance(pilot.app.screen.focused, LogView))
        await pilot.press("slash")
        await until(pilot, lambda: isinstance(pilot.app.screen.focused, Input))
        await pilot.press("x")
        await until(pilot, lambda: pilot.app.screen.focused.value == "x")
