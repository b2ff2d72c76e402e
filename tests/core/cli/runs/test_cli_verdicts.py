"""The four outcomes, and none, in words and documents: `runs diff`, `report`, the Diff screen."""

from __future__ import annotations

import math
import random
import re

import pytest
from cli_user import validate

from albor_core.run.home.new_run import create_run
from albor_core.run.journal import Journal
from albor_core.store.index.indexer import index_now
from albor_tui.widgets.diff_panels import MetricsPanel, VerdictPanel

ABOUT = {"git": {"commit": "c" * 40, "dirty": False}}


def write(desk, run_id, series, *, config=True, experiment="exp", argv=("t.py",)):
    """`series`: by metric its mean and how many of 100 steps have it."""
    script = {"path": "/t.py", "sha256": "ab" * 32, "bytes": 9, "is_tracked": True}
    run = create_run(
        desk.folder / "out", run_id, experiment=experiment, name=run_id, kind="track", argv=[*argv],
        facts={**ABOUT, "script": {**script, "is_kept": False}},
    )  # fmt: skip
    chance = random.Random(run_id)
    journal = Journal(run.journal, attempt=1)
    if config:
        journal.append("p", key="depth", value=2)
    for step in range(1, 101):
        values = {
            key: mean + chance.gauss(0, 0.01)
            for key, (mean, points) in series.items()
            if step % (100 // points) == 0
        }
        journal.metrics(step, values)
    journal.event("run.end", status="completed", reason="completed", code=0)
    journal.close()
    index_now(run)


def record_ends(desk, run_id, losses):
    """A run whose validation loss is known at a few steps."""
    run = create_run(
        desk.folder / "out", run_id, experiment="exp", name=run_id, kind="track", argv=["t.py"],
        facts=ABOUT,
    )  # fmt: skip
    journal = Journal(run.journal, attempt=1)
    for step, loss in losses.items():
        journal.metrics(step, {"val/loss": loss})
    journal.event("run.end", status="completed", reason="completed", code=0)
    journal.close()
    index_now(run)


CASES = {  # outcome: series of A, series of B, the words of the text
    "better": ({"val/loss": (0.5, 50)}, {"val/loss": (0.1, 50)}, "verdict: B is better than A"),
    "worse": ({"val/loss": (0.1, 50)}, {"val/loss": (0.5, 50)}, "verdict: B is worse than A"),
    "indistinguishable": (
        {"val/loss": (0.5, 50)},
        {"val/loss": (0.5, 50)},
        "verdict: B is indistinguishable from A",
    ),
    "contradictory": (
        {"val/loss": (1.4, 4), "train/loss": (0.5, 100)},
        {"val/loss": (0.2, 4), "train/loss": (0.9, 100)},
        "verdict: contradictory, B against A",
    ),
    None: (
        {"val/loss": (0.5, 4)},
        {"val/loss": (0.1, 4)},
        "no verdict: B cannot be judged against A",
    ),
}


@pytest.mark.parametrize("outcome", CASES, ids=str)
def test_an_outcome_is_the_same_in_text_json_report_and_cockpit(desk, outcome):
    first, second, words = CASES[outcome]
    write(desk, "a", first, argv=("t.py", "1"))
    write(desk, "b", second, argv=("t.py", "2"))
    assert words in desk.quick("runs", "diff", "a", "b").out
    document = desk.quick("runs", "diff", "a", "b", "--json").document
    validate(document)
    assert document["verdict"]["outcome"] == outcome
    assert (document["verdict"]["reason"] is None) == (outcome is not None)
    page = desk.folder / "page.html"
    assert desk.quick("report", "a", "b", "--out", str(page)).code == 0
    assert f"<b>{outcome or 'no verdict'}</b>" in page.read_text()
    drawn = "\n".join(str(line) for line in VerdictPanel().lines(document, 200, 5))
    assert f" is {outcome or 'not judged'} " in drawn


def test_a_metric_that_cannot_be_judged_is_named_with_its_reason_everywhere(desk):
    write(desk, "a", {"val/loss": (1.4, 50), "train/loss": (0.5, 100)})
    write(desk, "few", {"val/loss": (0.2, 4), "train/loss": (0.9, 100)}, argv=("t.py", "2"))
    write(desk, "none", {"train/loss": (0.9, 100)}, argv=("t.py", "3"))
    cases = {
        "few": ("too_few_points", "1 paired point in steps 81 to 100; needs 8"),
        "none": ("no_common_metric", "only a has val/loss"),
    }
    for run, (reason, why) in cases.items():
        document = desk.quick("runs", "diff", "a", run, "--json").document
        validate(document)
        (verdict,) = document["verdicts"]
        assert verdict["outcome"] == "contradictory" and verdict["metric"] == "train/loss"
        unjudged = verdict["unjudged"]
        assert (unjudged["metric"], unjudged["reason"]) == ("val/loss", reason)
        assert unjudged["detail"].startswith(why)
        told = f"val/loss cannot be judged ({why}"
        text = desk.quick("runs", "diff", "a", run).out
        assert "verdict: contradictory, B against A: val/loss cannot be judged\n" in text
        assert told in " ".join(text.split())
        page = desk.folder / f"{run}.html"
        assert desk.quick("report", "a", run, "--out", str(page)).code == 0
        assert told in page.read_text()
        for width in (200, 80):
            drawn = " ".join(str(line) for line in VerdictPanel().lines(document, width, 5))
            assert told in drawn
    several = desk.quick("runs", "diff", "a", *cases).out
    document = desk.quick("runs", "diff", "a", *cases, "--json").document
    lines = [str(line) for line in VerdictPanel().lines(document, 200, 5)]
    for line, (_, why) in zip(lines, cases.values(), strict=True):
        assert f"val/loss cannot be judged ({why}" in line
        assert f"val/loss cannot be judged ({why}" in several


def test_a_verdict_on_what_was_asked_about_has_nothing_unjudged(desk):
    for name, mean in (("a", 0.5), ("b", 0.1)):
        write(desk, name, {"val/loss": (mean, 50)})
    assert desk.quick("runs", "diff", "a", "b", "--json").document["verdict"]["unjudged"] is None


def test_what_is_not_known_stands_beside_the_verdict(desk):
    for name, mean in (("a", 0.5), ("b", 0.1)):
        write(desk, name, {"val/loss": (mean, 50)}, config=False)
    told = desk.quick("runs", "diff", "a", "b").out
    assert "verdict: B is better than A" in told
    assert "not known whether config is the same" in told
    assert "chance" not in told


def test_a_curve_that_ends_in_nan_is_not_drawn_on_from_its_last_number(desk):
    write(desk, "nan", {"val/loss": (0.5, 50), "train/loss": (float("nan"), 100)})
    write(desk, "too", {"val/loss": (0.5, 50), "train/loss": (0.5, 100)})
    told = desk.quick("runs", "diff", "nan", "too", "--metric", "train/loss").out.splitlines()
    curve = next(line for line in told if line.startswith("A  nan"))
    assert curve.endswith("\u00d7  NaN/Inf") and "\u2581" not in curve
    assert re.fullmatch(r"train/loss +NaN/Inf +0\.\d+", next(
        line for line in told if re.match("train/loss +[N0]", line)
    ))  # fmt: skip
    document = desk.quick("runs", "diff", "nan", "too", "--json").document
    assert any("NaN/Inf" in str(line) for line in MetricsPanel().lines(document, 80, 9))


def test_code_that_is_recorded_in_part_is_not_called_the_same(desk, monkeypatch):
    monkeypatch.setitem(ABOUT, "git", {"commit": "c" * 40, "dirty": True, "patch": None})
    for name, mean in (("a", 0.5), ("b", 0.1)):
        write(desk, name, {"val/loss": (mean, 50)})
    told = desk.quick("runs", "diff", "a", "b").out
    assert "recorded in part, no difference in that: code" in told
    assert re.search(r"^the same: config, environment$", told, re.M)
    assert "not known whether code is the same" in told


def test_a_direction_that_nothing_says_is_asked_for_and_a_goal_gives_it(desk):
    for name, mean in (("low", 0.1), ("high", 0.5)):
        write(desk, name, {"zorp": (mean, 100)}, argv=(name,))
    asked = ("runs", "diff", "low", "high", "--metric", "zorp")
    told = desk.quick(*asked).out
    assert "no verdict" in told and "--goal zorp:min or zorp:max" in told
    assert "best" not in told
    assert "B is worse than A" in desk.quick(*asked, "--goal", "zorp:min").out
    goal = ("--goal", "zorp:low", "--json")
    for words in (
        (*asked, *goal),
        ("runs", "ls", *goal),
        ("report", "low", "--out", desk.folder / "x.html", *goal),
        ("guard", "run", *goal, "--", "true"),
    ):
        refused = desk.quick(*words)
        assert (refused.code, refused.error["message"]) == (2, "'zorp:low' is not a goal"), words
    assert not (desk.folder / "x.html").exists()


def test_a_goal_of_a_metric_that_none_of_the_runs_has_is_refused(desk):
    for name in ("low", "high"):
        write(desk, name, {"loss": (0.5, 50)}, argv=(name,))
    refused = desk.quick("runs", "diff", "low", "high", "--goal", "zarp:max", "--json")
    assert (refused.code, refused.error["message"]) == (3, "no metric 'zarp'")


def test_the_bars_of_a_short_run_beside_a_long_one_show_which_is_higher(desk):
    for name, first, last, steps in (("short", 6.0, 5.0, 40), ("long", 6.0, 4.0, 500)):
        record_ends(desk, name, {0: first, steps: last})
    drawn = desk.quick("runs", "diff", "short", "long").out.splitlines()
    assert drawn[0] == "val/loss to step 500, bars from 4.0000 to 5.0000 and above"
    bars = {line.split()[1]: line.split()[2] for line in drawn[1:3]}
    assert bars["short"][-1] == "\u2588" and bars["long"][-1] == "\u2581"


def test_the_bars_of_runs_with_two_values_each_have_a_height(desk):
    for name in ("one", "two"):
        record_ends(desk, name, {0: 6.0, 500: 4.0})
    drawn = desk.quick("runs", "diff", "one", "two").out
    assert "bars from 4.0000 to 6.0000\n" in drawn


def test_runs_are_sorted_from_the_best_and_where_that_is_unknown_from_the_largest(desk):
    for name, mean in (("low", 0.1), ("mid", 0.3), ("high", 0.5)):
        write(desk, name, {"val/mse": (mean, 50), "val/acc": (mean, 50), "zorp": (mean, 50)})

    def order(*words):
        return [run["id"] for run in desk.quick("runs", "ls", *words, "--json").document["runs"]]

    up, down = ["low", "mid", "high"], ["high", "mid", "low"]
    assert order("--sort", "val/mse") == order("--sort", "val/mse:best") == up
    assert order("--sort", "val/acc") == down
    assert order("--sort", "zorp") == down
    assert order("--sort", "zorp", "--goal", "zorp:min") == up
    assert order("--sort", "zorp", "--goal", "zorp:min", "--reverse") == down
    assert order("--sort", "elapsed_s", "--columns", "zorp:best") == order("--sort", "elapsed_s")


def test_of_thirty_runs_26_are_compared_and_the_rest_is_said(desk):
    names = [f"r{number:02d}" for number in range(30)]
    for name in names:
        write(desk, name, {"val/loss": (0.5, 20)})
    result = desk.quick("runs", "diff", *names)
    assert result.code == 0 and re.search(r"^Z  r25 ", result.out, re.M)
    assert "first 26 of 30 runs; left out: r26 r27 r28 r29" in result.err
    assert "600 more pairs, of runs other than A" in result.out
    page = desk.folder / "page.html"
    made = desk.quick("report", *names, "--out", str(page), "--json").document
    assert (made["runs"], made["left_out"]) == (names[:26], names[26:])
    validate(made)
    assert "4 more were asked for and left out: r26" in page.read_text()


def write_values(desk, run_id, key, values):
    """A finished run with one metric, a value a step."""
    run = create_run(
        desk.folder / "out", run_id, experiment="exp", name=run_id, kind="track", argv=[run_id],
        facts=ABOUT,
    )  # fmt: skip
    journal = Journal(run.journal, attempt=1)
    for step, value in enumerate(values, 1):
        journal.metrics(step, {key: value})
    journal.event("run.end", status="completed", reason="completed", code=0)
    journal.close()
    index_now(run)


def noisy(seed, mean, count=100):
    chance = random.Random(seed)
    return [mean + chance.gauss(0, 0.01) for _ in range(count)]


def test_a_run_that_ends_in_nan_is_worse_however_short_its_end_is(desk):
    write_values(desk, "good", "val/loss", noisy(1, 0.5))
    for tail in (1, 10, 60):
        name = f"nan{tail}"
        write_values(desk, name, "val/loss", [*noisy(2, 0.5, 100 - tail), *[math.nan] * tail])
        (verdict,) = desk.quick("runs", "diff", "good", name, "--json").document["verdicts"]
        assert verdict["outcome"] == "worse", tail
        (verdict,) = desk.quick("runs", "diff", name, "good", "--json").document["verdicts"]
        assert verdict["outcome"] == "better", tail
    document = desk.quick("runs", "diff", "nan60", "good", "nan1", "--json").document
    line = VerdictPanel().lines(document, 120, 9)[0].plain
    assert line.startswith("B good is better than A nan60   the other is NaN or Inf")


def test_a_run_that_goes_on_beyond_the_other_and_ends_in_inf_is_worse(desk):
    write_values(desk, "short", "val/loss", noisy(1, 0.5))
    write_values(desk, "long", "val/loss", [*noisy(2, 0.5, 150), *[math.inf] * 20])
    (verdict,) = desk.quick("runs", "diff", "short", "long", "--json").document["verdicts"]
    assert verdict["outcome"] == "worse"
    assert verdict["detail"].startswith("it is NaN or Inf from step 151 to its end")


def test_a_metric_that_is_nan_now_and_then_is_judged_by_what_is_left(desk):
    now_and_then = [v if step % 5 else math.nan for step, v in enumerate(noisy(2, 0.5), 1)]
    write_values(desk, "good", "val/loss", noisy(1, 0.5))
    write_values(desk, "gaps", "val/loss", now_and_then)
    (verdict,) = desk.quick("runs", "diff", "good", "gaps", "--json").document["verdicts"]
    assert verdict["outcome"] == "indistinguishable" and "left out" in verdict["detail"]


def test_runs_without_a_loss_of_the_house_are_judged_by_the_metric_that_stands_for_them(desk):
    for name, mean in (("a", 0.1652), ("b", 0.1852), ("c", 0.1252)):
        write_values(desk, name, "val/mse", noisy(name, mean))
    document = desk.quick("runs", "diff", "a", "b", "c", "--json").document
    assert document["metric"] == "val/mse"
    assert [one["outcome"] for one in document["verdicts"]] == ["worse", "better"]
    panel = VerdictPanel()
    lines = [line.plain for line in panel.lines(document, 120, 9)]
    assert lines[0].startswith("B b is worse than A a") and lines[1].startswith("C c is better")


def test_last_values_have_as_many_digits_as_tell_the_runs_apart(desk):
    for name, last in (("a", 0.1652), ("b", 0.1741), ("c", 0.1704), ("d", 0.17241)):
        write_values(desk, name, "val/mse", [0.5, last])
    document = desk.quick("runs", "diff", "a", "b", "c", "d", "--json").document
    (row,) = [
        line.plain for line in MetricsPanel().lines(document, 80, 20) if "val/mse" in line.plain
    ]
    assert row.split()[1:] == ["0.1652", "0.1741", "0.1704", "0.1724"]


def test_one_reason_why_no_run_can_be_judged_is_said_once(desk):
    for name in "abc":
        write_values(desk, name, "val/mse", [0.5, 0.4])
    document = desk.quick("runs", "diff", "a", "b", "c", "--json").document
    line, order = VerdictPanel().lines(document, 120, 9)
    assert line.plain.startswith("none is judged against A a   ") and "needs 8" in line.plain
    assert order.plain == "by the last val/mse, not a verdict: A a 0.40, B b 0.40, C c 0.40"


def test_runs_without_a_metric_in_common_are_compared_by_what_most_of_them_are(desk):
    for name in ("a", "b"):
        write(desk, name, {"val/mse": (0.5, 50)}, argv=("t.py", name))
    write(desk, "crashed", {"epoch": (1.0, 50)}, argv=("t.py", "c"))
    document = desk.quick("runs", "diff", "a", "b", "crashed", "--json").document
    assert document["metric"] == "val/mse"
    outcomes = [one["outcome"] for one in document["verdicts"]]
    assert outcomes == ["indistinguishable", None]
    assert document["verdicts"][1]["detail"].startswith("only a has val/mse")
    document = desk.quick("runs", "diff", "crashed", "a", "b", "--json").document
    (line,) = VerdictPanel().lines(document, 160, 9)
    assert line.plain.startswith("none is judged against A crashed") and "r compares" in line.plain


def test_what_was_chosen_for_the_experiment_is_what_runs_are_compared_by(desk, monkeypatch):
    series = {"val/mse": (0.5, 50), "val/r2": (0.5, 50)}
    write(desk, "a", series, argv=("t.py", "1"))
    write(desk, "b", {**series, "val/r2": (0.9, 50)}, argv=("t.py", "2"))
    assert desk.quick("runs", "diff", "a", "b", "--json").document["metric"] == "val/mse"
    (desk.home / "views.yaml").write_text("metrics: {exp: val/r2}\n")
    done = desk.quick("runs", "diff", "a", "b")
    assert "B is better than A" in done.out
    assert "by val/r2, your choice for exp" in done.err
    asked = desk.quick("runs", "diff", "a", "b", "--metric", "val/mse", "--json").document
    assert (asked["metric"], asked["verdict"]["outcome"]) == ("val/mse", "indistinguishable")
    (desk.home / "views.yaml").write_text("metrics: {exp: gone}\n")
    assert desk.quick("runs", "diff", "a", "b", "--json").document["metric"] == "val/mse"
    (desk.home / "views.yaml").write_text("{damaged")
    assert desk.quick("runs", "diff", "a", "b", "--json").document["metric"] == "val/mse"
