"""In the ASCII look no screen draws anything else, lists that scroll and their bars included."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import fake_desk
import fake_feed
import pytest
from settled import settled, until
from textual.screen import Screen
from textual.scrollbar import ScrollBar
from textual.widget import Widget

from albor_core.config.reference import FieldDoc
from albor_core.feed.archive.checkpoints import ShelfView
from albor_core.feed.archive.config_sheet import FieldView
from albor_core.store.rows.rows import EventRow, SampleRow
from albor_tui.look import glyphs
from albor_tui.model.launchpad import ConfigFile
from albor_tui.screens.andon import AndonScreen
from albor_tui.screens.diff import DiffScreen
from albor_tui.screens.launch import LaunchScreen
from albor_tui.screens.run import TABS
from albor_tui.widgets.alert_panels import AlertTable
from albor_tui.widgets.config_form import ConfigForm, ConfigList
from albor_tui.widgets.run_table import RunTable

pytestmark = pytest.mark.slow
SIZE = (100, 30)
MANY = 101  # of whatever a list shows: no bar of so many lines ends where a cell does
SCROLL = {"logs", "config", "checkpoints", "events"}


@pytest.fixture(autouse=True)
def ascii_look(monkeypatch):
    monkeypatch.setattr(glyphs, "current", glyphs.ASCII)


def odd(screen: Screen) -> list[str]:
    """The lines with a character that such a terminal lacks."""
    lines = [strip.text for strip in screen._compositor.render_strips()]
    return [line for line in lines if any(not " " <= c <= "~" for c in line)]


def has_bar(screen: Screen) -> bool:
    """Whether a list that scrolls shows where it is."""
    bars = [w for w in screen.walk_children(Widget) if isinstance(w, Widget)]
    return any(w.show_vertical_scrollbar and w.vertical_scrollbar.region for w in bars)


async def every_place(pilot) -> None:
    """Scroll through; nothing odd at any place of the bar."""
    screen = pilot.app.screen
    for key in ("home", *["down"] * 9, *["pagedown"] * 5, "end"):
        await pilot.press(key)
        await pilot.pause()
        assert odd(screen) == [], key


def many_runs() -> tuple:
    return tuple(fake_feed.training(f"run-{i:03d}-abcdef") for i in range(MANY))


async def test_the_list_of_runs(cockpit, source):
    source.show((*source.rows, *many_runs()))
    async with cockpit().run_test(size=SIZE) as pilot:
        table = pilot.app.screen.query_one(RunTable)
        await until(pilot, lambda: len(table.runs) > MANY)
        await settled(pilot)
        assert has_bar(pilot.app.screen)
        await every_place(pilot)


@pytest.mark.parametrize("tab", [tab.key for tab in TABS])
async def test_each_tab_of_a_run(cockpit, source, tab):
    path = "model.architecture.field"
    fields = tuple(FieldView(f"{path}_{i}", str(i), None, "file", False, i) for i in range(MANY))
    source.config = replace(fake_feed.CONFIG, fields=fields)
    saved = tuple(fake_feed._saved(100 * i) for i in range(1, MANY))
    source.shelf = ShelfView(saved=saved, written=MANY)
    source.samples = tuple(SampleRow(i, fake_feed.WALL, "def f():", "pass") for i in range(MANY))
    events = tuple(EventRow(name="run.note", step=i, wall=fake_feed.WALL) for i in range(MANY))
    source.events = events
    view = replace(source.rows[0], events=events)
    source.show((view, *source.rows[1:]))
    async with cockpit(run=view, tab=tab).run_test(size=SIZE) as pilot:
        screen = pilot.app.screen
        await settled(pilot)
        if tab in SCROLL:
            await until(pilot, lambda: has_bar(screen))
        await every_place(pilot)


async def test_the_comparison(cockpit, source):
    changes = [{"key": f"optimizer.knob_{i}", "values": [i, i + 1]} for i in range(MANY)]
    source.document = {**fake_feed.diff_document(), "config": changes}
    async with cockpit().run_test(size=SIZE) as pilot:
        await pilot.app.push_screen(DiffScreen(("a", "b"), {"a": "one", "b": "two"}))
        await until(pilot, lambda: pilot.app.screen._document is not None)
        await settled(pilot)
        await every_place(pilot)


async def test_the_launch_form_and_its_list(cockpit, launchpad, monkeypatch):
    configs = tuple(ConfigFile(Path(f"configs/{i}.yaml"), "About it.") for i in range(MANY))
    monkeypatch.setattr(launchpad, "configs", lambda: configs)
    fields = tuple(
        FieldDoc(f"model.knob_{i}", "model", "number", "none", "A knob.", False)
        for i in range(MANY)
    )
    monkeypatch.setattr(launchpad, "fields", lambda values: (*fake_desk.FIELDS, *fields))
    async with cockpit().run_test(size=SIZE) as pilot:
        await pilot.app.push_screen(LaunchScreen())
        screen = pilot.app.screen
        await until(pilot, lambda: screen.query_one(ConfigList).count() == MANY)
        await pilot.pause()
        assert has_bar(screen)
        await every_place(pilot)
        await pilot.press("enter")
        await until(pilot, lambda: screen.query_one(ConfigForm).count() > MANY)
        await pilot.pause()
        assert has_bar(screen)
        await every_place(pilot)
        await pilot.press("home", "enter")  # the box for a value
        await pilot.pause()
        assert odd(screen) == []


async def test_the_andon_board(cockpit, desk):
    desk.alerts = tuple(fake_desk.alert(i % 4, id=f"loss-gt-9@1.{i}", step=i) for i in range(MANY))
    async with cockpit().run_test(size=SIZE) as pilot:
        await pilot.app.push_screen(AndonScreen())
        screen = pilot.app.screen
        await until(pilot, lambda: len(screen.query_one(AlertTable).alerts) == MANY)
        await settled(pilot)
        assert has_bar(screen)
        await every_place(pilot)


@pytest.mark.parametrize("tab", ["overview", "charts"])
async def test_the_help(cockpit, source, tab):
    async with cockpit(run=source.rows[0], tab=tab).run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        await pilot.press("question_mark")
        await pilot.pause()
        assert has_bar(pilot.app.screen)
        await every_place(pilot)


def test_the_bar_of_other_looks_is_textuals_own(monkeypatch, cockpit):
    cockpit()
    monkeypatch.setattr(glyphs, "current", glyphs.UNICODE)
    drawn = ScrollBar.renderer.render_bar(size=10, virtual_size=37, window_size=10, position=5)
    assert any(not segment.text.isascii() for segment in drawn.segments)


async def test_the_palette_and_names_from_elsewhere(cockpit, source):
    names = ("\u30c7\u30fc\u30bf", "caf\u00e9", "e\u0301tude")
    views = (replace(fake_feed.training(f"n{i}"), name=name) for i, name in enumerate(names))
    source.show((*source.rows, *views))
    async with cockpit().run_test(size=SIZE) as pilot:
        table = pilot.app.screen.query_one(RunTable)
        await until(pilot, lambda: len(table.runs) == len(source.rows))
        shown = "\n".join(strip.text for strip in pilot.app.screen._compositor.render_strips())
        assert odd(pilot.app.screen) == []
        assert all(name in shown for name in (" ?????? ", " caf? ", " etude "))
        await pilot.press("ctrl+p", "t")
        await settled(pilot)
        assert odd(pilot.app.screen) == []
