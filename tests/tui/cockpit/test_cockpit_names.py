"""Runs that are called the same: told apart in the table, in questions and in comparisons."""

from __future__ import annotations

from dataclasses import replace

import fake_feed
import pytest
from settled import until
from textual.content import Content
from textual.widgets import Static

from albor_core.feed.view.run_view import RunView
from albor_tui.look.naming import name_of, tails_of
from albor_tui.screens.diff import DiffScreen
from albor_tui.widgets.chart.chart import Chart
from albor_tui.widgets.diff_panels import VerdictPanel
from albor_tui.widgets.run_table import RunTable


def runs(*pairs: tuple[str, str]) -> list[RunView]:
    return [RunView(id=run_id, name=name) for run_id, name in pairs]


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        ([("demo-3f2a91", "demo"), ("wide-000001", "wide")], {}),
        ([("demo-3f2a91", "demo"), ("demo-77aa10", "demo")], {"demo-3f2a91": "3f2a91",
                                                             "demo-77aa10": "77aa10"}),
        ([("demo", "demo"), ("demo-77aa10", "demo")], {"demo-77aa10": "77aa10"}),
        ([("a-1", "same"), ("b-1", "same")], {"a-1": "a-1", "b-1": "b-1"}),
        ([("a-x-1", "same"), ("a-y-1", "same")], {"a-x-1": "x-1", "a-y-1": "y-1"}),
    ],
)  # fmt: skip
def test_only_names_that_repeat_get_as_much_of_the_id_as_tells_them_apart(pairs, expected):
    views = runs(*pairs)
    tails = tails_of(views)
    assert tails == expected
    assert len({name_of(view, tails) for view in views}) == len(views)


def twins(source: fake_feed.FakeSource) -> None:
    long = "code-125m-with-a-long-name-for-its-column"
    rows = source.rows
    source.show(
        (
            replace(rows[0], id="code-3f2a91", name=long),
            replace(rows[1], id="code-b81c07", name=long),
            *rows[2:],
        )
    )


@pytest.mark.parametrize("size", [(80, 24), (160, 45)])
async def test_the_table_shows_the_end_of_the_id_whatever_gives_way(cockpit, source, size):
    twins(source)
    async with cockpit().run_test(size=size) as pilot:
        table = pilot.app.screen.query_one(RunTable)
        await until(pilot, lambda: len(table.runs) == 7)
        lines = [table.render_line(row + 1).text for row in range(2)]
        assert any(" 3f2a91 " in line for line in lines)
        assert any(" b81c07 " in line for line in lines)
        assert not any("77aa10" in table.render_line(row + 1).text for row in range(7))


@pytest.mark.slow
async def test_questions_and_what_was_done_name_the_run_apart(cockpit, source):
    twins(source)
    async with cockpit().run_test(size=(120, 40)) as pilot:
        table = pilot.app.screen.query_one(RunTable)
        await until(pilot, lambda: len(table.runs) == 7)
        tail = table.current.id.removeprefix("code-")
        await pilot.press("x")
        words = "".join(str(part.content) for part in pilot.app.screen.query(Static))
        assert f"for-its-column {tail} at step" in words
        await pilot.press("n", "space", "space", "x")
        words = "".join(str(part.content) for part in pilot.app.screen.query(Static))
        assert "for-its-column 3f2a91" in words
        assert "for-its-column b81c07" in words


async def test_a_comparison_names_both_apart_in_crumbs_verdict_and_chart(cockpit, source):
    document = fake_feed.diff_document()
    ids = ["code-3f2a91", "code-b81c07"]
    document["runs"] = [{"id": run, "name": "code"} for run in ids]
    document["verdicts"] = [{**document["verdicts"][0], "run": ids[1], "against": ids[0]}]
    document["reach"] = []
    source.document = document
    async with cockpit().run_test(size=(160, 45)) as pilot:
        names = {run: run.replace("-", " ") for run in ids}
        await pilot.app.push_screen(DiffScreen(tuple(ids), names))
        screen = pilot.app.screen
        await until(pilot, lambda: screen.query_one(VerdictPanel).document is not None)
        assert "B code b81c07 is better than A code 3f2a91" in str(
            screen.query_one(VerdictPanel).render()
        )
        chart = screen.query_one(Chart)
        both = "A code 3f2a91  B code b81c07"  # as it is read: each is coloured
        await until(pilot, lambda: both in Content.from_markup(str(chart.border_title)).plain)
