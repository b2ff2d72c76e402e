"""What an experiment is judged by (`m` on the list and in Diff), and its runs' params (`p`)."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from rich.cells import cell_len
from settled import until

from albor_core.feed.workspace.compare import run_matrix
from albor_core.feed.workspace.views import ViewsFile
from albor_core.run.home.new_run import create_run
from albor_core.run.journal import Journal
from albor_core.store.index.indexer import index_now
from albor_tui.app import AlborApp
from albor_tui.look.figures import apart
from albor_tui.model.source import LiveSource
from albor_tui.model.views import ViewKeeper
from albor_tui.screens.base.metric_choice import MetricRound
from albor_tui.screens.compare import CompareScreen, MatrixTable
from albor_tui.screens.diff import DiffScreen
from albor_tui.widgets.diff_panels import VerdictPanel
from albor_tui.widgets.run_table import RunTable
from albor_tui.widgets.status_bar import StatusBar

SERIES = {"val/mse": (0.5, 0.5, 0.5), "val/r2": (0.4, 0.9, 0.2), "val/mae": (0.3, 0.1, 0.9)}


@pytest.fixture
def sweep(tmp_path):
    """A home with three runs of a sweep that log no loss; its file of settings."""
    for index, name in enumerate("abc"):
        run = create_run(
            tmp_path / "out", name, experiment="sweep", name=name, kind="track", argv=["t.py", name]
        )
        journal, chance = Journal(run.journal, attempt=1), random.Random(name)
        journal.append("p", key="lr", value=10.0**-index)
        for step in range(1, 101):
            values = {key: means[index] + chance.gauss(0, 0.01) for key, means in SERIES.items()}
            journal.metrics(step, values)
        journal.event("run.end", status="completed", reason="completed", code=0)
        journal.close()
        index_now(run)
    return ViewsFile()


def app(file):
    return AlborApp(LiveSource(), views=ViewKeeper(file))


def shown(pilot):
    strips = pilot.app.screen._compositor.render_strips()
    return "\n".join(strip.text for strip in strips)


async def table_of(pilot):
    table = pilot.app.screen.query_one(RunTable)
    await until(pilot, lambda: len(table.runs) == 3 and all(v.metrics for v in table.runs))
    return table


async def test_m_in_diff_judges_by_the_next_metric_and_keeps_it_for_the_experiment(sweep):
    async with app(sweep).run_test(size=(160, 45)) as pilot:
        table = await table_of(pilot)
        await pilot.press("space", "space", "space", "d")
        assert isinstance(pilot.app.screen, DiffScreen)
        panel = pilot.app.screen.query_one(VerdictPanel)
        judged = []
        for _ in range(4):
            await until(pilot, lambda: panel.document is not None)
            judged.append((panel.document["metric"], panel.document["verdicts"][0]["outcome"]))
            await pilot.press("m")
            wanted = pilot.app.views.metrics["sweep"]
            is_new = panel.document is None or panel.document["metric"] == wanted
            assert is_new, "no verdict of another metric stands there meanwhile"
        assert sorted(metric for metric, _ in judged[:3]) == sorted(SERIES)
        assert judged[3] == judged[0], "all in turn, though the choice changes their order"
        assert len({outcome for _, outcome in judged[:3]}) > 1
        mine = pilot.app.views.metrics["sweep"]
        said = str(pilot.app.screen.query_one(StatusBar).line)
        assert f"judged by {mine}" in said
        assert f"m 2 times more goes back to {judged[3][0]}" in said
        await until(pilot, lambda: sweep.read().metrics == {"sweep": mine})
        await pilot.press("escape")
        await until(pilot, lambda: {v.metrics[0].name for v in table.runs} == {mine})
    async with app(sweep).run_test(size=(160, 45)) as pilot:  # and after a restart
        pilot.app.views.load()
        await table_of(pilot)
        await pilot.press("space", "space", "d")
        panel = pilot.app.screen.query_one(VerdictPanel)
        await until(pilot, lambda: panel.document is not None)
        assert panel.document["metric"] == mine


async def test_m_on_the_list_judges_the_experiment_of_the_run_by_the_next_one(sweep):
    async with app(sweep).run_test(size=(120, 40)) as pilot:
        table = await table_of(pilot)
        first = table.runs[0].metrics[0].name
        await pilot.press("m")
        mine = pilot.app.views.metrics["sweep"]
        assert mine != first
        await until(pilot, lambda: {v.metrics[0].name for v in table.runs} == {mine})
        await until(pilot, lambda: f"{mine} " in shown(pilot), "the preview's chart")
        await pilot.press("m", "m")
        assert pilot.app.views.metrics["sweep"] == first


@pytest.mark.parametrize("size", [(160, 45), (80, 24)], ids=str)
async def test_p_in_diff_shows_the_params_of_all_runs_the_best_first(sweep, size):
    async with app(sweep).run_test(size=size) as pilot:
        await table_of(pilot)
        await pilot.press("space", "space", "space", "d")
        panel = pilot.app.screen.query_one(VerdictPanel)
        await until(pilot, lambda: panel.document is not None)
        judged = panel.document["metric"]
        await pilot.press("p")
        await until(pilot, lambda: "1 param differs" in shown(pilot))
        rows = [line for line in shown(pilot).splitlines() if "0.01" in line or judged in line]
        assert judged in rows[0] and "lr" in rows[0]
        table = pilot.app.screen.query_one(MatrixTable)

        def column() -> list[str]:
            return [str(table.draw_line(at, 70)).split()[-1] for at in range(1, 4)]

        assert sorted(column()) == ["0.01", "0.1", "1"]
        await pilot.press("s")
        assert column() == ["0.01", "0.1", "1"], "by lr"
        await pilot.press("escape")
        assert isinstance(pilot.app.screen, DiffScreen)


async def test_params_of_long_names_scroll_by_columns_and_no_line_is_too_long(sweep):
    keys = {f"section.{'x' * 30}.{n}": n for n in range(12)}
    params = {
        f"r{n}": {key: f"{v + n}\x1b[31m\u8a00\u8a9e" for key, v in keys.items()} for n in range(30)
    }
    matrix = run_matrix([*params], params, metric="val/" + "m" * 300, figures={"r1": 0.5})
    matrix = replace(matrix, experiments=("",) * 30)
    async with app(sweep).run_test(size=(80, 24)) as pilot:
        pilot.app.source.matrix = lambda *_: matrix
        await pilot.app.push_screen(CompareScreen([*params], {"r0": "n" * 300}, "m", "min"))
        await until(pilot, lambda: "12 params differ" in shown(pilot))
        assert {cell_len(line) for line in shown(pilot).splitlines()} == {80}
        assert "to the right" in shown(pilot) and "\x1b" not in shown(pilot)
        drawn = [pilot.app.screen.query_one(MatrixTable).draw_line(at, 76) for at in range(9)]
        assert len({line.cell_length for line in drawn}) == 1, "a short name moves no column"
        await pilot.press(*["right"] * 20)
        table = pilot.app.screen.query_one(MatrixTable)
        assert table.hidden[1] == 0 and table.hidden[0] > 0
        assert {cell_len(line) for line in shown(pilot).splitlines()} == {80}


def test_a_round_keeps_its_order_and_begins_anew_at_a_metric_that_is_gone():
    one = MetricRound()
    assert one.after("x") == ""
    assert one.learn(["x", "y"]) == 2
    assert one.learn(["y", "z", "x"]) == 3
    assert [one.after(now) for now in ("x", "y", "z", "gone")] == ["y", "z", "x", "x"]
    assert one.after("x", "another experiment") == ""


@pytest.mark.parametrize(
    ("values", "words", "room", "drawn"),
    [
        (
            [0.1652, 0.1741, 0.1704, 0.1724], ["0.17"] * 4, 8,
            ["0.1652", "0.1741", "0.1704", "0.1724"],
        ),
        ([0.5, 0.25], ["0.50", "0.25"], 8, ["0.50", "0.25"]),
        ([0.17, 12.3, None], ["0.17", "12.3", "-"], 8, ["0.17", "12.30", "-"]),
        ([912345, 912346], ["912k", "912k"], 8, ["912,345", "912,346"]),
        ([1e-7, 1.1e-7, 0.5], ["1e-7", "1e-7", "0.50"], 8, ["1.00e-07", "1.10e-07", "5.00e-01"]),
        ([3.00001, 3.00002], ["3.00", "3.00"], 6, ["3.000", "3.000"]),
        ([None, float("nan")], ["-", "NaN"], 8, ["-", "NaN"]),
        ([0.5, 0.5], ["0.50", "0.50"], 8, ["0.50", "0.50"]),
    ],
)  # fmt: skip
def test_values_beside_each_other_have_as_many_digits_as_tell_them_apart(
    values, words, room, drawn
):
    assert apart(values, words, room) == drawn
