"""One word for a state wherever it is shown; what is said of a run past its last step."""

from __future__ import annotations

import fake_feed
import incident
import pytest
from screen_stage import text_of
from settled import until

from albor_core.feed.view.run_status import WORDS, shown_word
from albor_core.feed.view.run_view import BrickView, RunsView
from albor_core.run.status import SILENT, STATUSES
from albor_core.store.query.filter import parse_filter
from albor_tui.look import glyphs
from albor_tui.screens.runs.order import chosen
from albor_tui.widgets.base import styled
from albor_tui.widgets.run.brick_table import BrickTable, brick_rows
from albor_tui.widgets.run.panels import Head
from albor_tui.widgets.run.run_preview import RunPreview
from albor_tui.widgets.run.system_lines import logged_lines
from albor_tui.widgets.run_columns import COLUMNS, layout, needs_of
from albor_tui.widgets.status_bar import TopBar


def taken(text: str) -> tuple[object, ...]:
    (term,) = parse_filter(text).terms
    return term.values


@pytest.mark.parametrize("word", WORDS)
def test_a_filter_takes_the_word_that_is_shown(word):
    shown = shown_word(word)
    assert word in taken(f'status:"{shown}"')
    assert word in taken(f"status:{word}")


def test_a_silent_run_is_found_by_silent_and_still_runs():
    assert shown_word("running", 120.0).split()[0] == SILENT
    assert taken("status:silent") == (SILENT,)
    assert SILENT in taken("status:running") and SILENT in taken("status:active")
    assert SILENT not in taken("status:paused")


def test_a_bare_word_of_a_list_finds_the_runs_that_show_it():
    silent = fake_feed.training(id="s", is_silent=True, age_s=90.0)
    dead = fake_feed.training(id="d", status="failed")
    hung = fake_feed.training(id="h", status="stalled")
    for word, one in (("silent", silent), ("died", dead), ("hung", hung)):
        assert chosen((silent, dead, hung), word) == [one]


def test_the_header_says_how_many_of_the_running_are_silent():
    runs = [fake_feed.training(id=str(n), is_silent=n < 2, age_s=90.0) for n in range(6)]
    bar = TopBar("runs")
    bar.set_reactive(TopBar.view, RunsView(rows=tuple(runs)))
    bar.watch_view()
    assert "6 running, 2 silent" in bar._counts(80).plain


@pytest.mark.parametrize("word", WORDS)
def test_list_counter_and_head_say_the_same_word(word):
    view = fake_feed.training(status=word, phase=None, is_live=False)
    shown = shown_word(word)
    assert styled.state_of(view).plain.endswith(shown)
    assert shown in Head().show(view, 160, 2).plain
    (state,) = (c for c in COLUMNS if c.title == "state")
    width = {c.title: w for c, w in layout(100, needs_of([view], {})).shown}["state"]
    assert state.cell(view, width).cell_length <= width


def test_a_run_of_another_machine_ran_then_and_not_now():
    view = fake_feed.training(status="unknown", is_live=False, age_s=180.0, eta_s=None, phase=None)
    assert styled.state_of(view).plain.endswith("running then")
    assert styled.ends(view, 8).plain == "3m ago"
    assert not view.is_active
    assert STATUSES["unknown"].tone == "warning"


@pytest.mark.parametrize(
    ("eta", "words"),
    [(30, "in 30s"), (1565, "in 26m"), (3960, "in 1h06m"), (45_000, "in 12h"), (900_000, "in 10d")],
)
def test_the_column_of_ends_tells_what_is_to_come_from_what_was(eta, words):
    assert styled.ends(fake_feed.training(eta_s=eta), 8).plain == words


def past() -> object:
    return fake_feed.training(
        kind="track", step=3_500_000, max_steps=2_000_000, progress=None, eta_s=None
    )


def test_a_run_past_its_end_says_so_and_promises_no_end():
    view = past()
    head = Head().show(view, 120, 2).plain
    assert "step 3,500,000, past its 2,000,000" in head
    assert "eta" not in head and "100" not in head and "done" not in head
    assert "past its 2,000,000" in RunPreview().show(view, 60, 12).plain
    assert "in 0s" not in styled.ends(view, 8).plain


def test_figures_that_do_not_move_are_no_full_bars():
    gib = float(1 << 30)
    steady = [63 * gib] * 30
    moving = [10.0 + n for n in range(30)]
    lines = logged_lines(
        {"host/memory_available_bytes": steady, "program/rss_bytes": moving}, 120, (0.0, 5_000.0)
    )
    text = "\n".join(line.plain for line in lines)
    (flat,) = (line for line in text.splitlines() if line.startswith("memory left"))
    assert "steady" in flat and "\u2588" not in flat
    (rising,) = (line for line in text.splitlines() if line.startswith("memory  "))
    assert "10 B to 39 B" in rising and "\u2588" in rising
    assert "step 0" in text.splitlines()[-1] and text.splitlines()[-1].endswith("5,000")


def test_the_past_of_a_figure_is_all_that_its_axis_says_also_where_there_is_less_room():
    rising = [float(n) for n in range(120)]
    lines = logged_lines({"program/rss_bytes": rising}, 80, (0.0, 600.0), "seconds")
    past, axis = lines[1].plain[48:], lines[-1].plain[48:]
    assert len(past) == len(axis) == 32 and axis.split() == ["second", "0", "600"]
    assert past[0] == glyphs.UNICODE.spark[0] and past[-1] == glyphs.UNICODE.spark[-1]


def test_a_bar_against_no_budget_is_not_drawn():
    table = BrickTable(id="brick-table")
    rows = brick_rows([BrickView("forward", 10.0, 20.0), BrickView("other", 5.0)], {}, ())
    table.set_reactive(BrickTable.rows, rows)
    drawn = {row.name: table.draw_line(n, 100).plain for n, row in enumerate(rows, 1)}
    assert "\u2501" in drawn["forward"] and "\u2501" not in drawn["other"]


@pytest.mark.slow
async def test_the_palette_finds_metrics_and_tabs_of_the_run_that_is_shown(cockpit, source):
    async with cockpit(run=source.rows[0]).run_test(size=(140, 40)) as pilot:
        screen = pilot.app.screen
        await until(pilot, lambda: "val/loss" in screen.page.metrics())
        found = {title: act for title, _, act in screen.places()}
        assert {"Tab: Charts", "Tab: Card", "Metric: val/loss"} <= found.keys()
        await found["Metric: val/loss"]()
        await until(pilot, lambda: screen.tab == "charts")
        grid = screen.query_one("#chart-grid")
        await until(pilot, lambda: grid.current == "val/loss")


@pytest.mark.slow
async def test_a_read_only_cockpit_offers_no_key_in_the_rows_of_attention(cockpit, source):
    source.rows, source.troubles = incident.runs(), incident.attention()
    async with cockpit(read_only=True).run_test(size=(160, 45)) as pilot:
        await pilot.press("exclamation_mark")
        screen = pilot.app.screen
        await until(pilot, lambda: bool(screen.query_one("#attention-table").items))
        for word in ("R retry", "x stop", "a seen", "helps"):
            assert word not in text_of(screen)
