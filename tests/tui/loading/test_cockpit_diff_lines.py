"""A comparison of many runs: each curve can be told from the others, and every run is named."""

from __future__ import annotations

from dataclasses import replace

import fake_feed
import pytest
from settled import settled, until

from albor_tui.look import glyphs
from albor_tui.look.run_colours import LETTERS, RunStyle
from albor_tui.screens.diff import DiffScreen, overlay
from albor_tui.widgets.chart import plot
from albor_tui.widgets.chart.data import Look
from albor_tui.widgets.chart.lines import project
from albor_tui.widgets.chart.ticks import Range
from albor_tui.widgets.diff_panels import legend, run_style

RUNS = 12


def curves(count: int = RUNS) -> list[dict[str, object]]:
    steps = list(range(0, 100, 5))
    return [{"steps": steps, "mean": [n + 0.01 * s for s in steps]} for n in range(count)]


def document(count: int = RUNS) -> dict[str, object]:
    made = fake_feed.diff_document()
    runs = [{**made["runs"][0], "id": f"r{n}", "name": f"mlp-sweep-{n}"} for n in range(count)]
    return {
        **made,
        "runs": runs,
        "metric": "val/mse",
        "curves": {"val/mse": curves(count)},
        "metrics": {"val/mse": [{"last": 0.1 + n} for n in range(count)]},
        "verdicts": made["verdicts"][:1] * (count - 1),
        "reach": [],
    }


def lines(count: int = RUNS):
    made = document(count)
    return overlay(curves(count), [run_style(made, index) for index in range(count)]).lines


@pytest.mark.parametrize("is_ascii", [False, True])
@pytest.mark.parametrize("width", [40, 100])
def test_each_of_twelve_curves_has_its_letter_on_it(is_ascii, width):
    job = plot.PlotJob(lines(), width, 14, Range(0.0, 100.0), Range(0.0, 13.0), ascii=is_ascii)
    canvas = plot.submit(job).result(10)
    rows = ["".join(run.text for run in row) for row in canvas]
    for index in range(RUNS):
        at = [y for y, row in enumerate(rows) if LETTERS[index] in row]
        wanted = int((1 - (index + 0.5) / 13.0) * 14)  # where that curve lies
        assert at and all(abs(y - wanted) <= 1 for y in at), (LETTERS[index], at, wanted)


def test_few_runs_are_told_apart_by_their_colours_and_have_no_letters(monkeypatch):
    assert {line.letter for line in lines(8)} == {""}
    assert len({line.tone for line in lines(8)}) == 8
    assert len({(line.tone, line.dash) for line in lines(26)}) == 26
    monkeypatch.setattr(glyphs, "current", glyphs.ASCII)  # where a colour may be all there is not
    assert [line.letter for line in lines(2)] == ["B", "A"]


@pytest.mark.parametrize("width", [60, 76, 156])
@pytest.mark.parametrize("count", [2, 12, 26])
def test_the_legend_names_every_run_in_few_rows(count, width):
    rows = legend(document(count), width)
    text = "\n".join(row.plain for row in rows)
    assert [word for word in text.split() if len(word) == 1] == [LETTERS[n] for n in range(count)]
    assert all(row.cell_length <= width + 2 for row in rows)
    assert len(rows) <= 4


def test_names_that_begin_alike_are_cut_so_that_what_differs_stays():
    many = document(26)
    for index, run in enumerate(many["runs"]):
        run["name"] = f"mlp-{index}"
    text = " ".join(row.plain for row in legend(many, 76)) + " "
    assert all(f"{LETTERS[n]} mlp-{n} " in text or f"-{n} " in text.replace(
        glyphs.current.ellipsis, "-") for n in range(26))  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("size", [(160, 45), (80, 24)], ids=str)
async def test_a_diff_of_twelve_runs_shows_all_their_letters_and_names(cockpit, source, size):
    source.document = document()
    names = {f"r{n}": f"mlp-sweep-{n}" for n in range(RUNS)}
    async with cockpit().run_test(size=size) as pilot:
        await pilot.app.push_screen(DiffScreen(tuple(names), names))
        screen = pilot.app.screen
        await until(pilot, lambda: screen.query_one("#legend").display)
        await settled(pilot)
        shown = str(screen.query_one("#legend").render())
        assert all(f"{LETTERS[n]} mlp" in shown for n in range(RUNS))


@pytest.mark.parametrize("count", [2, 12])
def test_a_smoothed_line_keeps_the_letter_of_its_run_and_no_other_line_has_it(count):
    runs = [RunStyle(f"tone{n}", 0, LETTERS[n]) for n in range(count)]
    made = [
        {**curve, "steps": [*range(200)], "mean": [0.1 * n for n in range(200)]}
        for curve in curves(count)
    ]
    traces = [replace(one, letter=one.label) for one in overlay(made, runs, "train/loss").traces]
    assert all(trace.is_noisy for trace in traces)
    drawn = project(traces, Look(), Range(0.0, 199.0), 100)
    letters = [line.letter for line in drawn.lines if line.letter]
    assert sorted(letters) == list(LETTERS[:count])
