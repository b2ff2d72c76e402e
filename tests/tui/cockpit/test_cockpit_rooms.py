"""Room goes to what has something to show, keys are named where they work, and what is missing is
said in words."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import fake_desk
import fake_feed
import pytest
import sim_run
from settled import until
from textual.content import Content

from albor_tui.look import glyphs, themes
from albor_tui.screens.diff import DiffScreen
from albor_tui.screens.launch import LaunchScreen
from albor_tui.widgets.alert_panels import AlertPanel
from albor_tui.widgets.base import styled
from albor_tui.widgets.config_form import ConfigForm, ConfigList
from albor_tui.widgets.diff_panels import MetricsPanel, ReachPanel, VerdictPanel
from albor_tui.widgets.key_bar import KeyBar
from albor_tui.widgets.run_table import RunTable
from albor_tui.widgets.status_bar import TopBar


def text_of(screen) -> str:
    return "\n".join(strip.text for strip in screen._compositor.render_strips())


async def listed(pilot, count: int) -> None:
    table = pilot.app.screen.query_one(RunTable)
    await until(pilot, lambda: len(table.runs) == count)
    await pilot.pause()


@pytest.mark.slow
async def test_few_runs_leave_their_room_to_the_chart_and_a_filter_moves_nothing(cockpit, source):
    async with cockpit().run_test(size=(160, 45)) as pilot:
        await listed(pilot, 7)
        listing, preview = (pilot.app.screen.query_one(f"#{name}") for name in ("list", "preview"))
        await until(pilot, lambda: listing.size.height + 2 == 7 + 3)
        assert preview.size.height > 25
        before = preview.region
        await pilot.press("slash", *"sweep")
        await until(pilot, lambda: len(pilot.app.screen.query_one(RunTable).runs) < 7)
        await pilot.pause()
        assert preview.region.bottom == before.bottom
        assert before.height - preview.region.height <= 1  # the line that is typed into
        await pilot.press("escape")
        one = source.rows[0]
        source.show(tuple(replace(one, id=f"r{i}", name=f"r{i}") for i in range(60)))
        await listed(pilot, 60)
        await until(pilot, lambda: preview.outer_size.height == 15)


@pytest.mark.slow
async def test_without_runs_only_keys_that_do_something_are_named(cockpit, source):
    source.show(())
    async with cockpit().run_test(size=(80, 24)) as pilot:
        screen = pilot.app.screen
        bar = screen.query_one(KeyBar)
        await until(pilot, lambda: "Stop" not in str(bar.render()))
        assert {"New", "Alerts", "Help", "Quit"} <= set(str(bar.render()).split())
        await pilot.press("x", "d", "E", "enter")
        assert pilot.app.screen is screen
        source.show(fake_feed.rows())
        await until(pilot, lambda: "Stop" in str(bar.render()))


@pytest.mark.slow
async def test_a_narrow_top_line_counts_by_symbols(cockpit):
    async with cockpit().run_test(size=(80, 24)) as pilot:
        bar = pilot.app.screen.query_one(TopBar)
        await until(pilot, lambda: bool(bar.counts))
        assert str(bar.render()).split()[-2:] == ["?", "1"]
        assert "running" not in str(bar.render())
        await pilot.resize_terminal(160, 45)
        await until(pilot, lambda: "2 running" in str(bar.render()))


@pytest.mark.slow
async def test_one_long_name_takes_no_room_from_the_columns_of_all(cockpit, source):
    rows = [replace(source.rows[0], id=f"r{i}", name=f"run-{i:02d}") for i in range(20)]
    source.show((*rows, replace(source.rows[0], id="long", name="x" * 90)))
    async with cockpit().run_test(size=(160, 45)) as pilot:
        await listed(pilot, 21)
        head = pilot.app.screen.query_one(RunTable).render_line(0).text
        assert head.split() == [
            "state",
            "run",
            "experiment",
            "done",
            "loss",
            "trend",
            "loss",
            "ppl",
            "tok/s",
            "mfu",
            "took",
            "ends",
            "alert",
        ]
        assert head.index("experiment") < 45


@pytest.mark.parametrize(
    ("name", "width", "shown"),
    [
        ("long-context-123", 16, "long-context-123"),
        ("long-context-123", 14, "long-co\u2026xt-123"),
        ("long-context-003", 9, "long\u2026-003"),
        ("\u8a00\u8a9e\u30e2\u30c7\u30eb-125m", 11, "\u8a00\u8a9e \u2026-125m"),
        ("abcdefgh", 4, "abc\u2026"),
        ("abcdefgh", 0, ""),
    ],
)
def test_a_name_that_is_cut_keeps_both_its_ends(name, width, shown):
    cut = styled.fit_middle(Content(name), width)
    assert str(cut) == shown
    assert cut.cell_length <= width


def test_a_bar_without_colour_still_says_how_full_it_is():
    for environ in ({"NO_COLOR": "1"}, {"NO_COLOR": "1", "LANG": "C"}, {"TERM": "linux"}):
        look = glyphs.fitting(environ)
        assert look.bar_full != look.bar_empty
    assert glyphs.fitting({"NO_COLOR": ""}) is glyphs.UNICODE


@pytest.mark.slow
async def test_no_color_on_the_terminals_own_colours_leaves_every_colour_out(cockpit, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    async with cockpit(theme="ansi").run_test(size=(100, 30)) as pilot:
        await listed(pilot, 7)
        for strip in pilot.app.screen._compositor.render_strips():
            for segment in strip:
                for colour in (segment.style.color, segment.style.bgcolor):
                    assert colour is None or colour.is_default


def nothing_in_common() -> dict:
    empty = {"steps": [], "min": [], "max": [], "mean": []}
    verdict = {"outcome": None, "reason": "no_common_metric", "metric": None, "interval": None,
               "difference": None, "method": "none", "detail": "not both runs have val/loss",
               "unknown": []}  # fmt: skip
    document = fake_feed.diff_document()
    return {
        **document,
        "config": [],
        "code": [],
        "data": [{"key": "train", "values": ["shards/a", "shards/b"]}],
        "environment": [],
        "unrecorded": ["code"],
        "metrics": {},
        "reach": [],
        "verdicts": [{"run": "b", "against": "a", **verdict}],
        "curves": {"val/loss": [empty, empty]},
    }


@pytest.mark.slow
async def test_two_runs_without_values_get_words_and_no_empty_axes(cockpit, source):
    source.document = nothing_in_common()
    async with cockpit().run_test(size=(120, 36)) as pilot:
        await pilot.app.push_screen(DiffScreen(("a", "b"), {"a": "one", "b": "two"}))
        screen = pilot.app.screen
        await until(pilot, lambda: "no metric in common" in text_of(screen))
        shown = text_of(screen)
        assert "nothing that both have measured" in shown
        assert not screen.shows_key("metric"), "there is no next one to overlay"
        assert "not both runs have val/loss" in shown
        assert "none" not in shown
        assert "0.0" not in shown
        assert "data.train" in shown
        assert "not recorded: code" in shown


@pytest.mark.slow
async def test_a_verdict_too_long_for_its_panel_fills_it_and_says_that_it_goes_on(cockpit, source):
    source.document = nothing_in_common()
    source.document["verdicts"][0]["detail"] = "neither run has val/loss; " + "next word " * 30
    async with cockpit().run_test(size=(80, 24)) as pilot:
        await pilot.app.push_screen(DiffScreen(("a", "b"), {"a": "one", "b": "two"}))
        panel = pilot.app.screen.query_one(VerdictPanel)
        await until(pilot, lambda: panel.document is not None)
        _, second, third = panel.draw(panel.content_size.width, 3).plain.splitlines()
        assert second.startswith("neither run has") and third.endswith(glyphs.current.ellipsis)


def ten_runs() -> dict:
    document = fake_feed.diff_document()
    runs = [{"id": f"r{i}", "name": f"run {i}"} for i in range(10)]
    verdict = {**document["verdict"], "against": "r0"}
    outcomes = ["better", "worse", "indistinguishable", "contradictory", None, *["better"] * 4]
    pairs = [(a["id"], b["id"]) for a in runs for b in runs if a is not b]
    return {
        **document,
        "runs": runs,
        "config": [{"key": "optimizer.lr", "values": [i / 10 for i in range(10)]}],
        "code": [],
        "environment": [],
        "metrics": {key: stats[:1] * 10 for key, stats in document["metrics"].items()},
        "reach": [{**document["reach"][1], "run": a, "other": b} for a, b in pairs],
        "verdicts": [
            {**verdict, "run": run["id"], "outcome": outcome}
            for run, outcome in zip(runs[1:], outcomes, strict=True)
        ],
        "curves": {key: found[:1] * 10 for key, found in document["curves"].items()},
    }


def twelve_runs(outcome: str | None = None) -> dict:
    document = fake_feed.diff_document()
    runs = [{"id": f"r{i}", "name": f"run {i}"} for i in range(12)]
    lasts = [0.9 - 0.05 * i for i in range(11)] + [None]
    stats = [
        {"last": v, "best": None if v is None else v - 0.01, "nonfinite": v is None} for v in lasts
    ]
    verdict = {**document["verdict"], "outcome": outcome, "interval": None, "detail": "5 points"}
    reach = {**document["reach"][1], "run": "r1", "other": "r0", "tokens": None, "seconds": 0.0}
    return {
        **document,
        "metric": "val/mse",
        "runs": runs,
        "metrics": {"val/mse": stats},
        "reach": [reach],
        "verdicts": [{**verdict, "run": one["id"], "against": "r0"} for one in runs[1:]],
    }


def test_twelve_runs_have_a_line_each_the_best_first():
    panel = MetricsPanel()
    lines = [line.plain for line in panel.lines(twelve_runs(), 50, 99)]
    assert len(lines) == 13 and lines[0].split() == ["val/mse", "last", "best"]
    assert lines[1].split() == ["K", "run", "10", "0.40", "0.39"]
    assert lines[-1].split()[:4] == ["L", "run", "11", "NaN/Inf"]
    best = {**twelve_runs(), "direction": "max"}
    assert panel.lines(best, 50, 99)[1].plain.startswith("A run 0")


def test_where_no_run_can_be_judged_they_are_ranked_by_last_values_and_it_says_so():
    lines = [line.plain for line in VerdictPanel().lines(twelve_runs(), 200, 9)]
    assert "none is judged against A run 0   5 points" in lines[0]
    assert lines[1].startswith("by the last val/mse, not a verdict: K run 10 0.40, J")
    two = twelve_runs()
    two = {**two, "verdicts": two["verdicts"][:1], "runs": two["runs"][:2]}
    two["metrics"] = {"val/mse": two["metrics"]["val/mse"][:2]}
    assert any("not a verdict: B run 1" in line.plain for line in VerdictPanel().lines(two, 120, 9))
    two["verdicts"] = [{**two["verdicts"][0], "detail": "few points " * 30}]
    cut = [line.plain for line in VerdictPanel().lines(two, 120, 3)]
    assert len(cut) == 3 and "not a verdict" in cut[1] and cut[2].startswith("few points")


def test_what_is_reached_has_its_own_name_and_no_tokens_that_were_not_counted():
    panel = ReachPanel()
    (line,) = panel.lines(twelve_runs(), 60, 9)
    assert "to reach the other's final val/mse" in str(panel.border_title)
    assert line.plain.split("   ")[-1] == "step 31,200"


@pytest.mark.slow
async def test_r_compares_with_the_next_run(cockpit, source):
    async with cockpit().run_test(size=(120, 36)) as pilot:
        await pilot.app.push_screen(DiffScreen(("a", "b", "c"), {"b": "second"}))
        await pilot.press("r")
        assert pilot.app.screen.selection.from_cursor == ("b", "c", "a")
        await until(pilot, lambda: "compared with second" in text_of(pilot.app.screen))


@pytest.mark.slow
async def test_many_runs_are_compared_and_what_is_cut_is_counted(cockpit, source):
    source.document = ten_runs()
    ids = tuple(f"r{i}" for i in range(32))
    async with cockpit().run_test(size=(160, 45)) as pilot:
        await pilot.app.push_screen(DiffScreen(ids, {}))
        screen = pilot.app.screen
        for words in (
            "J run 9 is better than A",
            "E run 4 is contradictory against A",
            "F run 5 is not judged against A",
            "26 runs, 6 more left out",
        ):
            await until(pilot, lambda words=words: words in text_of(screen), words)
        reach = "\n".join(map(str, screen.query_one(ReachPanel).lines(source.document, 60, 99)))
        assert "72 more pairs, without the first run" in reach and "C to" in reach
        metrics = screen.query_one(MetricsPanel).lines(source.document, 50, 99)
        assert len(metrics) == 11, "a line for each run, and their heading"
        await pilot.resize_terminal(80, 24)
        await until(pilot, lambda: "more" in str(screen.query_one(VerdictPanel).render()))


@pytest.mark.slow
async def test_a_run_at_work_may_still_reach_the_other_and_an_ended_one_never(
    cockpit, source, tmp_path
):
    out = ["--steps", "100000", "--rate", "20", "--name", "at-work"]
    argv = [sys.executable, sim_run.__file__, str(tmp_path), *out]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            path = process.stdout.readline().strip()
            document = fake_feed.diff_document()
            a, b = document["runs"]
            runs = [{**a, "path": path}, {**b, "path": str(tmp_path / "gone")}]
            missed = [{**reach, "step": None} for reach in document["reach"]]
            source.document = {**document, "runs": runs, "reach": missed}
            async with cockpit().run_test(size=(120, 36)) as pilot:
                await pilot.app.push_screen(DiffScreen(("a", "b"), {}))
                panel = pilot.app.screen.query_one(ReachPanel)
                await until(pilot, lambda: "not yet" in str(panel.render()))
                first, second = str(panel.render()).splitlines()
                assert first.startswith("A to") and "not yet" in first
                assert second.startswith("B to") and "never" in second
        finally:
            process.kill()


@pytest.mark.slow
async def test_what_does_not_fit_whole_behind_a_reach_is_left_out(cockpit):
    async with cockpit().run_test(size=(80, 24)) as pilot:
        await pilot.app.push_screen(DiffScreen(("a", "b"), {"a": "one", "b": "two"}))
        panel = pilot.app.screen.query_one(ReachPanel)
        await until(pilot, lambda: "31,200" in str(panel.render()))
        assert "\u2026" not in str(panel.render())
        await pilot.resize_terminal(160, 45)
        await until(pilot, lambda: "4h44m" in str(panel.render()))


@pytest.mark.slow
async def test_keys_of_the_form_are_named_where_there_is_a_form(cockpit):
    async with cockpit().run_test(size=(80, 24)) as pilot:
        await pilot.app.push_screen(LaunchScreen())
        screen = pilot.app.screen
        bar = screen.query_one(KeyBar)
        await until(pilot, lambda: screen.query_one(ConfigList).count() == 2)
        await until(pilot, lambda: "Go" not in str(bar.render()))
        await pilot.press("enter")
        await until(pilot, lambda: screen.query_one(ConfigForm).count() > 3)
        await until(pilot, lambda: "Go" in str(bar.render()).split())


def test_a_long_alert_is_folded_and_its_facts_stay():
    panel = AlertPanel()
    panel.set_reactive(AlertPanel.alert, fake_desk.alert(0, message="gradient norm is odd " * 9))
    lines = str(panel.draw(40, 9)).split("\n")
    assert len(lines) == 9
    assert lines[0].startswith("gradient norm is odd")
    assert lines[2].endswith("\u2026")
    assert [line.split()[0] for line in lines[3:]] == [
        "run",
        "rule",
        "metric",
        "value",
        "step",
        "seen",
    ]


def test_a_command_is_shown_whole_or_not_at_all():
    panel = AlertPanel()
    panel.set_reactive(AlertPanel.alert, fake_desk.alert(0))
    told = [line.strip() for line in str(panel.draw(70, 14)).split("\n")]
    assert told[-1] == "shell   albor alerts ack code-125m-3f2a91 gradient_norm-gt-3@1.14312"
    told = [line.strip() for line in str(panel.draw(45, 14)).split("\n")]
    assert told[-2:] == [
        "shell   albor alerts ack code-125m-3f2a91 \\",
        "gradient_norm-gt-3@1.14312",
    ]
    assert "shell" not in str(panel.draw(30, 14))
    assert "shell" not in str(panel.draw(70, 9))


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("look", [t for t in themes.ALL if not t.ansi], ids=lambda t: t.name)
def test_text_can_be_read_on_the_ground_and_under_the_cursor(look):
    """WCAG 2.1, 1.4.3 and 1.4.11: 4.5 for text, 3 for large signs and what can be missed."""
    grounds = (look.background, look.variables["cursor-ground"])
    for ground in grounds:
        for name in ("accent", "secondary", "success", "warning", "error", "foreground"):
            assert contrast(getattr(look, name), ground) >= 4.5, name
        assert contrast(look.variables["ink"], ground) >= 7
        assert contrast(look.variables["ink-muted"], ground) >= 4.4
        assert contrast(look.variables["ink-faint"], ground) >= 2.6
    assert contrast(look.variables["ink-faint"], look.background) >= 3
