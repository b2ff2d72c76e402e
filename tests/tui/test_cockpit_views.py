"""Views: what is shown is named, opened again, and there at the next start."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import incident
import pytest
from settled import until
from textual.widgets import Input

from albor_core.feed.attention.item import AttentionList
from albor_core.feed.workspace.views import View, ViewsFile
from albor_core.store.query.column_names import ColumnNames
from albor_tui import main, web
from albor_tui.app import AlborApp
from albor_tui.look import themes
from albor_tui.model.views import ViewKeeper
from albor_tui.screens.attention import AttentionScreen
from albor_tui.screens.dialogs.views import ViewsDialog
from albor_tui.screens.run import RunScreen
from albor_tui.screens.runs.screen import RunsScreen
from albor_tui.widgets.run_table import RunTable
from albor_tui.widgets.status_bar import StatusBar, TopBar

Cockpit = Callable[..., AlborApp]
SIZE = (120, 40)


@pytest.fixture
def file() -> ViewsFile:
    return ViewsFile()


def keeper(file: ViewsFile, **options: bool) -> ViewKeeper:
    made = ViewKeeper(file, **options)
    made.load()
    return made


async def listed(pilot, count: int = 7) -> RunTable:
    table = pilot.app.screen.query_one(RunTable)
    await until(pilot, lambda: len(table.runs) == count, "the runs never came")
    return table


async def filtered(pilot, words: str, count: int) -> None:
    await pilot.press("slash", *words, "enter")
    await listed(pilot, count)


async def named(pilot, name: str) -> None:
    await pilot.press("V")
    await until(pilot, lambda: isinstance(pilot.app.screen, ViewsDialog))
    pilot.app.screen.query_one(Input).value = name
    await pilot.press("enter")
    await until(pilot, lambda: name in pilot.app.views.named)


def line(pilot) -> str:
    shown = pilot.app.screen.query_one(StatusBar).line
    return "" if shown is None else shown.plain


async def test_what_is_shown_is_named_and_opened_again(cockpit: Cockpit, file: ViewsFile):
    async with cockpit(views=keeper(file)).run_test(size=SIZE) as pilot:
        await listed(pilot)
        await pilot.press("g", "S", "t")
        theme = pilot.app.theme
        await filtered(pilot, "fa", 1)
        await named(pilot, "what [b]failed")
        await pilot.press("escape", "t", "g")
        await listed(pilot)
        await pilot.press("V")
        await until(pilot, lambda: isinstance(pilot.app.screen, ViewsDialog))
        await pilot.press("down", "enter")
        await listed(pilot, 1)
        assert pilot.app.theme == theme and pilot.app.views.current.group == "experiment"
        assert pilot.app.views.current.is_reversed
        assert 'view "what [b]failed"' in pilot.app.screen.query_one(TopBar).render().plain
        await pilot.press("S")
        assert 'failed", changed' in pilot.app.screen.query_one(TopBar).render().plain
    assert file.read().named["what [b]failed"].filter == "fa"


async def test_the_next_start_shows_what_the_last_one_did(cockpit: Cockpit, file: ViewsFile):
    async with cockpit(views=keeper(file)).run_test(size=SIZE) as pilot:
        await listed(pilot)
        await pilot.press("t", "enter")
        await until(pilot, lambda: isinstance(pilot.app.screen, RunScreen))
        await pilot.press("6")
        await until(pilot, lambda: pilot.app.screen.tab == "config")
        await pilot.press("escape", "s", "S")
        await filtered(pilot, "fa", 1)
        theme, shown = pilot.app.theme, pilot.app.views.current
    again = keeper(file)
    assert again.current == shown and shown.sort and shown.is_reversed
    assert themes.NAMES[again.current.theme].name == theme
    async with cockpit(views=again).run_test(size=SIZE) as pilot:
        await listed(pilot, 1)
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(pilot.app.screen, RunScreen))
        assert pilot.app.screen.tab == "config"
    with_target = ViewKeeper(file)
    with_target.load(with_filter=False)
    assert with_target.current == replace(shown, filter="")


async def test_a_filter_that_the_store_answers_begins_with_loading(cockpit: Cockpit, desk):
    views, ask, answered = ViewKeeper(), desk.matching, threading.Event()
    views.update(filter="status:failed lr>0")
    desk.matching = lambda query: (answered.wait(10), ask(query))[1]
    async with cockpit(views=views).run_test(size=SIZE) as pilot:
        screen = pilot.app.screen
        await until(pilot, lambda: bool(screen.rows))
        await pilot.pause(0.1)
        assert "loading" in str(screen.query_one("#empty").render())
        assert not screen.query_one(RunTable).runs
        answered.set()
        await until(pilot, lambda: bool(screen.query_one(RunTable).runs))


async def test_a_damaged_file_is_told_once_and_kept(cockpit: Cockpit, file: ViewsFile):
    file.path.parent.mkdir()
    file.path.write_text("views: [")
    async with cockpit(views=keeper(file)).run_test(size=SIZE) as pilot:
        await listed(pilot)
        await until(pilot, lambda: "views.yaml.bad" in line(pilot))
        assert str(file.path) in line(pilot)
    assert file.path.with_name("views.yaml.bad").read_text() == "views: ["
    assert keeper(file).problem == ""


@pytest.mark.parametrize("is_late", [False, True])
async def test_a_damaged_file_is_told_once_on_the_list_that_comes_forward(
    cockpit: Cockpit, file: ViewsFile, source, is_late: bool
):
    file.path.parent.mkdir()
    file.path.write_text("views: [")
    source.rows, troubles = incident.runs(), incident.attention()
    source.troubles = AttentionList(is_complete=False) if is_late else troubles
    async with cockpit(views=keeper(file)).run_test(size=SIZE) as pilot:
        if is_late:
            await until(pilot, lambda: "views.yaml.bad" in line(pilot))
            source.troubles = troubles
        await until(pilot, lambda: isinstance(pilot.app.screen, AttentionScreen))
        await until(pilot, lambda: bool(pilot.app.screen.query(StatusBar)))
        await until(pilot, lambda: "views.yaml.bad" in line(pilot))
        assert pilot.app.screen.query_one(StatusBar).display
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(pilot.app.screen, RunsScreen))
        await pilot.pause(0.6)
        assert not pilot.app.screen.query_one(StatusBar).display


async def test_a_home_that_may_not_be_read_costs_one_line(cockpit: Cockpit, tmp_path: Path):
    views = keeper(ViewsFile(tmp_path / ("x" * 300) / "views.yaml"))
    views.reload()
    async with cockpit(views=views).run_test(size=SIZE) as pilot:
        await listed(pilot)
        await until(pilot, lambda: "cannot read" in line(pilot))
    assert views.problem.endswith("File name too long")


async def test_a_home_that_cannot_be_written_is_told_once(cockpit: Cockpit, tmp_path: Path):
    (tmp_path / "full").write_text("")
    views = ViewKeeper(ViewsFile(tmp_path / "full" / "views.yaml"))
    async with cockpit(views=views).run_test(size=SIZE) as pilot:
        await listed(pilot)
        await pilot.press("s")
        await until(pilot, lambda: "no folder can be made" in line(pilot))
        pilot.app.screen.query_one(StatusBar).dismiss()
        await pilot.press("s")
        await pilot.pause(0.5)
        assert not pilot.app.screen.query_one(StatusBar).display
        await pilot.press("V", *"mine", "enter")
        await until(pilot, lambda: "cannot save view mine" in line(pilot))


async def test_a_view_is_removed_at_the_second_key(cockpit: Cockpit, file: ViewsFile):
    file.save("one", View(filter="fa"))
    async with cockpit(views=keeper(file)).run_test(size=(80, 24)) as pilot:
        await listed(pilot)
        await pilot.press("V")
        await until(pilot, lambda: isinstance(pilot.app.screen, ViewsDialog))
        await pilot.press("down", "minus")
        assert file.read().named
        await pilot.press("minus")
        await until(pilot, lambda: not file.read().named)


async def test_a_view_is_replaced_at_the_second_enter_and_opened_where_it_is_the_same(
    cockpit: Cockpit, file: ViewsFile
):
    file.save("one", View(filter="fa", columns=("name", "loss"), hidden=("x",)))
    views = keeper(file)
    views.open("one")
    async with cockpit(views=views).run_test(size=(80, 24)) as pilot:
        await listed(pilot, 1)

        async def keys(*pressed: str) -> str:
            await pilot.press(*pressed)
            await until(pilot, lambda: isinstance(pilot.app.screen, ViewsDialog))
            await pilot.pause()
            return str(pilot.app.screen.query_one("#choices").render())

        assert "opens it" in await keys("V")
        told = str(pilot.app.screen.query_one("#question").render())
        assert "1 hidden" in told and "2 columns" in told
        await pilot.press("enter")
        await until(pilot, lambda: not isinstance(pilot.app.screen, ViewsDialog))
        await pilot.press("S")
        assert "asks to replace" in await keys("V")
        assert "again replaces it" in await keys("enter")
        assert not file.read().named["one"].is_reversed
        await pilot.press("enter")
        await until(pilot, lambda: file.read().named["one"].is_reversed)


async def test_who_may_only_look_opens_views_and_writes_none(cockpit: Cockpit, file: ViewsFile):
    file.save("failed", View(filter="fa"))
    before = file.path.read_bytes()
    views = keeper(file, is_read_only=True)
    async with cockpit(views=views, read_only=True).run_test(size=SIZE) as pilot:
        await listed(pilot)
        await pilot.press("V")
        await until(pilot, lambda: isinstance(pilot.app.screen, ViewsDialog))
        assert not pilot.app.screen.query(Input)
        await pilot.press("enter")
        await listed(pilot, 1)
    assert file.path.read_bytes() == before


async def test_a_view_is_opened_from_the_screen_of_a_run(cockpit: Cockpit, file, source):
    file.save("failed", View(filter="fa", theme="light"))
    app = cockpit(views=keeper(file), run=source.rows[0])
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: isinstance(app.screen, RunScreen))
        await pilot.press("ctrl+p")
        await pilot.press(*"viewfai")
        await pilot.pause(0.5)
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, RunsScreen))
        await listed(pilot, 1)
        assert app.theme == "albor-light"


async def test_the_palette_finds_orders_columns_and_groups_of_the_list(cockpit, desk, source):
    desk.names = ColumnNames((("val/[mse]", 40), ("\x1b[31mr2", 3)), (("lr", 40),))
    async with cockpit(views=ViewKeeper()).run_test(size=SIZE) as pilot:
        await listed(pilot)
        views, screen = pilot.app.views, pilot.app.screen

        async def choose(words: str) -> None:
            await pilot.press("ctrl+p")
            await pilot.pause(0.2)
            await pilot.press(*words)
            await pilot.pause(1.0)
            await pilot.press("enter")
            await until(pilot, lambda: pilot.app.screen is screen)

        await choose("sortbyval[")
        await until(pilot, lambda: views.current.sort == "val/[mse]")
        await choose("addcolumnlr")
        await until(pilot, lambda: "lr" in views.current.columns)
        await choose("groupbylr")
        await until(pilot, lambda: views.current.group == "lr")
        titles = [title for title, _, _ in screen.places()]
        assert "Remove column lr" in titles and "Group by nothing" in titles
        assert not {"Sort by val/[mse]", "Group by lr", "Add column lr"} & {*titles}
        titles += [command.title for command in pilot.app.get_system_commands(screen)]
        assert len(titles) == len({*titles}) and "\x1b" not in "".join(titles)


def test_the_command_line_opens_a_view_or_names_the_nearest(file, capsys, monkeypatch):
    file.save("sweep by mse", View(filter="x", theme="light"))
    monkeypatch.setattr(main, "_no_screen", lambda term: None)
    assert main.main(["--view", "sweep by mes"]) == 3
    told = capsys.readouterr().err
    assert str(file.path) in told and "'sweep by mse'" in told
    served: dict[str, object] = {}
    monkeypatch.setattr(web, "serve", lambda **options: served.update(options) or 0)
    assert main.main(["--web", "--view", "sweep by mse"]) == 0
    arguments = served["arguments"]
    assert arguments[:4] == ["--theme", "light", "--view", "sweep by mse"]
    assert not served["allow_control"], "a browser may look"
    views = main.open_views(main.parsed(["--view", "sweep by mse"]))
    assert views.current.filter == "x"
    views.close()
    assert file.read().last.filter == "x"


def test_a_start_without_the_file_reads_no_yaml():
    code = (
        "import sys; from albor_tui import main; v = main.open_views(main.parsed([]));"
        "import json; print(json.dumps([m for m in ('yaml', 'pydantic') if m in sys.modules]))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert json.loads(result.stdout) == [], result.stderr
