"""Keys, dialogs and the palette offer what works for the run they are on, and say what it does."""

from __future__ import annotations

import os
import threading
from dataclasses import replace

import pytest
from fake_feed import training
from settled import until
from textual.widgets import Static

from albor_core.feed.view.run_view import BrickView
from albor_tui.screens.base import run_origins
from albor_tui.screens.dialogs.confirm import ChoiceScreen, ConfirmScreen
from albor_tui.screens.run import RunScreen
from albor_tui.widgets.key_bar import KeyBar
from albor_tui.widgets.status_bar import StatusBar

pytestmark = pytest.mark.slow  # in sum; `make check` is under a minute

SIZE = (160, 45)


def tracked(**changes):
    return training(kind="track", guard=None, guard_pid=None, host=os.uname().nodename, **changes)


def program(**changes):
    return training(kind="guard", command=("python", "train.py"), **changes)


def words_of(pilot) -> str:
    return "\n".join(str(part.content) for part in pilot.app.screen.query(Static))


def said(pilot) -> str:
    return str(pilot.app.screen.query_one(StatusBar).line)


def keys(pilot) -> str:
    return pilot.app.screen.query_one(KeyBar).render_line(0).text


async def opened(pilot) -> None:
    await until(pilot, lambda: isinstance(pilot.app.screen, RunScreen))
    await until(pilot, lambda: "Help" in keys(pilot))


@pytest.mark.parametrize(
    ("view", "named"),
    [
        (tracked(), {"Stop"}),
        (program(), {"Pause", "Stop"}),
        (program(status="paused", is_live=False), {"Resume", "Stop"}),
        (training(), {"Pause", "Checkpoint", "Stop"}),
        (replace(tracked(), status="failed", is_live=False, trainer_pid=None), set()),
        (program(status="failed", guard_pid=None, trainer_pid=None), {"Retry"}),
    ],
    ids=["tracked", "guarded program", "paused program", "training", "dead loop", "dead program"],
)
async def test_the_key_bar_names_what_works_for_this_kind_of_run(cockpit, source, view, named):
    source.show((view,))
    async with cockpit(run=view).run_test(size=SIZE) as pilot:
        await opened(pilot)
        await until(pilot, lambda: pilot.app.screen._origins, "where it comes from was never read")
        shown = keys(pilot).split()
        assert {"Pause", "Resume", "Checkpoint", "Stop", "Retry"} & set(shown) == named


async def test_no_retry_is_offered_until_it_was_read_where_a_run_comes_from(
    cockpit, source, monkeypatch
):
    may_read, read = threading.Event(), run_origins.origin_of

    def read_late(run_id, path):
        may_read.wait(30)
        return read(run_id, path)

    monkeypatch.setattr(run_origins, "origin_of", read_late)
    view = program(status="failed", guard_pid=None, trainer_pid=None)
    source.show((view,))
    async with cockpit(run=view).run_test(size=SIZE) as pilot:
        try:
            await opened(pilot)
            assert "Retry" not in keys(pilot)
        finally:
            may_read.set()
        await until(pilot, lambda: "Retry" in keys(pilot))


async def test_no_retry_is_offered_where_that_cannot_be_read(cockpit, source, monkeypatch):
    def fail(run_id, path):
        raise OSError("disk error")

    monkeypatch.setattr(run_origins, "origin_of", fail)
    view = program(status="failed", guard_pid=None, trainer_pid=None)
    source.show((view,))
    async with cockpit(run=view).run_test(size=SIZE) as pilot:
        await opened(pilot)
        await until(pilot, lambda: "disk error" in said(pilot))
        assert "Retry" not in keys(pilot)


async def test_an_unguarded_loop_is_stopped_by_a_stronger_signal_each_time_it_is_asked_for(
    cockpit, source, desk
):
    view = tracked()
    source.show((view,))
    async with cockpit(run=view).run_test(size=SIZE) as pilot:
        await opened(pilot)
        for number, words in (
            ("TERM", "It gets SIGTERM (process 4242)"),
            ("INT", "It was sent SIGTERM and has not ended: it gets SIGINT"),
            ("KILL", "which ends it at once: unsaved work is lost"),
        ):
            await pilot.press("x")
            await until(pilot, lambda: isinstance(pilot.app.screen, ConfirmScreen))
            assert words in words_of(pilot)
            await pilot.press("y")
            sent = ("stop", view.id, number)
            await until(pilot, lambda sent=sent: desk.done and desk.done[-1] == sent)
        assert source.commands == []


async def test_a_key_that_does_not_work_says_why_and_what_does(cockpit, source):
    view = tracked()
    source.show((view,))
    async with cockpit(run=view).run_test(size=SIZE) as pilot:
        await opened(pilot)
        await pilot.press("p")
        await until(pilot, lambda: "it has no guard, which pause needs" in said(pilot))
        assert f"(albor guard stop {view.id})" in said(pilot)


async def test_running_a_program_again_names_its_command(cockpit, source, desk):
    view = program(status="failed", guard_pid=None, trainer_pid=None)
    source.show((view,))
    async with cockpit(run=view).run_test(size=SIZE) as pilot:
        await opened(pilot)
        await pilot.press("R")
        await until(pilot, lambda: isinstance(pilot.app.screen, ConfirmScreen))
        assert "runs its command again as a new attempt: python train.py" in words_of(pilot)
        await pilot.press("y")
        await until(pilot, lambda: desk.done == [("resume", view.id)])


async def test_a_dead_program_from_elsewhere_is_not_run_and_it_is_said_why(cockpit, source, desk):
    view = program(status="failed", guard_pid=None, trainer_pid=None, path="/elsewhere/gift")
    source.show((view,))
    async with cockpit(run=view).run_test(size=SIZE) as pilot:
        await opened(pilot)
        assert "Retry" not in keys(pilot)
        await pilot.press("R")
        await until(pilot, lambda: "it was not launched from this home" in said(pilot))
        assert desk.done == []


async def test_a_second_stop_of_a_guarded_run_is_asked_for_as_a_kill(cockpit, source):
    view = training(guard={"state": "stopping"})
    source.show((view,))
    async with cockpit(run=view).run_test(size=SIZE) as pilot:
        await opened(pilot)
        await pilot.press("x")
        await until(pilot, lambda: isinstance(pilot.app.screen, ConfirmScreen))
        assert "it is killed now" in words_of(pilot)
        await pilot.press("y")
        await until(pilot, lambda: source.commands == [(view.id, "stop_now")])


@pytest.mark.parametrize(
    ("key", "sent"),
    [("l", ("resume", "forward=learn")), ("m", ("resume", "forward=mute")), ("y", ("resume",))],
)
async def test_a_run_that_its_step_time_paused_goes_on_as_a_person_decides(
    cockpit, source, key, sent
):
    view = training(status="paused", bricks=(BrickView("forward", 300.0, 100.0),))
    source.show((view,))
    async with cockpit(run=view).run_test(size=SIZE) as pilot:
        await opened(pilot)
        await pilot.press("p")
        await until(pilot, lambda: isinstance(pilot.app.screen, ChoiceScreen))
        assert "forward takes 300ms of 100ms" in words_of(pilot).replace(" ms", "ms")
        await pilot.press(key)
        await until(pilot, lambda: source.commands == [(view.id, *sent)])


async def test_the_palette_offers_each_thing_once_and_only_what_is_possible(cockpit, source):
    view = tracked()
    source.show((view,))
    async with cockpit(run=view).run_test(size=SIZE) as pilot:
        await opened(pilot)
        offered = [*pilot.app.get_system_commands(pilot.app.screen)]
        titles = [command.title for command in offered]
        assert not {"First", "Last", "Focus Next", "Open the command palette"} & {*titles}
        assert not any("\u23ce" in command.help for command in offered)  # "enter", as in the bar
        assert len(titles) == len(set(titles))
        assert any(title.startswith(f"Stop {view.name}: it gets SIGTERM") for title in titles)
        assert not any("heckpoint" in title or "Pause" in title for title in titles)
