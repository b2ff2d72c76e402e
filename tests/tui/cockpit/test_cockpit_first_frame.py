"""What the cockpit leaves for later, and what it draws together."""

from __future__ import annotations

import threading

import pytest
from settled import until
from textual.color import Color
from textual.css.stylesheet import Stylesheet

from albor_tui.look import themes
from albor_tui.widgets.chart import plot
from albor_tui.widgets.chart.chart import Chart
from albor_tui.widgets.chart.ticks import Range


def frame_of(chart: Chart) -> Color:
    return chart.styles.border_top[1]


async def test_a_tab_that_was_hidden_while_the_theme_changed_is_shown_in_the_new_one(
    cockpit, source
):
    light = Color.parse(themes.LIGHT.variables["frame"])
    async with cockpit(run=source.rows[0], tab="bricks").run_test(size=(140, 40)) as pilot:
        screen = pilot.app.screen
        await until(pilot, lambda: screen.query_one("#brick-chart", Chart).region.height > 4)
        hidden = screen.query_one("#brick-chart", Chart)
        await pilot.press("1", "t")
        await until(pilot, lambda: frame_of(screen.query_one("#lr", Chart)) == light)
        assert frame_of(hidden) != light  # nobody sees it: it was left as it was
        await pilot.press("3")
        await until(pilot, lambda: frame_of(hidden) == light)


async def test_a_run_that_nobody_can_read_does_not_keep_the_screen_dark(
    cockpit, source, monkeypatch
):
    is_over = threading.Event()
    monkeypatch.setattr(source, "follow", lambda view: is_over.wait(30))
    async with cockpit(run=source.rows[0]).run_test(size=(100, 30)) as pilot:
        await until(pilot, lambda: not pilot.app.screen.is_dark)
        assert not pilot.app.screen.has_picture()
        is_over.set()


def rules_of(sheet: Stylesheet) -> list[tuple[object, str]]:
    """In words: two layouts of a kind are not equal."""
    return [(rule.selector_names, str(rule.styles.get_rules())) for rule in sheet.rules]


async def test_a_theme_parsed_ahead_has_the_rules_that_it_would_have_anyway(cockpit):
    app = cockpit()
    async with app.run_test(size=(100, 30)) as pilot:
        light = themes.variables(themes.LIGHT)
        app.stylesheet.prepare(light)
        before = rules_of(app.stylesheet)
        await pilot.press("t")
        await until(pilot, lambda: rules_of(app.stylesheet) != before)
        plain = Stylesheet(variables=light)
        plain.source = dict(app.stylesheet.source)
        plain.parse()
        assert rules_of(app.stylesheet) == rules_of(plain)


def job(value: float) -> plot.PlotJob:
    line = plot.PlotLine("main", (0.0, 1.0), (value, value))
    return plot.PlotJob((line,), 10, 3, Range(0.0, 1.0), Range(0.0, 1.0))


def test_charts_that_are_asked_for_together_come_back_together(monkeypatch):
    may_draw, counted = threading.Event(), []
    paint = plot.paint

    def slow(asked: plot.PlotJob) -> plot.Canvas:
        may_draw.wait(10)
        counted.append(sum(future.done() for future in futures))
        return paint(asked)

    monkeypatch.setattr(plot, "paint", slow)
    monkeypatch.setattr(plot, "TOGETHER_S", 60.0)
    futures = [plot.submit(job(value)) for value in (0.1, 0.5, 0.9)]
    may_draw.set()
    drawn = [future.result(10) for future in futures]
    assert counted == [0, 0, 0]
    assert len(set(drawn)) == 3


def test_a_chart_that_cannot_be_drawn_says_so_to_whoever_asked(monkeypatch):
    paint = plot.paint
    bad = job(0.2)

    def fail(asked: plot.PlotJob) -> plot.Canvas:
        if asked is bad:
            raise ValueError("no")
        return paint(asked)

    monkeypatch.setattr(plot, "paint", fail)
    first, second = plot.submit(bad), plot.submit(job(0.3))
    assert second.result(10)
    with pytest.raises(ValueError, match="no"):
        first.result(10)
