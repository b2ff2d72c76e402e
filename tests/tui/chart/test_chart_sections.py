"""Sections of a grid of charts: what is folded, families of layers, the search."""

from __future__ import annotations

import math
import time
from contextlib import asynccontextmanager
from typing import Any

import pytest
from chart_stage import KEYS, Stage
from rich.cells import cell_len
from settled import settled, until
from textual import on

from albor_core.store.rows.series import Series
from albor_tui.widgets.chart.chart import Chart
from albor_tui.widgets.chart_grid.grid import ChartGrid
from albor_tui.widgets.chart_grid.head import ChartHead
from albor_tui.widgets.chart_grid.heading import SectionHeading, heading_facts, heading_line
from albor_tui.widgets.chart_grid.key_search import KeySearch
from albor_tui.widgets.chart_grid.layers import layer_table
from albor_tui.widgets.chart_grid.pages import GridPages
from albor_tui.widgets.chart_grid.sections import Cell, Folds, group_sections, layer_parts
from albor_tui.widgets.distribution.heat_map import HeatMap

PARTS = ("norm", "mean", "std", "rms", "max", "min", "dead", "ratio", "out", "in", "cos", "bias")
DEEP = tuple(f"layer{i:02d}/{part}" for i in range(40) for part in PARTS)
OWN = ("train/loss", "train/acc", "val/loss", "optim/lr", "epoch")
MANY = (*OWN, *DEEP, *(f"env{i}/return" for i in range(17)), "host/cpu_percent", "gpu0/util", "x")
SIZE = (120, 40)


class FoldStage(Stage):
    """Keeps what a grid says of its sections."""

    unfolded: tuple[str, ...] = ()

    @on(ChartGrid.SectionsChanged)
    def keep(self, message: ChartGrid.SectionsChanged) -> None:
        self.unfolded = message.unfolded


@asynccontextmanager
async def sections_stage(size: tuple[int, int] = SIZE, **options: Any):
    app = FoldStage(ChartGrid(), **{"keys": MANY, **options})
    async with app.run_test(size=size) as pilot:
        await until(pilot, lambda: bool(app.asked))
        await settled(pilot)
        yield app, pilot, app.query_one(ChartGrid)


async def press(pilot: Any, *keys: str) -> None:
    for key in keys:
        await pilot.press(key)
        await settled(pilot)


def headings(app: Stage) -> list[str]:
    """The headings on the screen, as they are read."""
    found = sorted((h for h in app.query(SectionHeading) if h.display), key=lambda h: h.region.y)
    return [" ".join(str(heading.render()).strip(" \u258c\u2500").split()[:3]) for heading in found]


def head(app: Stage) -> str:
    return str(app.query_one(ChartHead).render())


def laid(keys: tuple[str, ...], *, unfolded: tuple[str, ...] = ()) -> GridPages:
    pages = GridPages()
    pages.folds = Folds(unfolded)
    pages.replace_keys(keys, ())
    pages.fit(160, 37)
    return pages


def test_hundreds_of_keys_are_a_screen_of_headings_the_machine_last():
    pages = laid(MANY)
    names = [line.heading.name for line in pages.lines if line.heading is not None]
    assert names[:4] == ["train", "val", "optim", "no prefix"]
    assert names[-1] == "machine"
    assert {key for line in pages.lines if line.heading for key in line.heading.keys} == {*MANY}
    assert [cell.name for cell in pages.cells][:5] == [*OWN, "x"][:5]
    assert not any(key in cell.keys for cell in pages.cells for key in DEEP)
    pages.toggle_all()
    pages.fit(160, 37)
    assert not pages.cells
    assert pages.end == len(pages.lines) < 30
    pages.toggle_all()
    pages.fit(160, 37)
    assert {key for cell in pages.cells for key in cell.keys} == {*MANY}


def test_few_keys_have_no_headings_but_that_of_the_machine():
    pages = laid((*OWN, "host/cpu_percent", "program/cpu_percent"))
    assert [cell.name for cell in pages.cells] == [*OWN]
    assert [line.heading.name for line in pages.lines if line.heading] == ["machine"]
    alone = laid(("host/cpu_percent", "program/cpu_percent"))
    assert [cell.name for cell in alone.cells] == ["host/cpu_percent", "program/cpu_percent"]


@pytest.mark.parametrize(
    "key, family, section, row",
    [
        ("layer07/grad_norm", "layer*/grad_norm", "layer", "07"),
        ("layers.7.attn.norm", "layers.*.attn.norm", "layers", "7"),
        ("block_12/x", "block_*/x", "block", "12"),
        ("grads/model.layers.3", "grads/model.layers.*", "grads", "3"),
        ("gpu3/power_w", "gpu*/power_w", "machine", "3"),
    ],
)
def test_a_layer_is_known_by_its_name(key, family, section, row):
    found = layer_parts(key)
    assert found is not None
    assert (found[0], found[2]) == (family, row)
    assert group_sections([key])[0].name == section


@pytest.mark.parametrize("key", ["val/top5", "train/loss", "player1/score", "f1", "layer/x"])
def test_a_number_alone_is_not_a_layer(key):
    assert layer_parts(key) is None


async def test_a_section_opens_and_folds_by_its_heading_and_from_a_chart():
    async with sections_stage() as (app, pilot, grid):
        assert grid.current == "train/loss"
        await press(pilot, "f")
        assert headings(app)[0].startswith("\u25b8 train 2")
        assert "train/loss" not in grid.order
        assert app.focused.facts.section.name == "train"
        assert app.unfolded == ("-train",)
        await press(pilot, "enter")
        assert grid.order[:2] == ("train/loss", "train/acc")
        assert app.unfolded == ("train",)
        first = min((h for h in app.query(SectionHeading) if h.display), key=lambda h: h.region.y)
        await pilot.click(first)
        await settled(pilot)
        assert app.unfolded == ("-train",)
        await press(pilot, "F")
        assert grid.order == ()
        assert f"{len(MANY)} folded" in head(app)
        await press(pilot, "F", "home")
        assert set(grid.order) == {*MANY}


async def test_what_was_folded_is_folded_again_and_the_way_to_a_metric_opens_its_section():
    async with sections_stage() as (_, pilot, grid):
        grid.begin(("env3", "-train", "of another run"))
        await settled(pilot)
        assert "env3/return" in grid.order
        assert "train/loss" not in grid.order
        grid.go_to("layer07/max")
        await until(pilot, lambda: grid.current == "layer07/max" and grid.shown != ())
        assert "layer07/max" in grid.shown
        assert "layer07/min" in grid.order


async def test_a_family_is_one_panel_and_opens_into_its_charts():
    keys = ("train/loss", *(f"layers.{i}.norm" for i in range(12)))
    async with sections_stage(keys=keys) as (app, pilot, grid):
        panel = next(one for one in grid.query(HeatMap) if one.display)
        await until(pilot, lambda: len(panel.data.rows) == 12 and bool(panel.data.values))
        assert panel.data.rows == tuple(map(str, range(12)))
        assert "layers.*.norm" in str(panel.border_title)
        assert "layers.7.norm" in app.asked[-1].keys
        panel.focus()
        await press(pilot, "z")
        await until(pilot, lambda: len(grid.shown) == 12)
        await press(pilot, "escape")
        await until(pilot, lambda: "train/loss" in grid.shown)
        panel.focus()
        await press(pilot, "enter")
        assert grid.current == "layers.0.norm"
        assert isinstance(app.focused, Chart)
        await press(pilot, "f")
        assert app.focused is panel
        assert grid.current is None


def test_a_panel_has_the_means_of_its_columns_and_holds_a_value_until_the_next():
    cell = Cell("l*", ("l0", "l1"), ("0", "1"))
    often = Series("l0", (0, 1, 2, 3, 4, 5, 6, 7), mean=(1.0, 3, 5, 7, 9, math.nan, 1, 3))
    seldom = Series("l1", (1, 5), mean=(2.0, 4.0))
    table = layer_table(cell, [[often], [seldom]], 4, None)
    assert table.values[0][:2] == (2.0, 6.0)
    assert math.isnan(table.values[0][2])
    assert table.values[0][3] == 2.0
    assert table.values[1] == (2.0, 2.0, 4.0, None)
    both = layer_table(cell, [[often, seldom], []], 4, (0.0, 8.0))
    assert both.values[0][0] == 2.0
    assert both.values[1] == (None,) * 4


async def test_the_search_takes_a_regex_and_says_what_is_wrong_with_it():
    async with sections_stage(keys=(*KEYS, "Loss/Total")) as (app, pilot, grid):
        await press(pilot, "slash", *"^(train|val)/")
        assert set(grid.shown) == {"train/loss", "val/loss"}
        await press(pilot, *["backspace"] * 13, *"loss")
        assert "Loss/Total" in grid.shown
        await press(pilot, *["backspace"] * 4, *"Loss")
        assert grid.shown == ("Loss/Total",)
        await press(pilot, "left_parenthesis")
        assert "not a regex" in head(app)
        assert grid.shown == ("Loss/Total",)
        await press(pilot, "escape", "slash", *"zzz")
        said = "\n".join(grid.query(Chart).first().render_line(y).text for y in range(20))
        assert "none of 13 metrics matches zzz" in said


LONG = "z" * 280


@pytest.mark.parametrize(
    "words",
    [
        *("(z+)+y", "(z*)*y", "(z?)*y", "(z|z)*y", "(z|zz)+y", "(?:z+z+)+y", "((z+)?)*y"),
        *("z*z*z*z*z*y", "(z{1,30}){1,30}y", "(z?){200}y", "z?" * 60 + "z" * 60, r"(z+)\1+y"),
        *("(?>(z+)+y)", "(?=(z+)+y)z", "(?<!z)(z+)+y", "(?:(?=z)){400000000}", "(z)(?(1)z|y)+"),
    ],
)
def test_a_regex_that_may_never_end_is_searched_as_text(words):
    begun = time.monotonic()
    search = KeySearch(words)
    assert search.matching([LONG, "loss", f"a{words.upper()}b", "val/zy"]) == (
        {f"a{words.upper()}b"} if words == words.lower() else set()
    )
    assert search.is_text
    assert time.monotonic() - begun < 2


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("^(train|val)/", {"val/loss", "train/loss"}),
        ("^((train|val)/)?loss$", {"loss", "val/loss", "train/loss"}),
        (r"l\d{1,2}/(attn|mlp).*norm", {"l3/attn/norm"}),
        ("l.*s.*s$", {"loss", "val/loss", "train/loss"}),
        ("[a-z]+/[a-z]+", {"val/loss", "train/loss", "l3/attn/norm"}),
        (".*loss.*", {"loss", "val/loss", "train/loss"}),
        ("(?:s){2}", {"loss", "val/loss", "train/loss"}),
        ("^z{280}$|l3", {LONG, "l3/attn/norm"}),
        ("(a|t)+n", {"l3/attn/norm"}),
    ],
)
def test_an_ordinary_regex_stays_one_beside_a_long_key(words, found):
    search = KeySearch(words)
    keys = ["loss", "val/loss", "train/loss", "l3/attn/norm", LONG]
    assert search.matching(keys) == found
    assert not search.is_text


def test_a_search_that_takes_long_over_many_keys_ends_as_text():
    search = KeySearch("z*z*y")
    begun = time.monotonic()
    assert search.matching([LONG + str(n) for n in range(5_000)]) == set()
    assert search.is_text
    assert time.monotonic() - begun < 10
    search.matching(["y"])
    assert search.is_text, "and stays so, with each new key"


async def test_the_head_says_that_a_regex_is_searched_as_text():
    async with sections_stage(keys=(*KEYS, LONG, "a(z+)+yb")) as (app, pilot, grid):
        await press(pilot, "slash", *"(z+)+y")
        assert grid.shown == ("a(z+)+yb",)
        assert "that regex may never end; it is searched as text" in head(app)
        await press(pilot, *["backspace"] * 6, *"loss")
        assert "may never end" not in head(app)


@pytest.mark.parametrize("width", [20, 80])
def test_a_heading_is_as_wide_as_the_screen(width):
    for name in ("\u6ce8\u610f" * 150, "a" * 300, "[red]b[/]", "\x1b[31mc"):
        section = group_sections([f"{name}/{i}" for i in range(4)])[0]
        for is_open in (True, False):
            drawn = heading_line(heading_facts(section, is_open=is_open), width, is_chosen=True)
            assert cell_len(drawn.plain) == width
            assert "\x1b" not in drawn.plain
