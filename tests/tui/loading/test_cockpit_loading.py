"""Cold starts on a disk and a store that do not answer yet: no frame says what was not read.

`tests/tui/cold_starts.py` does the same forty times each on slow ones, over four homes.
"""

from __future__ import annotations

import pytest
from cold_starts import ended, foreign
from fake_feed import training
from settled import until
from slow_reads import FILES, STORE, Gate, badge, braked, claims, recorded, shown_on

from albor_core.feed.view.run_view import RunsView, RunView
from albor_tui.app import AlborApp
from albor_tui.messages import RunsChanged
from albor_tui.model.run_tabs import TABS
from albor_tui.model.source import LiveSource
from albor_tui.screens.runs.screen import _nothing
from albor_tui.widgets.run import panels
from albor_tui.widgets.run.event_list import AttemptTable

pytestmark = pytest.mark.slow
CLOSED = ((FILES, STORE), (FILES,), (STORE,))


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A run that left everything, and one that was imported: nothing negative is true of it all."""
    place = tmp_path_factory.mktemp("cold") / "home"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ALBOR_HOME", str(place))
        runs = ended(place), foreign(place)
    return place, runs


async def drawn(pilot, gate) -> None:
    """Until what can be drawn while readers wait is drawn."""
    await until(pilot, lambda: gate.holds and not getattr(pilot.app.screen, "is_dark", False))
    for _ in range(3):
        await pilot.pause()


@pytest.mark.parametrize("closed", CLOSED, ids=" and ".join)
@pytest.mark.parametrize("size", [(160, 45), (80, 24)], ids=str)
async def test_no_tab_of_a_run_says_what_was_not_read(home, monkeypatch, closed, size):
    place, runs = home
    monkeypatch.setenv("ALBOR_HOME", str(place))
    gate = Gate(*closed)
    app = AlborApp(LiveSource(None), run=RunView(id=runs[0].id, path=str(runs[0].path)))
    frames = recorded(app)
    with braked(place, gate.hold) as brake:
        try:
            async with app.run_test(size=size) as pilot:
                for tab in TABS:
                    await pilot.press(tab.stroke)
                    await drawn(pilot, gate)
                    assert "loading" in shown_on(app.screen), tab.name
                gate.close_only()
        finally:
            gate.close_only()
    assert {(name, found) for name, text in frames for found in claims(text)} == set()
    assert brake.on_main == []  # what is slow is never waited for while drawing


@pytest.mark.parametrize("closed", CLOSED, ids=" and ".join)
async def test_no_list_says_what_was_not_read(home, monkeypatch, closed):
    place, _ = home
    monkeypatch.setenv("ALBOR_HOME", str(place))
    gate = Gate(*closed)
    app = AlborApp(LiveSource(None))
    frames = recorded(app)
    with braked(place, gate.hold):
        try:
            async with app.run_test(size=(160, 45)) as pilot:
                for keys in ((), ("exclamation_mark",), ("escape", "A"), ("escape", "D")):
                    await pilot.press(*keys)
                    await drawn(pilot, gate)
                gate.close_only()
        finally:
            gate.close_only()
    said = {(name, found) for name, text in frames for found in claims(text)}
    # true of this home, and asked of neither: its GPUs, and its register of data
    assert {(name, found) for name, found in said if name != "data" and found != "no gpu"} == set()
    assert {badge(text) for _, text in frames} <= {None}


async def test_what_a_run_lacks_is_said_once_it_was_read(home, monkeypatch):
    place, runs = home
    monkeypatch.setenv("ALBOR_HOME", str(place))
    run = runs[1]
    app = AlborApp(LiveSource(None), run=RunView(id=run.id, path=str(run.path)))
    words = {
        "bricks": "does not time the parts",
        "logs": "No output is recorded",
        "checkpoints": "No checkpoint",
        "samples": "No samples",
        "system": "no figures of its machine were kept",
    }
    async with app.run_test(size=(100, 30)) as pilot:
        for tab in TABS:
            if tab.key in words:
                await pilot.press(tab.stroke)
                told = words[tab.key]
                await until(pilot, lambda told=told: told in shown_on(app.screen), told)


async def test_a_loading_page_has_its_frame_at_once_in_80_columns(home, monkeypatch):
    place, runs = home
    monkeypatch.setenv("ALBOR_HOME", str(place))
    gate = Gate(FILES, STORE)
    app = AlborApp(LiveSource(None), run=RunView(id=runs[0].id, path=str(runs[0].path)))
    with braked(place, gate.hold):
        try:
            async with app.run_test(size=(80, 24)) as pilot:
                for tab in TABS:
                    await pilot.press(tab.stroke)
                    await drawn(pilot, gate)
                    body = shown_on(app.screen).splitlines()[3:-1]
                    text = "\n".join(body)
                    assert "loading" in text and "\u256d" in text, f"{tab.name}\n{text}"
                gate.close_only()
        finally:
            gate.close_only()


def test_a_head_of_what_a_list_knows_claims_no_silence():
    head = panels.Head()
    head.set_reactive(panels.Head.is_read, False)
    view = training(age_s=None, is_live=False, status="lost")
    assert "no news" not in head.show(view, 120, 2).plain
    assert "loading" in head.show(view, 120, 2).plain
    head.set_reactive(panels.Head.is_read, True)
    assert "age of its news unknown" in head.show(view, 120, 2).plain


def test_attempts_that_were_not_read_are_not_said_to_be_none():
    table = AttemptTable(id="attempts")
    assert table.draw(60, 4).plain == "loading"
    table._is_read = True
    assert table.draw(60, 4).plain == "no attempt was recorded"


async def test_the_title_of_an_unread_list_counts_nothing(cockpit, source):
    source.rows = ()
    async with cockpit().run_test(size=(100, 30)) as pilot:
        screen = pilot.app.screen
        screen.show_runs(RunsChanged(RunsView(is_complete=False)))
        await pilot.pause()
        assert "runs loading" in shown_on(screen)
        screen.show_runs(RunsChanged(RunsView()))
        await pilot.pause()
        assert "runs 0" in shown_on(screen)


def test_an_unread_list_of_runs_is_not_an_empty_one():
    assert _nothing(False, "", "").plain == "loading"
    assert _nothing(False, "lr>1", "").plain == "loading"
    assert "No runs here yet" in _nothing(True, "", "").plain
