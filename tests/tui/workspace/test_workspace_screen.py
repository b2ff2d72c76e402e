"""The workspace on a sweep: what is drawn, hidden, alone, grouped, and what its keys open."""

from __future__ import annotations

import csv
import math
import statistics
import threading

import pytest
from screen_stage import text_of
from settled import settled, until
from sweep import LRS, curves_of, ended, sweep
from textual.widgets import Input

from albor_tui.app import AlborApp
from albor_tui.look import glyphs
from albor_tui.model.source import LiveSource
from albor_tui.model.views import ViewKeeper
from albor_tui.screens.diff import DiffScreen
from albor_tui.screens.run import RunScreen
from albor_tui.screens.workspace.legend import Legend
from albor_tui.screens.workspace.reading import WorkspaceReader
from albor_tui.screens.workspace.screen import WorkspaceScreen
from albor_tui.widgets.chart import plot
from albor_tui.widgets.chart.chart import Chart
from albor_tui.widgets.chart_grid.grid import ChartGrid
from albor_tui.widgets.run_table import RunTable
from albor_tui.widgets.status_bar import TopBar

SEEDS = 2
COUNT = len(LRS) * SEEDS


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    home = tmp_path_factory.mktemp("sweep") / "home"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ALBOR_HOME", str(home))
        sweep(home, seeds=SEEDS)
        ended(home, "other", {"fid": [(10, 9.0), (20, 7.0)]}, {"lr": 0.5}, age_s=60)
    return home


@pytest.fixture
def home(place, monkeypatch):
    monkeypatch.setenv("ALBOR_HOME", str(place))
    return place


def figure_of(lr: float, seed: int) -> float:
    return curves_of(lr, seed)["val/mse"][-1][1]


async def opened(pilot, *keys: str, count: int = COUNT + 1) -> WorkspaceScreen:
    """The workspace, once its legend and its charts show what there is."""
    await until(pilot, lambda: len(pilot.app.screen.query_one(RunTable).runs) == count)
    await pilot.press(*keys, "w")
    await until(pilot, lambda: isinstance(pilot.app.screen, WorkspaceScreen))
    screen = pilot.app.screen
    await until(pilot, lambda: screen.query_one(Legend).rows[0].figure is not None)
    await until(pilot, lambda: any(chart.data.lines for chart in charts(screen).values()))
    await settled(pilot)
    return screen


def charts(screen) -> dict[str, object]:
    return screen.query_one(ChartGrid).charts


def drawn(screen, key: str) -> set[str]:
    return {line.label for line in charts(screen)[key].data.traces if line.label}


def line_of(screen, label: str):
    return next(one for one in screen.query_one(Legend).rows if one.label == label)


async def to_line(pilot, label: str) -> None:
    legend = pilot.app.screen.query_one(Legend)
    legend.cursor = [one.label for one in legend.rows].index(label)
    await pilot.pause()


def app(**options) -> AlborApp:
    return AlborApp(LiveSource(None), **options)


async def test_all_that_is_listed_or_what_is_selected_is_drawn_with_its_figures(home):
    async with app().run_test(size=(160, 45)) as pilot:
        screen = await opened(pilot)
        assert drawn(screen, "val/mse") == {f"mlp-{n:02d}" for n in range(COUNT)}
        for n, lr in enumerate(LRS):
            shown = float(line_of(screen, f"mlp-{n * SEEDS:02d}").figure)
            assert shown == pytest.approx(figure_of(lr, 0), abs=1e-3)
        best = min(
            (figure_of(lr, seed), n * SEEDS + seed)
            for n, lr in enumerate(LRS)
            for seed in range(SEEDS)
        )
        assert line_of(screen, f"mlp-{best[1]:02d}").gap == "best"
        figures = [one.figure for one in screen.query_one(Legend).rows]
        assert figures[:-1] == sorted(figures[:-1]) and figures[-1] == glyphs.current.missing
        assert line_of(screen, "other").gap == glyphs.current.missing
        await pilot.press("escape", "down", "space", "space")
        chosen = {view.name for view in pilot.app.screen.query_one(RunTable).acted_on}
        screen = await opened(pilot)
        assert len(chosen) == 2
        assert {one.label for one in screen.query_one(Legend).rows} == chosen


async def test_hiding_draws_from_what_is_known_and_only_charts_that_change(home, monkeypatch):
    """No question to a store is waited for, and who stays keeps colour and place."""
    may_read = threading.Event()
    may_read.set()
    poll = WorkspaceReader.poll

    def held(reader, question):
        may_read.wait(20)
        return poll(reader, question)

    monkeypatch.setattr(WorkspaceReader, "poll", held)
    async with app().run_test(size=(160, 45)) as pilot:
        screen = await opened(pilot)
        before = {one.label: (one.tone, one.mark) for one in screen.query_one(Legend).rows}
        order = [one.label for one in screen.query_one(Legend).rows]
        may_read.clear()
        jobs = []
        submit = plot.submit
        monkeypatch.setattr(plot, "submit", lambda job: (jobs.append(job), submit(job))[1])
        assert screen.query_one(Legend).current.label == order[0] != "other" == order[-1]
        await to_line(pilot, "other")
        await until(pilot, lambda: bool(screen.state.lifted))
        await settled(pilot)
        jobs.clear()
        await pilot.press("space")
        await settled(pilot)
        assert not charts(screen)["fid"].data.lines
        assert not jobs  # the one chart that it was in has nothing to draw
        await to_line(pilot, "mlp-03")
        await until(pilot, lambda: bool(screen.state.lifted))
        await settled(pilot)
        await pilot.press("space")
        await until(pilot, lambda: "mlp-03" not in drawn(screen, "val/mse"))
        assert drawn(screen, "val/mse") == {f"mlp-{n:02d}" for n in range(COUNT)} - {"mlp-03"}
        rows = screen.query_one(Legend).rows
        assert [one.label for one in rows] == order
        assert {one.label: (one.tone, one.mark) for one in rows} == before
        assert [one.label for one in rows if not one.is_shown] == ["mlp-03", "other"]
        may_read.set()


async def test_solo_on_the_legend_whole_screen_and_pin_on_a_chart(home):
    async with app().run_test(size=(160, 45)) as pilot:
        screen = await opened(pilot)
        await to_line(pilot, "mlp-01")
        await pilot.press("enter")
        assert drawn(screen, "val/mse") == {"mlp-01"}
        await pilot.press("enter")
        assert len(drawn(screen, "val/mse")) == COUNT
        await pilot.press("tab")
        grid = screen.query_one(ChartGrid)
        assert screen.focused in grid.charts.values()
        await pilot.press("right", "space")
        await until(pilot, lambda: grid.order[0] == grid.current)
        first = grid.current
        await pilot.press("enter")
        await until(pilot, lambda: screen.maximized is grid and grid.shown == (first,))
        await pilot.press("escape", "tab")
        assert screen.focused is screen.query_one(Legend)


async def test_the_keys_of_charts_work_from_the_legend_on_all_that_are_looked_at(home):
    async with app().run_test(size=(160, 45)) as pilot:
        screen = await opened(pilot)
        grid = screen.query_one(ChartGrid)
        smoothing = grid.appearance.smoothing
        await pilot.press("full_stop", "y")
        await settled(pilot)
        assert screen.focused is screen.query_one(Legend)
        looks = [chart.look for chart in charts(screen).values()]
        assert {(look.smoothing, look.is_log) for look in looks} == {(smoothing + 1, True)}
        await pilot.press("comma", "comma", "y", "plus")
        await settled(pilot)
        looks = [chart.look for chart in charts(screen).values()]
        assert {(look.smoothing, look.is_log) for look in looks} == {(smoothing - 1, False)}
        assert len({look.window for look in looks} - {None}) == 1
        assert screen.cockpit.views.current.smoothing == smoothing - 1


async def test_groups_have_the_mean_the_deviation_the_count_and_the_worst_state(tmp_path):
    home = tmp_path / "home"
    sweep(home, seeds=SEEDS)
    ended(
        home,
        "bad",
        {"val/mse": [(20, 0.5), (40, math.nan)]},
        {"lr": 3e-3, "wd": 0.1, "seed": 9},
        reason="failed",
        age_s=30,
    )
    async with app().run_test(size=(160, 45)) as pilot:
        await pilot.press("escape")  # what needs a person
        screen = await opened(pilot, count=COUNT + 1)
        await pilot.press("g", "enter")
        legend = screen.query_one(Legend)
        await until(pilot, lambda: screen.state.group == "lr" and legend.rows[0].is_group)
        rows = {one.label: one for one in screen.query_one(Legend).rows}
        assert list(rows) == ["0.0001", "0.0003", "0.001", "0.003"]
        for lr in LRS:
            values = [figure_of(lr, seed) for seed in range(SEEDS)]
            line = rows[f"{lr:g}"]
            assert float(line.figure) == pytest.approx(statistics.mean(values), abs=1e-4)
            spread = float(line.spread.split()[-1])
            assert spread == pytest.approx(statistics.stdev(values), abs=1e-4)
        assert (rows["0.003"].n, rows["0.003"].odd) == (SEEDS + 1, "1 not finite")
        assert "failed" in rows["0.003"].state.plain
        await until(pilot, lambda: "lr 0.001" in drawn(screen, "val/mse"))
        assert " best, lr 0.00" in screen.query_one(ChartGrid).picture.title("val/mse").plain
        await to_line(pilot, "0.001")
        await pilot.press("space")
        await until(pilot, lambda: "lr 0.001" not in drawn(screen, "val/mse"))
        await pilot.press("g", "home", "enter")
        await until(pilot, lambda: len(screen.query_one(Legend).rows) == COUNT + 1)
        hidden = {one.label for one in screen.query_one(Legend).rows if not one.is_shown}
        assert hidden == {"mlp-04", "mlp-05"}


async def test_what_is_hidden_is_kept_and_diff_compares_what_is_shown(home):
    views = ViewKeeper()
    async with app(views=views).run_test(size=(160, 45)) as pilot:
        screen = await opened(pilot)
        await pilot.press("space", "down", "space")
        shown = screen.state.shown
        await pilot.press("d")
        await until(pilot, lambda: isinstance(pilot.app.screen, DiffScreen))
        assert pilot.app.screen.selection.listed == shown
        await pilot.press("escape", "down", "o")
        await until(pilot, lambda: isinstance(pilot.app.screen, RunScreen))
        assert screen.query_one(Legend).current.label in pilot.app.screen.query_one(TopBar).crumbs
    async with app(views=views).run_test(size=(160, 45)) as pilot:
        await until(pilot, lambda: isinstance(pilot.app.screen, WorkspaceScreen))
        again = pilot.app.screen  # the next start shows it so
        await until(pilot, lambda: again.state.shown == shown, "it was not shown as it was left")
        await pilot.press("escape")
        assert views.current.screen == "runs"


async def test_the_metric_is_that_of_the_chart_and_stays_chosen(home):
    views = ViewKeeper()
    async with app(views=views).run_test(size=(160, 45)) as pilot:
        screen = await opened(pilot)
        await pilot.press("tab")
        grid = screen.query_one(ChartGrid)
        while grid.current != "val/r2":
            await pilot.press("right")
        await pilot.press("m")
        await until(pilot, lambda: float(line_of(screen, "mlp-00").figure or 0) > 0.7)
        assert views.metrics["sweep"] == "val/r2"
        best = max(curves_of(lr, s)["val/r2"][-1][1] for lr in LRS for s in range(SEEDS))
        line = screen.query_one(Legend).rows[0]
        assert line.gap == "best"
        assert float(line.figure) == pytest.approx(best, abs=1e-3)


async def written(pilot, chart: Chart, path):
    """The file that E makes of a chart."""
    screen = pilot.app.screen
    screen.set_focus(chart)
    await settled(pilot)
    await pilot.press("E")
    await until(pilot, lambda: pilot.app.screen is not screen)
    pilot.app.screen.query_one(Input).value = str(path)
    await pilot.press("enter")
    await until(pilot, lambda: path.exists() and path.stat().st_size > 0)
    return path.read_text()


async def test_a_picture_of_a_chart_has_every_point_and_the_name_of_its_run(tmp_path):
    points = [(step, 9.5 if step == 1230 else 1 / (1 + step)) for step in range(2001)]
    view = ended(tmp_path / "home", "mlp-3", {"train/mse": points}, {})
    async with app(run=view, tab="charts").run_test(size=(160, 45)) as pilot:
        screen = pilot.app.screen
        found = screen.query(Chart)
        await until(pilot, lambda: any(one.frame and len(one.data.lines) for one in found))
        chart = charts(screen)["train/mse"]
        assert len(chart.data.lines[0].x) < 2001  # the place on the screen is small
        text = await written(pilot, chart, tmp_path / "a.csv")
        rows = [row for row in csv.DictReader(text.splitlines()) if row["part"] == "points"]
        assert [(float(row["step"]), float(row["value"])) for row in rows] == points
        svg = await written(pilot, chart, tmp_path / "a.svg")
        assert "train/mse of mlp-3" in svg


async def test_a_picture_of_groups_has_each_once_with_its_band_and_count(tmp_path):
    sweep(tmp_path / "home", seeds=SEEDS)
    async with app().run_test(size=(160, 45)) as pilot:
        screen = await opened(pilot, count=COUNT)
        await pilot.press("g", "enter")
        await until(pilot, lambda: "lr 0.001" in drawn(screen, "val/mse"))
        chart = charts(screen)["val/mse"]
        rows = list(csv.DictReader((await written(pilot, chart, tmp_path / "b.csv")).splitlines()))
        assert {row["part"] for row in rows} == {"mean"}
        for lr in LRS:
            own = [row for row in rows if row["line"] == f"{lr:g}"]
            pairs = [curves_of(lr, seed)["val/mse"] for seed in range(SEEDS)]
            for row, both in zip(own, zip(*pairs, strict=True), strict=True):
                values = [value for _, value in both]
                mean, spread = statistics.mean(values), statistics.stdev(values)
                assert float(row["step"]) == both[0][0]
                got = [float(row[name]) for name in ("low", "value", "high")]
                assert got == pytest.approx([mean - spread, mean, mean + spread])
        svg = await written(pilot, chart, tmp_path / "b.svg")
        named = [svg.index(f">{lr:g}   mean {glyphs.current.plus_minus} sd, n 2<") for lr in LRS]
        assert named == sorted(named)  # as the legend of the screen has them
        assert f"val/mse of {COUNT} runs by lr" in svg


@pytest.mark.parametrize("size", [(160, 45), (80, 24)], ids=str)
async def test_the_first_frame_says_loading_and_nothing_that_was_not_read(home, monkeypatch, size):
    may_read = threading.Event()
    poll = WorkspaceReader.poll

    def held(reader, question):
        may_read.wait(20)
        return poll(reader, question)

    monkeypatch.setattr(WorkspaceReader, "poll", held)
    async with app().run_test(size=size) as pilot:
        await until(pilot, lambda: len(pilot.app.screen.query_one(RunTable).runs) > COUNT)
        await pilot.press("w")
        await until(pilot, lambda: isinstance(pilot.app.screen, WorkspaceScreen))
        await pilot.pause()
        shown = text_of(pilot.app.screen)
        may_read.set()
    assert "loading" in shown
    for words in ("no metrics", "0 of 0", "lost", "queued", "removed", "best", "without points"):
        assert words not in shown, words
