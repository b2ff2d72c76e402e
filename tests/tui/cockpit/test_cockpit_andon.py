"""The board of alerts: what is listed, who has seen it, what rules would have said."""

from __future__ import annotations

import math

import fake_desk
import fake_feed
import incident
import pytest
from settled import until
from textual.widgets import Input, Static

from albor_core.feed.attention.item import AttentionList
from albor_core.run.errors import ConfigError, NotFoundError, Problem
from albor_core.run.home.new_run import create_run
from albor_tui.model.desk import LiveDesk
from albor_tui.screens.andon import AndonScreen, coverage
from albor_tui.screens.dialogs.confirm import ConfirmScreen
from albor_tui.screens.run import RunScreen
from albor_tui.widgets.alert_panels import AlertPanel, AlertTable, RulesPanel
from albor_tui.widgets.chart.chart import Chart
from albor_tui.widgets.key_bar import KeyBar
from albor_tui.widgets.status_bar import StatusBar

pytestmark = pytest.mark.slow  # in sum; `make check` is under a minute

SIZE = (120, 36)


async def on_board(pilot, run_id: str = "") -> AlertTable:
    await pilot.app.push_screen(AndonScreen(run_id))
    table = pilot.app.screen.query_one(AlertTable)
    await until(pilot, lambda: bool(table.alerts), "the alerts never came")
    return table


async def test_open_alerts_of_all_runs_come_first_and_o_shows_the_seen_ones(cockpit):
    async with cockpit().run_test(size=SIZE) as pilot:
        table = await on_board(pilot)
        assert [row.acked_by for row in table.alerts] == [None] * 3
        await pilot.press("o")
        assert len(table.alerts) == 4


async def test_each_alert_can_be_acknowledged_not_only_the_worst(cockpit, desk):
    async with cockpit().run_test(size=SIZE) as pilot:
        table = await on_board(pilot)
        yellow = next(i for i, row in enumerate(table.alerts) if row.severity == "warning")
        await pilot.press(*["down"] * yellow)
        wanted = table.current
        await pilot.press("a")
        await until(pilot, lambda: ("ack", wanted.run_id, wanted.id) in desk.done)
        await until(pilot, lambda: wanted.id not in {row.id for row in table.alerts})
        assert len(table.alerts) == 2


async def test_acknowledging_all_asks_first(cockpit, desk):
    async with cockpit().run_test(size=SIZE) as pilot:
        table = await on_board(pilot)
        await pilot.press("A")
        assert isinstance(pilot.app.screen, ConfirmScreen)
        await pilot.press("n")
        assert not [deed for deed in desk.done if deed[0] == "ack"]
        await pilot.press("A", "y")
        await until(pilot, lambda: len([d for d in desk.done if d[0] == "ack"]) == 3)
        await until(pilot, lambda: not table.alerts)
        empty = pilot.app.screen.query_one("#empty", Static)
        await until(pilot, lambda: "o shows acknowledged alerts" in str(empty.content))
        await until(pilot, lambda: pilot.app.screen.focused is None)
        await pilot.press("o")
        await until(pilot, lambda: table.has_focus)  # the arrow keys move in it again


async def test_f_walks_through_the_severities(cockpit):
    async with cockpit().run_test(size=SIZE) as pilot:
        table = await on_board(pilot)
        await pilot.press("f")
        assert {row.severity for row in table.alerts} == {"error"}
        await pilot.press("f")
        assert {row.severity for row in table.alerts} == {"warning"}
        await pilot.press("f")
        assert len(table.alerts) == 3


async def test_rules_are_played_on_the_history_of_the_run_under_the_cursor(cockpit, desk):
    async with cockpit().run_test(size=SIZE) as pilot:
        table = await on_board(pilot)
        panel = pilot.app.screen.query_one(RulesPanel)
        await until(pilot, lambda: panel.document is not None)
        assert ("replay_rules", table.current.run_id, ()) in desk.done
        assert "2 alerts at step 200, 14,312" in str(panel.render())


async def test_a_rule_that_was_typed_is_played_and_a_wrong_one_says_why(cockpit, desk):
    async with cockpit().run_test(size=SIZE) as pilot:
        table = await on_board(pilot)
        await pilot.press("e")
        pilot.app.screen.query_one(Input).value = "loss > 3"
        await pilot.press("enter")
        run = table.current.run_id
        await until(pilot, lambda: ("replay_rules", run, ("loss > 3",)) in desk.done)

        def refuse(run: str, conditions: object) -> dict[str, object]:
            raise ConfigError("bad", problems=(Problem("", "'losss' is not a metric"),))

        desk.replay_rules = refuse
        await pilot.press("e")
        pilot.app.screen.query_one(Input).value = "losss > 3"
        await pilot.press("enter")
        panel = pilot.app.screen.query_one(RulesPanel)
        await until(pilot, lambda: "not a metric" in panel.problem)


async def test_enter_opens_the_run_of_the_alert(cockpit):
    async with cockpit().run_test(size=SIZE) as pilot:
        await on_board(pilot)
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(pilot.app.screen, RunScreen))
        await pilot.press("escape")
        assert isinstance(pilot.app.screen, AndonScreen)


async def test_without_alerts_the_board_says_how_many_active_runs_are_watched(
    cockpit, desk, source
):
    desk.alerts = ()
    source.show((*source.rows, fake_feed.training("loop-1a2b3c", rules_watching=0)))
    source.troubles = AttentionList(not_watched=("loop-1a2b3c",))
    async with cockpit().run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: pilot.app.attention.is_complete)
        await pilot.app.push_screen(AndonScreen())
        empty = pilot.app.screen.query_one("#empty", Static)
        await until(
            pilot, lambda: "no alerts; 3 of 4 active runs are watched" in str(empty.content)
        )
        assert not pilot.app.screen.query_one("#andon-body").display
        bar = pilot.app.screen.query_one(KeyBar)
        await until(pilot, lambda: "Ack" not in str(bar.render()))


@pytest.mark.parametrize(
    ("found", "active", "words", "is_green"),
    [
        (AttentionList(fine=("a", "b")), 2, "no alerts; 2 of 2 active runs are watched", True),
        (
            AttentionList(fine=("a",), not_watched=("b",)),
            2,
            "no alerts; 1 of 2 active runs are watched",
            False,
        ),
        (AttentionList(not_watched=("a",)), 1, "no alerts; 0 of 1 active run is watched", False),
        (AttentionList(fine=("a",), is_complete=False), 1, "no alerts", False),
        (AttentionList(), 0, "no alerts; no run is active", False),
        (
            AttentionList(fine=("a",), tells_only=("a",)),
            1,
            "no alerts; 1 of 1 active run is watched, 1 only told of",
            True,
        ),
    ],
)
def test_the_board_is_green_only_where_every_active_run_is_watched(found, active, words, is_green):
    line = coverage("no alerts", found, active)
    assert str(line) == words
    assert any("$success" in str(span.style) for span in line.spans) is is_green


def test_the_board_is_not_green_beside_a_run_that_died():
    line = coverage("no alerts", incident.attention(), 4)
    assert "5 need you: press !" in str(line)
    assert not any("$success" in str(span.style) for span in line.spans)


async def test_an_alert_that_has_been_seen_is_not_acknowledged_again(cockpit, desk):
    desk.alerts = (fake_desk.ALERTS[2],)
    async with cockpit().run_test(size=(80, 24)) as pilot:
        await pilot.app.push_screen(AndonScreen())
        table = pilot.app.screen.query_one(AlertTable)
        await pilot.press("o")
        await until(pilot, lambda: len(table.alerts) == 1)
        await pilot.press("a")
        assert "are acknowledged" in str(pilot.app.screen.query_one(StatusBar).line)


async def test_the_chart_shows_the_metric_of_the_alert_its_limit_and_where_it_was_crossed(cockpit):
    async with cockpit().run_test(size=SIZE) as pilot:
        table = await on_board(pilot)
        chart = pilot.app.screen.query_one("#alert-chart", Chart)
        await until(pilot, lambda: chart.data.has_points)
        curve, limit = chart.data.traces
        assert curve.y[curve.nearest(table.current.step)] == max(curve.y)
        assert set(limit.y) == {table.current.threshold}
        assert ("warning", table.current.step) in {(m.kind, m.step) for m in chart.data.marks}
        assert "limit 3.00" in str(chart.border_title)
        await pilot.press("down")
        await until(pilot, lambda: "train/loss" in str(chart.border_title))
        await until(pilot, lambda: ("alert", 371) in {(m.kind, m.step) for m in chart.data.marks})


async def test_a_loss_that_is_nan_passed_no_limit(cockpit, desk):
    nan = {"metric": "train/loss", "value": math.nan, "threshold": math.inf}
    desk.alerts = (fake_desk.alert(0, **nan),)
    async with cockpit().run_test(size=SIZE) as pilot:
        await on_board(pilot)
        panel = pilot.app.screen.query_one(AlertPanel)
        await until(pilot, lambda: "NaN" in str(panel.render()))
        chart = pilot.app.screen.query_one("#alert-chart", Chart)
        await until(pilot, lambda: "train/loss" in str(chart.border_title))
        assert "limit" not in str(panel.render()) + str(chart.border_title)
        await pilot.press("e")
        await until(pilot, lambda: bool(pilot.app.screen.query(Input)))
        assert pilot.app.screen.query_one(Input).value == ""


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"metric": None, "threshold": None}, "names no metric"),
        ({"metric": "own/quality"}, "no points"),
    ],
)
async def test_a_curve_that_is_not_there_is_said_to_be(cockpit, desk, changes, words):
    desk.alerts = (fake_desk.alert(0, **changes),)
    async with cockpit().run_test(size=SIZE) as pilot:
        await on_board(pilot)
        chart = pilot.app.screen.query_one("#alert-chart", Chart)
        await until(pilot, lambda: words in chart.data.empty)


async def test_a_run_that_the_store_has_lost_costs_only_the_chart(cockpit, desk):
    def lost(run_id: str) -> None:
        raise NotFoundError("no run of this id")

    desk.find = lost
    async with cockpit().run_test(size=SIZE) as pilot:
        table = await on_board(pilot)
        chart = pilot.app.screen.query_one("#alert-chart", Chart)
        await until(pilot, lambda: chart.data.empty == "no run of this id")
        assert len(table.alerts) == 3


async def test_budgets_stand_beside_the_rules_and_the_alert_says_what_came_of_it(cockpit):
    async with cockpit().run_test(size=(200, 60)) as pilot:
        await on_board(pilot)
        rules = pilot.app.screen.query_one(RulesPanel)
        panel = pilot.app.screen.query_one(AlertPanel)
        await until(pilot, lambda: "2,000,000,000 tokens" in str(rules.render()))
        await until(pilot, lambda: "step 15,280 / 40,000" in str(panel.render()))
        shown = str(panel.render())
        assert "told; training went on" in shown
        command = "albor alerts ack code-125m-3f2a91 gradient_norm-gt-3@1.14312"
        assert command in shown


def test_budgets_of_a_run_are_read_from_its_config_whatever_stands_there(tmp_path):
    def watched(monitoring: object) -> tuple[str, ...]:
        name = f"run-{len(list(tmp_path.iterdir()))}"
        resolved = {"monitoring": monitoring}
        run = create_run(
            tmp_path, name, experiment="e", name="n", kind="train", argv=["x"], resolved=resolved
        )
        return LiveDesk().watched(str(run.path))

    assert watched(
        {"budgets": {"tokens": 1_000_000, "action": "pause"}, "bricks": {"data_ms": 10.0}}
    ) == (
        "1,000,000 tokens -> pause; warns at 90%",
        "brick data above 20 ms (2x its budget of 10 ms) -> pause",
    )
    assert watched({"budgets": {"tokens": None}, "bricks": {"data_ms": None}}) == ()
    assert watched({"budgets": "none", "bricks": ["odd"]}) == ()
    assert watched("nothing") == ()


async def test_the_board_of_one_run_shows_only_its_alerts(cockpit):
    async with cockpit().run_test(size=SIZE) as pilot:
        wanted = fake_desk.ALERTS[1].run_id
        table = await on_board(pilot, wanted)
        assert {row.run_id for row in table.alerts} == {wanted}
