"""What a workspace knows of its runs when they die, are renamed, removed, or count x otherwise."""

from __future__ import annotations

import math
from dataclasses import replace

from albor_core.feed.view.run_view import RunsView, RunView
from albor_core.feed.workspace.bands import curve_band
from albor_core.store.rows.series import Series
from albor_tui.look.run_colours import RunColours
from albor_tui.model.workspace import Workspace
from albor_tui.screens.workspace.lines import legend_of_runs
from albor_tui.screens.workspace.marks import marks_of_runs
from albor_tui.screens.workspace.notes import about_x
from albor_tui.screens.workspace.picture import LineCache, OverlayPicture, short_labels
from albor_tui.screens.workspace.reading import (
    CurvesWindow,
    WorkspaceQuestion,
    WorkspaceReader,
    param_choices,
)
from albor_tui.widgets.chart.curves import single_chart
from albor_tui.widgets.chart.data import Look
from albor_tui.widgets.chart.head import chart_head
from albor_tui.widgets.chart.ticks import Range


def series(key: str, points: int = 4, axis: str = "step", last: float = 1.0) -> Series:
    steps = tuple(float(i) for i in range(points))
    ys = tuple(last for _ in steps)
    return Series(key, steps, ys, ys, ys, ys, tuple(1 for _ in steps), axis=axis)


class FakeRuns:
    """A source of rows and curves that a test changes between two polls."""

    def __init__(self, *rows: RunView) -> None:
        self.rows, self.is_complete = rows, True
        self.found = {"val/mse": {row.id: series("val/mse") for row in rows}}
        self.store = self

    def overview(self) -> FakeRuns:
        return self

    def overlay(self) -> FakeRuns:
        return self

    def close(self) -> None:
        pass

    def poll(self, *, visible, wanted) -> RunsView:
        assert visible == wanted
        return RunsView(rows=self.rows, is_complete=self.is_complete)

    def keys(self, runs) -> tuple[str, ...]:
        return tuple(self.found)

    def curves(self, runs, keys, *, lo, hi, points):
        return {key: self.found[key] for key in keys if key in self.found}

    def ask(self, question):
        """Of a store that is not there yet."""


A = RunView(id="a", name="first", experiment="e", path="/a", status="running", is_live=True)
B = RunView(id="b", name="second", experiment="e", path="/b", status="running", is_live=True)
ASKED = WorkspaceQuestion("val/mse", CurvesWindow(("val/mse",)))


def test_a_run_that_dies_is_renamed_or_removed_stays_in_its_place_with_its_colour():
    source = FakeRuns(A, B)
    reader, colours = WorkspaceReader(source, [A, B]), RunColours()
    before = colours.styles(reader.poll(ASKED).views)
    source.rows = (replace(B, status="failed", is_live=False, name="renamed"),)
    facts = reader.poll(ASKED)
    assert [view.id for view in facts.views] == ["a", "b"]
    marks = marks_of_runs(colours.styles(facts.views), has_colour=True)
    names = {view.id: view.name for view in facts.views}
    lines = legend_of_runs(Workspace.begin(["a", "b"]), facts, names, marks)
    assert [(one.label, one.state.plain[2:]) for one in lines] == [
        ("first", "removed"),
        ("renamed", "failed"),
    ]
    newcomer = RunView(id="c", name="third", experiment="e")
    after = colours.styles([*facts.views, newcomer])
    assert {run: after[run] for run in before} == before
    assert after["c"].tone not in {style.tone for style in before.values()}


def test_a_run_that_was_not_found_yet_keeps_what_the_list_knew_of_it():
    source = FakeRuns()
    source.is_complete = False
    reader = WorkspaceReader(source, [A])
    assert reader.poll(ASKED).views == (A,)
    source.rows = (replace(A, status="loading"),)
    assert reader.poll(ASKED).views[0].status == "running"


def test_without_news_the_facts_are_the_same_object_and_bands_are_made_once():
    source = FakeRuns(A, B)
    reader = WorkspaceReader(source, [A, B])
    asked = replace(ASKED, groups=(("0.1", ("a", "b")),))
    first = reader.poll(asked)
    assert first.bands["val/mse"]["0.1"].n == (2, 2, 2, 2)
    assert reader.poll(asked) is first
    source.found = {"val/mse": {**source.found["val/mse"], "b": series("val/mse", last=3.0)}}
    assert reader.poll(asked).bands["val/mse"]["0.1"].mean[0] == 2.0


def test_params_by_which_runs_differ_are_offered_and_names_of_one_value_are_one():
    params = {
        "a": {"lr": 1e-3, "wd": 0.1, "seed": 1, "layers": [1, 2]},
        "b": {"lr": "1e-3", "wd": 0.1, "seed": 2, "layers": [1, 2]},
        "c": {"lr": 0.01, "wd": 0.1, "seed": 1},
    }
    found = {one.key: set(one.labels) for one in param_choices(params, ["a", "b", "c"])}
    assert found == {
        "lr": {"0.001", "0.01"},
        "seed": {"1", "2"},
        "layers": {"[1, 2]", "missing"},
    }


def test_runs_whose_x_differ_are_drawn_whole_and_it_is_said():
    curves = {
        "val/mse": {
            "long": series("val/mse", 3_000),
            "short": series("val/mse", 20),
            "clock": series("val/mse", 50, axis="seconds"),
        }
    }
    said = about_x(curves, ["long", "short", "clock", "silent"], {"silent": "ppo-1"})
    assert "x differs: 2 by step, 1 by seconds" in said
    assert "ppo-1 without points here" in said
    assert "2 runs without points here" in about_x(curves, ["long", "silent", "other"], {})
    assert "from 20 to 3,000 points a run, all drawn" in said
    assert about_x(curves, ["long"], {}) == ""
    views = [RunView(id=run, name=run, experiment="e") for run in ("long", "short", "clock")]
    cache = LineCache()
    cache.learn(views, curves)
    marks = marks_of_runs(RunColours().styles(views), has_colour=True)
    members = {view.id: (view.id,) for view in views}
    picture = OverlayPicture(cache, ("val/mse",), curves=curves, members=members, marks=marks)
    data = picture.chart("val/mse")
    assert data.extent == (0.0, 2_999.0)
    assert sorted(len(line.x) for line in data.lines) == [20, 50, 3_000]
    assert picture.chart("val/mse") == data


def test_the_title_has_the_value_logged_last_and_not_the_mean_of_its_bucket():
    fell = Series(
        "val/mse",
        (0, 100),
        (0.4, 0.05),
        (0.9, 0.5),
        (0.6, 0.3),
        (0.4, 0.06),
        (100, 50),
        is_raw=False,
    )
    curves = {key: {"big": fell, "small": series(key, 20, last=0.1)} for key in ("val/mse", "mse")}
    views = [RunView(id=run, name=run, experiment="e") for run in ("big", "small")]
    marks = marks_of_runs(RunColours().styles(views), has_colour=True)
    picture = OverlayPicture(
        LineCache(),
        curves=curves,
        members={view.id: (view.id,) for view in views},
        marks=marks,
        metric="mse",
        figures={"big": 0.07, "small": 0.1},
    )
    assert picture.title("val/mse").plain == "val/mse  0.06 best, big"
    assert replace(picture, lifted="big").title("val/mse").plain == "val/mse  0.06 big"
    assert picture.title("mse").plain == "mse  0.07 best, big"  # as the legend has it
    one = single_chart(views[0], fell, "main")
    assert chart_head(one, "val/mse").plain == "val/mse  0.06"
    bands = {"val/mse": {"all": curve_band(tuple(curves["val/mse"].values()))}}
    members = {"all": ("big", "small")}
    grouped = replace(
        picture, bands=bands, members=members, marks={"all": marks["big"]}, _charts={}
    )
    assert replace(grouped, lifted="all").title("val/mse").plain == "val/mse  0.08 all"


def test_a_chart_goes_as_far_as_its_own_lines_also_once_it_was_zoomed():
    curves = {"loss": {"ppo": series("loss", 3_000)}, "val/mse": {"a": series("val/mse", 20)}}
    views, cache = [RunView(id=run, name=run, experiment="e") for run in ("ppo", "a")], LineCache()
    marks = marks_of_runs(RunColours().styles(views), has_colour=True)
    members = {view.id: (view.id,) for view in views}
    for shown in (curves, {"loss": {"ppo": series("loss", 5)}, "val/mse": {}}):
        cache.learn(views, shown)
        picture = OverlayPicture(
            cache,
            tuple(shown),
            curves=shown,
            members=members,
            marks=marks,
            growing=frozenset(["ppo"]),
        )
        assert picture.chart("loss").extent == (0.0, 2_999.0)
        assert picture.chart("val/mse").extent == (0.0, 19.0)
        assert picture.chart("loss").is_growing and not picture.chart("val/mse").is_growing
    assert picture.chart("val/mse").empty == "no points at these steps"
    ppo = Look(window=Range(2_000.0, 2_400.0))
    assert ppo.panned(Range(0.0, 19.0), 0.25).window == Range(0.0, 19.0)


def test_the_best_run_is_first_and_those_without_a_figure_last():
    state = Workspace.begin(["odd", "none", "b", "a"])
    figures = {"odd": math.nan, "b": 2.0, "a": 1.0}
    assert state.ordered_by(figures, "min").listed == ("a", "b", "odd", "none")
    assert state.ordered_by(figures, "max").listed == ("b", "a", "odd", "none")


def test_names_that_begin_and_end_alike_are_told_apart_beside_their_values():
    names = {str(n): f"{'x' * 150}{n}{'y' * 150}" for n in range(3)}
    assert len(set(short_labels(names).values())) == 3
