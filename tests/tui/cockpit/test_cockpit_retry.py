"""Starting runs again: asked before, never what is complete or at work, whatever the screen shows.

Through the fake desk, and through the real one on real run directories.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from settled import until
from textual.widgets import Static

from albor_core.feed.view.run_status import RunStatus
from albor_core.run.errors import InUseError, UsageError
from albor_core.run.home.new_run import create_run
from albor_core.run.rundir import RunDir
from albor_tui.app import AlborApp
from albor_tui.model.desk import LiveDesk
from albor_tui.model.source import LiveSource
from albor_tui.screens.dialogs.confirm import ConfirmScreen
from albor_tui.widgets.key_bar import KeyBar
from albor_tui.widgets.run_table import RunTable
from albor_tui.widgets.status_bar import StatusBar

pytestmark = pytest.mark.slow  # in sum; `make check` is under a minute

SIZE = (120, 40)


async def ready(pilot, count: int = 7) -> RunTable:
    table = pilot.app.screen.query_one(RunTable)
    await until(pilot, lambda: len(table.runs) == count and table.has_focus, "the runs never came")
    return table


def said(pilot) -> str:
    return str(pilot.app.screen.query_one(StatusBar).line)


def asked(pilot) -> str:
    assert isinstance(pilot.app.screen, ConfirmScreen)
    return "\n".join(str(part.content) for part in pilot.app.screen.query(Static))


async def select(pilot, table: RunTable, *statuses: str) -> None:
    for status in statuses:
        row = next(i for i, view in enumerate(table.runs) if view.status == status)
        await pilot.press("home", *["down"] * row, "space")


async def go_to(pilot, table: RunTable, status: str) -> None:
    row = next(i for i, view in enumerate(table.runs) if view.status == status)
    await pilot.press("home", *["down"] * row)


async def test_a_dead_run_is_started_again_only_after_a_yes(cockpit, desk):
    async with cockpit().run_test(size=SIZE) as pilot:
        table = await ready(pilot)
        await go_to(pilot, table, "failed")
        run = table.current.id
        await pilot.press("R")
        assert "Retry sweep-lr-3e3 at step 411?" in asked(pilot)
        await pilot.press("n")
        assert desk.done == []
        await pilot.press("R", "y")
        await until(pilot, lambda: desk.done == [("resume", run)])
        await until(pilot, lambda: "retry sweep-lr-3e3: done" in said(pilot))


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ("completed", "cannot retry sweep-lr-1e3: it is complete"),
        ("running", ": it is running"),
    ],
)
async def test_what_is_complete_or_at_work_is_not_started_again(cockpit, desk, status, words):
    async with cockpit().run_test(size=SIZE) as pilot:
        table = await ready(pilot)
        await go_to(pilot, table, status)
        await pilot.press("R")
        await until(pilot, lambda: words in said(pilot))
        assert desk.done == []


async def test_of_many_only_the_dead_ones_are_named_and_started(cockpit, desk):
    async with cockpit().run_test(size=SIZE) as pilot:
        table = await ready(pilot)
        await select(pilot, table, "failed", "completed", "lost", "running")
        await pilot.press("R")
        words = asked(pilot)
        assert "Retry 2 runs?" in words
        assert "  sweep-lr-3e3\n" in words
        assert "  old-baseline" in words
        assert "Left alone: " in words
        assert "sweep-lr-1e3 (it is complete)" in words
        await pilot.press("y")
        await until(pilot, lambda: len(desk.done) == 2)
        started = {run for _, run in desk.done}
        assert started == {"sweep-lr-3e3-0c11fe", "old-baseline-e0d001"}


async def test_one_that_cannot_be_started_keeps_no_other_waiting(cockpit, desk, monkeypatch):
    real = desk.resume

    def resume(run: str) -> str:
        if run.startswith("old-baseline"):
            raise UsageError("no config.resolved.json")
        return real(run)

    monkeypatch.setattr(desk, "resume", resume)
    async with cockpit().run_test(size=SIZE) as pilot:
        table = await ready(pilot)
        await select(pilot, table, "lost", "failed")
        await pilot.press("R", "y")
        await until(
            pilot, lambda: "old-baseline: no config.resolved.json; 1 started" in said(pilot)
        )
        assert desk.done == [("resume", "sweep-lr-3e3-0c11fe")]


# -- the real desk -----------------------------------------------------------------------------


def ended(folder: Path, name: str, reason: str, kind: str = "train") -> RunDir:
    """A run whose last words are there and whose processes are gone."""
    run = create_run(
        folder, f"{name}-0000aa", experiment="retry", name=name, kind=kind, argv=["x"],
        seed=1, config=b"", resolved={}, facts={},
    )  # fmt: skip
    run.exit.parent.mkdir(exist_ok=True)
    words = {"attempt": 1, "code": 0 if reason == "completed" else 1, "reason": reason}
    run.exit.write_text(json.dumps(words))
    return run


@pytest.fixture
def commands(monkeypatch):
    """What the desk runs in a shell, instead of running it."""
    found: list[tuple[object, ...]] = []

    def albor(*command: str, operands: tuple[str, ...] = (), **_: object) -> dict[str, object]:
        found.append((*command, *operands))
        return {}

    monkeypatch.setattr("albor_tui.model.desk.albor", albor)
    return found


def test_the_real_desk_refuses_a_run_that_is_complete(tmp_path, commands):
    run = ended(tmp_path, "done", "completed")
    for reference in (str(run.path), run.id):
        with pytest.raises(UsageError, match="it is complete"):
            LiveDesk().resume(reference)
    assert commands == []


def test_the_real_desk_resumes_a_failed_run(tmp_path, commands):
    run = ended(tmp_path, "broken", "failed")
    LiveDesk().resume(str(run.path))
    assert commands == [("train", "resume", "--detach", str(run.path))]


def test_the_real_desk_refuses_a_run_that_is_at_work(tmp_path, commands, monkeypatch):
    run = ended(tmp_path, "alive", "failed")
    monkeypatch.setattr("albor_tui.model.desk.run_status", lambda _: RunStatus("running", "", 1, 2))
    with pytest.raises(InUseError, match="it is running"):
        LiveDesk().resume(str(run.path))
    assert commands == []


@pytest.mark.parametrize(
    ("kind", "command"), [("train", ("train", "resume")), ("guard", ("guard", "retry"))]
)
def test_the_real_desk_starts_each_kind_of_run_by_the_command_that_can(
    tmp_path, commands, kind, command
):
    run = ended(tmp_path, "broken", "failed", kind)
    LiveDesk().resume(str(run.path))
    assert commands == [(*command, "--detach", str(run.path))]


def test_the_real_desk_does_not_start_what_a_loop_of_its_own_tracked(tmp_path, commands):
    run = ended(tmp_path, "mine", "failed", "track")
    with pytest.raises(UsageError, match="tracked by its own program"):
        LiveDesk().resume(str(run.path))
    assert commands == []


async def test_r_through_the_real_desk_asks_and_leaves_the_complete_run_alone(tmp_path, commands):
    folder = tmp_path / "out"
    ended(folder, "done", "completed")
    broken = ended(folder, "broken", "failed")
    app = AlborApp(LiveSource(folder), desk=LiveDesk())
    app.lookout.somebody_acted()  # else what needs a person comes to the front, at any moment
    async with app.run_test(size=SIZE) as pilot:
        table = await ready(pilot, 2)
        await select(pilot, table, "completed", "failed")
        await pilot.press("R")
        assert "done (it is complete)" in asked(pilot)
        assert commands == []
        await pilot.press("y")
        await until(pilot, lambda: "retry broken: done" in said(pilot))
        assert commands == [("train", "resume", "--detach", str(broken.path))]


async def test_a_run_is_retried_from_its_own_screen(cockpit, source, desk):
    view = next(view for view in source.rows if view.status == "lost")
    async with cockpit(run=view).run_test(size=(120, 36)) as pilot:
        bar = pilot.app.screen.query_one(KeyBar)
        await until(pilot, lambda: "R Retry" in bar.render_line(0).text)
        assert not {"Pause", "Checkpoint", "Stop"} & set(bar.render_line(0).text.split())
        await pilot.press("R")
        assert isinstance(pilot.app.screen, ConfirmScreen)
        await pilot.press("y")
        await until(pilot, lambda: desk.done == [("resume", view.id)])


async def test_the_key_bar_of_a_run_at_work_names_what_can_be_done_to_it(cockpit, source):
    view = next(view for view in source.rows if view.status == "running")
    async with cockpit(run=view).run_test(size=(120, 36)) as pilot:
        bar = pilot.app.screen.query_one(KeyBar)
        await until(pilot, lambda: "p Pause" in bar.render_line(0).text)
        assert "Retry" not in bar.render_line(0).text
        source.show(tuple(replace(v, status="failed") if v is view else v for v in source.rows))
        await until(pilot, lambda: "R Retry" in bar.render_line(0).text)
        assert "Pause" not in bar.render_line(0).text
