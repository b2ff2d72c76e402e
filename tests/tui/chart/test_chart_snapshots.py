"""How charts and still pictures look, cell by cell, on frozen data."""

from __future__ import annotations

import itertools
import math
import random

import pytest
from chart_stage import KEYS, Stage
from settled import settled, until

from albor_tui.look import glyphs
from albor_tui.widgets.chart_grid.grid import ChartGrid
from albor_tui.widgets.distribution.heat_map import HeatData, HeatMap
from albor_tui.widgets.distribution.histogram import Histogram, HistogramData

pytestmark = pytest.mark.slow


def ready(*keys: str):
    async def run(pilot) -> None:
        await until(pilot, lambda: bool(pilot.app.asked))
        await settled(pilot)
        for key in keys:
            await pilot.press(key)
            await settled(pilot)

    return run


@pytest.mark.parametrize("size", [(80, 24), (120, 36), (200, 60)], ids=lambda s: f"{s[0]}x{s[1]}")
def test_a_grid_of_charts(snap_compare, size):
    assert snap_compare(Stage(ChartGrid()), terminal_size=size, run_before=ready())


def test_a_grid_in_daylight_zoomed_with_a_cursor(snap_compare):
    keys = ("plus", "plus", "v", "left", "left", "left", "y")
    app = Stage(ChartGrid(), theme="light")
    assert snap_compare(app, terminal_size=(120, 36), run_before=ready(*keys))


def test_a_grid_in_ascii(snap_compare, monkeypatch):
    monkeypatch.setattr(glyphs, "current", glyphs.ASCII)
    app = Stage(ChartGrid())
    assert snap_compare(app, terminal_size=(80, 24), run_before=ready("down", "space", "v"))


@pytest.mark.parametrize("theme", ["contrast", "colour-blind", "ansi"])
def test_a_grid_in_other_looks(snap_compare, theme):
    app = Stage(ChartGrid(), theme=theme)
    assert snap_compare(app, terminal_size=(80, 24), run_before=ready())


def test_one_metric_over_time_with_a_cursor(snap_compare):
    keys = ("z", "X", "X", "v", "left", "left")
    app = Stage(ChartGrid())
    assert snap_compare(app, terminal_size=(120, 36), run_before=ready(*keys))


def test_a_search(snap_compare):
    app = Stage(ChartGrid())
    run = ready("slash", *"gpu1")
    assert snap_compare(app, terminal_size=(80, 24), run_before=run)


def test_few_metrics_fill_the_room(snap_compare):
    app = Stage(ChartGrid(), keys=KEYS[:3])
    assert snap_compare(app, terminal_size=(80, 24), run_before=ready())


def heat() -> HeatMap:
    rng = random.Random(2)
    found = HeatMap("gradient norm by layer and time")
    values = [
        [0.2 + i / 12 + 0.3 * math.sin(k / 9) ** 2 + rng.random() * 0.1 for k in range(64)]
        for i in range(12)
    ]
    values[4][20], values[7][30] = math.nan, None
    found.set_reactive(
        HeatMap.data,
        HeatData(
            tuple(f"layers.{i}" for i in range(12)),
            tuple(f"{k * 250}" if k % 8 == 0 else "" for k in range(64)),
            tuple(map(tuple, values)),
        ),
    )
    return found


def histogram() -> Histogram:
    rng = random.Random(3)
    values = [rng.gauss(0, 0.02) for _ in range(5000)]
    edges = tuple(-0.08 + i * 0.004 for i in range(41))
    counts = tuple(float(sum(a <= v < b for v in values)) for a, b in itertools.pairwise(edges))
    found = Histogram("weights of layers.3.mlp.up_proj")
    found.set_reactive(Histogram.data, HistogramData(edges, counts, nonfinite=2))
    return found


@pytest.mark.parametrize("look", ["dark", "light", "ansi", "ascii"])
def test_still_pictures(snap_compare, monkeypatch, look):
    if look == "ascii":
        monkeypatch.setattr(glyphs, "current", glyphs.ASCII)
    app = Stage(heat(), histogram(), theme="dark" if look == "ascii" else look)
    for widget in app._widgets:
        widget.styles.height = "1fr"
    assert snap_compare(app, terminal_size=(80, 24))
