"""Thirty runs whose names are long, wide, markup or escape codes, with and without colour."""

from __future__ import annotations

import random

import fake_feed
import pytest
from rich.cells import cell_len
from settled import settled, until

from albor_core.feed.view.run_view import RunView
from albor_core.store.rows.series import Series
from albor_tui.look import glyphs
from albor_tui.screens.workspace.legend import Legend
from albor_tui.screens.workspace.screen import WorkspaceScreen
from albor_tui.widgets.chart_grid.grid import ChartGrid
from albor_tui.widgets.run_table import RunTable

NAMES = (
    "x" * 300,
    "\u8a00\u8a9e\u30e2\u30c7\u30eb" * 60,
    "\u8a00\u8a9e\u30e2\u30c7\u30eb" * 60 + "2",
    "[bold red]not markup[/]",
    "bell\x07-and-\x1b[31mescape\nand line",
    "rtl \u202eoverride",
    "",
)
COUNT = 30


def curve(run: str) -> Series:
    rng = random.Random(run)
    steps = tuple(float(step) for step in range(0, 200, 10))
    ys = tuple(rng.random() for _ in steps)
    return Series("val/mse", steps, ys, ys, ys, ys, tuple(1 for _ in steps))


class FakeOverlay:
    def keys(self, runs) -> tuple[str, ...]:
        return ("val/mse",)

    def curves(self, runs, keys, **window):
        return {"val/mse": {view.id: curve(view.id) for view in runs}}

    def close(self) -> None:
        pass


class FakeStore:
    """Params of each run, and the figures of a metric."""

    def __init__(self, runs: tuple[RunView, ...]) -> None:
        self.ids = [view.id for view in runs]

    def ask(self, question):
        return question(self)

    def params(self, run: str) -> dict[str, object]:
        return {"lr\x1b[31m [b]": f"\u8a00 {len(run) % 3}" * 40, "seed": run}

    def cells(self, runs, columns):
        values = {run: self.params(run) for run in runs}
        return {
            run: tuple(values[run].get(one.name, 0.5 + place / 1000) for one in columns)
            for place, run in enumerate(runs)
        }

    def version(self) -> int:
        return 1

    def query(self, question) -> tuple[str, ...]:
        return ()


class ManySource(fake_feed.FakeSource):
    def overview(self):
        made = super().overview()
        made.store = FakeStore(self.rows)
        return made

    def overlay(self) -> FakeOverlay:
        return FakeOverlay()


def runs() -> tuple[RunView, ...]:
    return tuple(
        fake_feed.training(f"r{'x' * (n % 3)}-{n}", name=NAMES[n % len(NAMES)], experiment="e")
        for n in range(COUNT)
    )


@pytest.fixture
def source():
    return ManySource(runs())


@pytest.mark.parametrize(
    "size, look",
    [((160, 45), "colour"), ((80, 24), "colour"), ((160, 45), "no colour"), ((80, 24), "ascii")],
)
async def test_each_run_is_told_apart_and_each_line_as_wide_as_the_screen(
    cockpit, monkeypatch, size, look
):
    if look == "ascii":
        monkeypatch.setattr(glyphs, "current", glyphs.ASCII)
    if look == "no colour":
        monkeypatch.setenv("NO_COLOR", "1")
    async with cockpit().run_test(size=size) as pilot:
        await until(pilot, lambda: len(pilot.app.screen.query_one(RunTable).runs) == COUNT)
        await pilot.press("w")
        await until(pilot, lambda: isinstance(pilot.app.screen, WorkspaceScreen))
        chart = pilot.app.screen.query_one(ChartGrid)
        await until(
            pilot, lambda: any(len(one.data.lines) == COUNT for one in chart.charts.values())
        )
        rows = pilot.app.screen.query_one(Legend).rows
        assert len({(one.mark, one.tone if look == "colour" else "") for one in rows}) == COUNT
        for keys in ((), ("g",), ("enter",), ("tab", "v"), ("enter",)):
            await pilot.press(*keys)
            await settled(pilot)
            for strip in pilot.app.screen._compositor.render_strips():
                assert cell_len(strip.text) == size[0]
                assert not any(mark in strip.text for mark in "\x1b\x07\u202e\n")
