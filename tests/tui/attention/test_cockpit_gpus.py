"""Every GPU of a machine is on the screen, and the odd one is named with its figure and why."""

from __future__ import annotations

from dataclasses import replace

import fake_feed
import incident
import pytest
from screen_stage import text_of
from settled import until

from albor_tui.screens.run import RunScreen
from albor_tui.screens.runs.screen import RunsScreen
from albor_tui.widgets.run.gpu_panel import GpuPanel, GpuStrip
from albor_tui.widgets.run.gpu_table import gpu_marks, gpu_table, worst_words

SIZES = [pytest.param((80, 24), id="80x24"), pytest.param((160, 45), id="160x45")]


def gpus(count: int):
    return tuple(fake_feed.gpu(i, 90.0 + i % 8) for i in range(count))


def words_of(marks) -> list[tuple[int, str]]:
    return [(mark.number, mark.words) for mark in marks]


@pytest.mark.parametrize("count", [8, 16])
@pytest.mark.parametrize("width", [36, 76, 156])
@pytest.mark.parametrize("height", [2, 3, 4, 8])
def test_every_gpu_has_its_load_whatever_the_room(count, width, height):
    lines = [str(line) for line in gpu_table(gpus(count), width, height, ())]
    assert len(lines) <= height
    assert all(len(line) <= width for line in lines)
    loads = [f"{90 + i % 8}" for i in range(count)]
    shown = " ".join(lines).replace("%", " ").split()
    assert all(shown.count(load) >= loads.count(load) for load in loads)


def test_a_slow_one_and_a_hot_one_among_eight_are_named_with_figure_and_reason():
    marks = gpu_marks(incident.eight_gpus())
    assert words_of(marks) == [(7, "88 C, throttled thermal"), (5, "41 %, the others 97 %")]
    assert "gpu 7" in str(worst_words(marks)) and "gpu 5" in str(worst_words(marks))


def test_eight_at_work_have_no_odd_one():
    assert gpu_marks(tuple(fake_feed.gpu(i, 90.0 + i) for i in range(8))) == ()


def test_gpus_that_nobody_uses_are_not_called_slow():
    busy, idle = gpus(5), tuple(fake_feed.gpu(i, 0.0) for i in (5, 6, 7))
    assert gpu_marks((*busy, *idle)) == ()


def test_what_attention_judged_counts_before_the_figures_of_this_moment():
    live = incident.runs()[0]
    ecc = incident.entry(
        "gpu_ecc", live, 1, id="box/gpu_ecc:2", word="gpu 2 memory errors",
        summary="GPU 2: 3 uncorrectable memory errors",
    )  # fmt: skip
    seen = replace(ecc, id="box/gpu_xid:3", kind="gpu_xid", acked_by="me")
    marks = gpu_marks(incident.eight_gpus(), (ecc, seen))
    assert words_of(marks)[0] == (2, "3 uncorrectable memory errors")
    assert {mark.number for mark in marks} == {2, 5, 7}


@pytest.mark.parametrize("size", SIZES)
async def test_the_list_of_runs_names_all_eight_and_the_two_odd_ones(cockpit, source, size):
    source.gpus = incident.eight_gpus()
    async with cockpit().run_test(size=size) as pilot:
        await until(pilot, lambda: len(pilot.app.screen.rows) == 7)
        await until(pilot, lambda: "41" in text_of(pilot.app.screen))
        assert isinstance(pilot.app.screen, RunsScreen)
        strip = pilot.app.screen.query_one(GpuStrip)
        await until(pilot, lambda: strip.content_size.height >= 3)
        shown = text_of(pilot.app.screen)
        assert "gpu 7 88 C, throttled thermal" in shown
        assert "gpu 5 41 %, the others 97 %" in shown
        assert "more GPU" not in shown
        for number in range(8):
            assert f" {number} " in shown.split("runs ")[1] or f"{number} H200" in shown
        assert pilot.app.screen.query_one("#table").size.height >= 4


async def test_sixteen_have_a_place_on_the_smallest_screen(cockpit, source):
    source.gpus = gpus(16)
    async with cockpit().run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: len(pilot.app.screen.rows) == 7)
        await until(pilot, lambda: " 15" in text_of(pilot.app.screen))
        shown = text_of(pilot.app.screen)
        assert "more" not in shown.split("runs 7")[0]
        assert pilot.app.screen.query_one("#table").size.height >= 4


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("tab", ["overview", "system"])
async def test_a_runs_own_screen_names_all_eight_and_the_two_odd_ones(cockpit, source, size, tab):
    live = incident.runs()[0]
    source.rows = (live,)
    async with cockpit(run=live, tab=tab).run_test(size=size) as pilot:
        screen = pilot.app.screen
        assert isinstance(screen, RunScreen)
        await until(pilot, lambda: "41" in text_of(screen))
        await until(pilot, lambda: "gpu 7" in text_of(screen))
        shown = text_of(screen)
        assert "88 C, throttled thermal" in shown
        assert "more GPU" not in shown
        if tab == "overview":
            panel = screen.query_one(GpuPanel)
            lines = str(panel.draw(panel.content_size.width, panel.content_size.height))
            assert all(f" {number}" in lines.splitlines()[0] for number in range(8))
            assert "cpu" in lines  # the host has not given way
        else:
            rows = [line for line in shown.splitlines() if "H200" in line]
            assert [line.split("H200")[0].split()[-1] for line in rows] == list("01234567")
            assert "gpu 5" in shown
