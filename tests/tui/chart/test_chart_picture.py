"""E in a chart: the file has what the chart shows."""

from __future__ import annotations

import csv
import io
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest
from PIL import Image
from screen_stage import at, ready
from screen_stage import counted as counted
from settled import settled, until
from test_chart_keys import chart_alone
from textual.widgets import Input

from albor_core.picture.line_picture import csv_file, svg_file
from albor_tui.screens.dialogs.prompt import PromptScreen
from albor_tui.widgets.chart.chart import Chart
from albor_tui.widgets.chart.data import ChartData, Trace
from albor_tui.widgets.chart.ticks import Range
from albor_tui.widgets.media.chart_picture import ChartSketch, file_stem
from albor_tui.widgets.status_bar import StatusBar

pytestmark = pytest.mark.slow
STEPS = tuple(float(10 * n) for n in range(60))
FALLING = tuple(60.0 / (n + 1) for n in range(60))
DATA = ChartData(
    (
        Trace("val", STEPS, FALLING, label="A", dash=1),
        Trace("main", STEPS[:40], FALLING[:40], label="B", is_noisy=True),
    ),
    is_growing=False,
    names={"A": "A base</text>\x1b[31m"},
)


def chart_picture(chart):
    sketch = ChartSketch.from_chart(chart)
    return None if sketch is None else sketch.picture()


def rows_of(picture):
    return list(csv.DictReader(io.StringIO(csv_file(picture).decode())))


async def test_csv_has_exactly_the_points_in_the_window():
    async with chart_alone(DATA) as (pilot, chart):
        chart.look = replace(chart.look, window=Range(95.0, 204.0), is_log=True)
        await settled(pilot)
        rows = rows_of(chart_picture(chart))
        for name in ("A base</text>\u241b[31m", "B"):
            points = [row for row in rows if row["line"] == name and row["part"] == "points"]
            assert [float(row["step"]) for row in points] == [float(s) for s in range(100, 201, 10)]
            assert [float(row["value"]) for row in points] == list(FALLING[10:21])
        smoothed = [row for row in rows if row["part"] == "smoothed"]
        assert {row["line"] for row in smoothed} == {"B"} and len(smoothed) == 11


async def test_the_picture_names_its_lines_in_dark_colours_and_its_smoothing():
    async with chart_alone(DATA) as (_, chart):
        picture = chart_picture(chart)
        assert picture.x_range == (0.0, 590.0) and "smoothed by 0.95" in picture.note
        named = {line.name: line for line in picture.named}
        assert len({line.colour for line in named.values()}) == 2 and named["B"].dash == ""
        assert all(int(line.colour[1:3], 16) < 0xF0 for line in picture.lines)
        words = [one.text for one in ET.fromstring(svg_file(picture)).iter() if one.text]
        assert "A base</text>\u241b[31m" in words and "B" in words


async def test_nothing_drawn_makes_no_picture():
    async with chart_alone(ChartData(empty="no points")) as (_, chart):
        assert chart_picture(chart) is None


def test_a_name_for_the_file_is_harmless():
    assert file_stem("../val/\u8a00 mse\x1b").startswith("val-mse-")
    assert file_stem("\u8a00\u8a9e" * 150).startswith("chart-")


@pytest.mark.parametrize("tab", ["overview", "charts"])
async def test_e_asks_for_a_name_writes_and_says_where(cockpit, source, tmp_path, monkeypatch, tab):
    monkeypatch.chdir(tmp_path)
    async with cockpit(run=at(source), tab=tab).run_test(size=(160, 45)) as pilot:
        screen = pilot.app.screen
        await until(pilot, lambda: any(one.frame is not None for one in screen.query(Chart)))
        chart = next(one for one in screen.query(Chart) if one.frame is not None)
        screen.set_focus(chart)
        await pilot.pause()

        async def write(name):
            await pilot.press("E")
            await until(pilot, lambda: isinstance(pilot.app.screen, PromptScreen))
            box = pilot.app.screen.query_one(Input)
            assert box.value.endswith(".svg")
            box.value = name or box.value
            await pilot.press("enter")
            await until(pilot, lambda: "picture" in str(screen.query_one(StatusBar).line))

        await write("")
        await until(pilot, lambda: str(tmp_path) in str(screen.query_one(StatusBar).line))
        (made,) = tmp_path.iterdir()
        assert ET.fromstring(made.read_bytes()).tag.endswith("svg")
        await write("x.png")
        await until(pilot, lambda: (tmp_path / "x.png").exists())
        await until(pilot, lambda: "done" in str(screen.query_one(StatusBar).line))
        Image.open(tmp_path / "x.png").verify()
        await write("x.png")
        await until(pilot, lambda: "exists" in str(screen.query_one(StatusBar).line))


@pytest.mark.parametrize("name", ["loss.pdf", "loss"])
async def test_a_name_of_no_format_is_said_in_the_dialog_and_stays(
    cockpit, source, tmp_path, monkeypatch, name
):
    monkeypatch.chdir(tmp_path)
    async with cockpit(run=at(source), tab="charts").run_test(size=(160, 45)) as pilot:
        screen = pilot.app.screen
        await until(pilot, lambda: any(one.frame is not None for one in screen.query(Chart)))
        screen.set_focus(next(one for one in screen.query(Chart) if one.frame is not None))
        await pilot.press("E")
        await until(pilot, lambda: isinstance(pilot.app.screen, PromptScreen))
        dialog = pilot.app.screen
        box, problem = dialog.query_one(Input), dialog.query_one("#problem")
        box.value = name
        await pilot.pause()
        await pilot.press("enter")
        assert pilot.app.screen is dialog and box.value == name
        assert "which format?" in str(problem.render()) and ".svg" in str(problem.render())
        await pilot.press(*[*["backspace"] * 4, *".csv"] if "." in name else [*".csv"])
        assert not problem.display
        await pilot.press("enter")
        await until(pilot, lambda: (tmp_path / "loss.csv").exists())


async def test_a_cockpit_that_only_looks_writes_no_picture(cockpit, source, desk):
    app = cockpit(run=at(source), tab="charts")
    app.is_read_only = True
    async with app.run_test(size=(160, 45)) as pilot:
        await ready(source, "charts")(pilot)
        pilot.app.screen.set_focus(next(iter(pilot.app.screen.query(Chart))))
        await pilot.press("E")
        assert "--allow-control" in str(pilot.app.screen.query_one(StatusBar).line)
        assert desk.done == []
