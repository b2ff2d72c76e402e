"""What the cockpit must not do: load heavy libraries, parse data as markup, leave ASCII."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import fake_feed
import pytest
from cold_starts import ended
from hostile import HOSTILE, check_cells, everything_hostile
from settled import settled, until

import albor_tui
from albor_tui.app import AlborApp
from albor_tui.model.run_tabs import TABS
from albor_tui.screens.run import RunScreen
from albor_tui.widgets.run_table import RunTable

PACKAGE = Path(albor_tui.__file__).parent
SOURCES = sorted(PACKAGE.rglob("*.py"))


def loaded_by(statement: str) -> set[str]:
    code = f"{statement}\nimport sys\nprint(' '.join(sys.modules))"
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    return set(out.stdout.split())


NOT_BEFORE_A_FRAME = {
    *("torch", "numpy", "pyarrow", "triton", "pydantic", "sqlite_utils", "yaml"),
    *("hashlib", "secrets", "psutil", "pynvml", "orjson", "http.client", "email", "sqlite3"),
    *("rich.markdown", "rich.syntax", "pygments", "markdown_it", "tree_sitter"),
}
OF_OTHER_SCREENS = {
    f"albor_tui.screens.{name}"
    for name in (
        *(
            "runs.screen",
            "attention",
            "diff",
            "andon",
            "launch",
            "data.screen",
            "charts.alert_chart",
        ),
        *("dialogs.help", "dialogs.prompt", "dialogs.confirm", "dialogs.alert_choice"),
        *(f"tabs.{tab.key}" for tab in TABS if tab.key != "overview"),
    )
}
FIRST_FRAME = """
import asyncio, sys
import albor_tui.app as app
from albor_core.feed.view.run_view import RunView
from albor_tui.model.source import LiveSource
from albor_tui.widgets.chart.chart import Chart

app._SETTLED_S = 3600  # it loads the rest then

async def main():
    cockpit = app.AlborApp(LiveSource(), run=RunView(id=sys.argv[1], path=sys.argv[2]))
    async with cockpit.run_test(size=(160, 45)):
        while not (cockpit.screen.is_mounted and cockpit.screen.query_one("#loss", Chart).frame):
            await asyncio.sleep(0.01)
        print(" ".join(sys.modules))

asyncio.run(main())
"""


def test_the_cockpit_starts_without_torch_numpy_and_pyarrow():
    modules = loaded_by("import albor_tui.app, albor_tui.main, albor_tui.model.source")
    assert sorted(modules & (NOT_BEFORE_A_FRAME | OF_OTHER_SCREENS)) == []


@pytest.mark.slow
def test_the_first_chart_of_a_run_loads_nothing_of_other_screens(tmp_path, monkeypatch):
    monkeypatch.setenv("ALBOR_HOME", str(tmp_path / "home"))
    run = ended(tmp_path / "home")
    out = subprocess.run(
        [sys.executable, "-c", FIRST_FRAME, run.id, str(run.path)],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    modules = set(out.stdout.split())
    drawn_by = {"hashlib", "sqlite3"}  # the points of the chart
    assert "albor_tui.screens.tabs.overview" in modules
    assert sorted(modules & (OF_OTHER_SCREENS | (NOT_BEFORE_A_FRAME - drawn_by))) == []


def test_documents_never_load_textual(tmp_path):
    code = f"from albor_tui.main import main\nmain(['--once', {str(tmp_path)!r}])"
    modules = loaded_by(
        f"import sys, io\nout, sys.stdout = sys.stdout, io.StringIO()\n{code}\nsys.stdout = out"
    )
    assert not {name for name in modules if name.split(".")[0] in ("textual", "rich")}


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_only_the_glyph_table_leaves_ascii(path):
    if path.name != "glyphs.py":
        assert path.read_bytes().isascii()


def test_the_ascii_look_is_ascii():
    from dataclasses import fields

    from albor_tui.look import glyphs

    for field in fields(glyphs.ASCII):
        assert str(getattr(glyphs.ASCII, field.name)).isascii(), field.name


MARKUP_WIDGETS = {"Static", "Label", "Button", "Option", "DataTable", "Select", "Tooltip"}
TITLES = {"border_title", "border_subtitle", "tooltip", "placeholder"}


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_no_widget_parses_markup(path):
    """Static and its kin say markup=False; titles get Content; nobody calls from_markup."""
    problems = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            name = getattr(node.func, "id", getattr(node.func, "attr", ""))
            said = {k.arg: k.value for k in node.keywords}
            off = isinstance(said.get("markup"), ast.Constant) and said["markup"].value is False
            # a lock's says nothing
            is_toast = name == "notify" and bool(node.args or node.keywords)
            if (name in MARKUP_WIDGETS or is_toast) and not off:
                problems.append(f"{node.lineno}: {name} without markup=False")
            if name in ("from_markup", "from_text"):
                problems.append(f"{node.lineno}: {name}")
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if getattr(target, "attr", "") in TITLES and not _is_content(node.value):
                    problems.append(f"{node.lineno}: {target.attr} is not Content")
    assert not problems


def _is_content(value: ast.expr) -> bool:
    if isinstance(value, ast.IfExp):
        return _is_content(value.body) and _is_content(value.orelse)
    if isinstance(value, ast.Constant):
        return value.value is None
    if not isinstance(value, ast.Call):
        return False
    made_by = ast.unparse(value.func)
    return made_by.startswith("Content") or made_by == "styled.heading"


QUICK = (2, 4)  # markup and a terminal sequence; the rest runs with the slow ones


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(text, id=str(i), marks=[] if i in QUICK else [pytest.mark.slow])
        for i, text in enumerate(HOSTILE)
    ],
)
async def test_hostile_text_is_shown_and_never_obeyed(text):
    view = everything_hostile(text)
    source = fake_feed.FakeSource((view,), view.gpu)
    source.log_lines = (text, text + text)
    source.document["runs"][0]["name"] = text
    source.document["config"] = [{"key": text, "values": [text, text]}]
    app = AlborApp(source)
    async with app.run_test(size=(100, 30)) as pilot:
        await until(pilot, lambda: bool(app.screen.query_one("#table").runs))
        await settled(pilot)
        check_cells(app)
        await pilot.press("enter")
        assert isinstance(app.screen, RunScreen)
        await settled(pilot)
        await pilot.click("#head", offset=(6, 0))
        check_cells(app)
        assert app.is_running


@pytest.mark.slow
async def test_hostile_names_in_a_comparison():
    from albor_tui.screens.diff import DiffScreen

    for text in HOSTILE:
        source = fake_feed.FakeSource(())
        source.document["runs"][0]["name"] = text
        source.document["config"] = [{"key": text, "values": [text, text]}]
        app = AlborApp(source)
        async with app.run_test(size=(100, 30)) as pilot:
            await app.push_screen(DiffScreen(("a", "b"), {"a": text, "b": text}))
            await until(pilot, lambda a=app: a.screen._document is not None)
            await settled(pilot)
            check_cells(app)


async def test_a_list_in_which_nothing_happens_does_nothing(cockpit, source, monkeypatch):
    said: list[object] = []
    announce = RunTable._announce
    monkeypatch.setattr(RunTable, "_announce", lambda table: (said.append(table), announce(table)))
    async with cockpit().run_test(size=(120, 40)) as pilot:
        table = pilot.app.screen.query_one(RunTable)
        await until(pilot, lambda: len(table.runs) == len(source.rows))
        await pilot.pause(0.5)
        said.clear()
        await pilot.pause(0.3)
        assert len(said) < 10, "each thing it says makes it say the next"
