"""The HTML page of runs: whole in itself, and no text of a run is more than text."""

from __future__ import annotations

import math
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from click.testing import CliRunner

from albor_core.cli.main import cli
from albor_core.picture.chart import ReportCurve, svg, ticks
from albor_core.report.scores import ScoreBar, bars_svg
from albor_core.run.home.new_run import create_run
from albor_core.run.journal import Journal
from albor_core.run.rundir import RunDir
from albor_core.store.file.paths import global_store
from albor_core.store.index.indexer import Indexer
from albor_core.track.scores import record_scores

HOSTILE = "</title><script>alert(1)</script>\x1b[31m\u202e\"'&"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ALBOR_HOME", str(tmp_path / "home"))
    return tmp_path


def make_run(
    home: Path, run_id: str, *, name: str = "", lr: float = 1e-3, end: float = 2.0
) -> None:
    run = create_run(
        home / "out", run_id, experiment=HOSTILE, name=name or run_id, kind="train", argv=["x"]
    )
    journal = Journal(run.journal, attempt=1)
    journal.append("p", key="optimizer.lr", value=lr)
    journal.append("p", key="data.train", value=name or "shards")
    for step in range(1, 101):
        loss = math.nan if step == 90 else end + 8 / step
        journal.metrics(step, {"train/loss": loss})
        if step % 10 == 0:
            journal.metrics(step, {"val/loss": end + 8 / step})
    journal.close()
    with Indexer(run, global_store()) as indexer:
        indexer.drain()


class Elements(HTMLParser):
    """Which elements and attributes a page has."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[tuple[str, str]] = set()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {(name, value or "") for name, value in attrs}


def report(home: Path, *runs: str) -> str:
    out = home / "page.html"
    result = CliRunner().invoke(cli, ["report", *runs, "--out", str(out), "--force"])
    assert result.exit_code == 0, result.output + repr(result.exception)
    return out.read_text()


def test_the_page_asks_nothing_of_any_network(home):
    make_run(home, "a")
    page = Elements(report(home, "a"))
    assert not page.tags & {"script", "link", "img", "iframe", "object", "base", "form", "a"}
    assert not {name for name, _ in page.attributes} & {"src", "href", "srcset", "style", "onload"}
    assert ("http-equiv", "Content-Security-Policy") in page.attributes


def test_hostile_names_are_text_and_nothing_else(home):
    make_run(home, "a", name=HOSTILE)
    make_run(home, "b", lr=3e-3, name="plain")
    page = report(home, "a", "b")
    assert "script" not in Elements(page).tags
    assert "&lt;script&gt;" in page
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", page)


def test_two_runs_are_compared_with_a_verdict_and_what_differs(home):
    make_run(home, "a", lr=1e-3)
    make_run(home, "b", lr=3e-3, end=3.0)
    page = report(home, "a", "b")
    assert "Verdict on val/loss" in page
    assert "optimizer.lr" in page
    assert page.count("<figure>") >= 2
    assert page.count('class="c1"') >= 2


def test_nan_is_a_mark_and_breaks_the_line():
    ys = (1.0, 2.0, math.nan, 1.5, 1.2)
    drawn = svg("loss", [ReportCurve("r", range(5), ys, ys, ys)])
    assert drawn.count("<polyline") == 2
    assert drawn.count('class="broken"') == 1
    assert "nan" not in drawn


@pytest.mark.parametrize(
    "ys",
    [(), (math.nan,), (math.inf, -math.inf), (1e308, -1e308), (1e18, 1e18), (5.0,), (0.0, 0.0)],
)
def test_any_series_gives_a_chart_without_odd_numbers(ys):
    drawn = svg("x", [ReportCurve("r", range(len(ys)), ys, ys, ys)])
    assert drawn.endswith("</svg>")
    assert not re.search(r'(x|y|points)="[^"]*(nan|inf)', drawn)


def test_a_run_that_nobody_knows_and_a_file_that_is_there_are_refused(home):
    make_run(home, "a")
    out = home / "page.html"
    assert CliRunner().invoke(cli, ["report", "nobody", "-o", str(out)]).exit_code != 0
    assert not out.exists()
    out.write_text("mine")
    assert CliRunner().invoke(cli, ["report", "a", "-o", str(out)]).exit_code != 0
    assert out.read_text() == "mine"


@pytest.mark.parametrize(
    ("low", "high", "texts"),
    [
        (0, 10_000, "0 2k 4k 6k 8k 10k"),
        (183_100, 191_300, "184k 186k 188k 190k"),
        (2.1e6, 6.5e8, "200M 400M 600M"),
        (0.0003, 0.00297, "0.001 0.002"),
        (2.334, 9.12, "4 6 8"),
        (0.4, 0.42, "0.400 0.405 0.410 0.415 0.420"),
        (15_000, 15_040, "15.00k 15.01k 15.02k 15.03k 15.04k"),
    ],
)
def test_ticks_are_round_and_their_texts_fit_beside_the_chart(low, high, texts):
    assert " ".join(words for _, words in ticks(low, high)) == texts


@pytest.mark.parametrize(("low", "high"), [(1e-7, 3e-7), (-1e150, 1e150), (-3, 5e12), (5, 5.001)])
def test_ticks_of_any_range_are_inside_short_and_few(low, high):
    found = ticks(low, high)
    slack = (high - low) * 1e-6
    assert 1 <= len(found) <= 10
    assert all(low - slack <= value <= high + slack for value, _ in found)
    assert all(len(words) <= 9 for _, words in found)


def score(home, run_id, step, values, stderr=None, intervals=None):
    run = RunDir(home / "out" / run_id)
    better = dict.fromkeys(values, "max")
    how = {"stderr": stderr, "intervals": intervals}
    record_scores(run, step, values, better, id=f"{run_id}{step}", **how)
    with Indexer(run, global_store()) as indexer:
        indexer.drain()


def test_scores_of_evaluations_are_bars_of_the_runs_in_their_order(home):
    for name in ("base", "tuned"):
        make_run(home, name)
    score(home, "base", 50, {"eval/code/pass@1": 0.9})
    score(home, "base", 100, {"eval/code/pass@1": 0.125, "eval/x/exact_match": 0.5})
    score(home, "tuned", 100, {"eval/code/pass@1": 0.25}, {"eval/code/pass@1": 0.05})
    page = report(home, "base", "tuned")
    scores = page[page.index("Scores of evaluations") : page.index("<h2>Curves")]
    code = scores[: scores.index("exact_match")]
    assert "code/pass@1, higher is better" in code
    assert re.findall(r"<title>step (\d+)</title>", scores) == ["100", "100", "100"]
    widths = [float(w) for w in re.findall(r'width="([\d.]+)" height', code)]
    assert widths[1] == pytest.approx(2 * widths[0], rel=0.01)
    assert code.index("base</text>") < code.index("tuned</text>")
    assert code.count('class="whisker"') == 1
    curves = page[page.index("<h2>Curves") :]
    assert "eval/code/pass@1</figcaption>" in curves and "exact_match</figcaption>" not in curves


def test_the_whisker_of_a_share_of_passes_is_its_exact_interval(home):
    make_run(home, "none")
    name = "eval/code/pass@1"
    score(home, "none", 100, {name: 0.0}, intervals={name: (0.0, 0.8419)})
    (whisker,) = re.findall(r'class="whisker" x1="([\d.]+)" x2="([\d.]+)"', report(home, "none"))
    left, right = map(float, whisker)
    assert right - left > 300  # of 0 of 2 passes nearly all shares are left


def test_a_page_without_evaluations_says_nothing_of_scores(home):
    make_run(home, "a")
    assert "Scores of evaluations" not in report(home, "a")


@pytest.mark.parametrize("value", [0.0, -3.5, 1e300, 5e-324])
def test_a_bar_of_any_size_lies_inside_its_chart(value):
    drawn = bars_svg("x", [ScoreBar(0, "a<b", value, 1, abs(value) / 4), ScoreBar(1, "c", 1.0, 1)])
    for x, width in re.findall(r'<rect [^>]*x="([-\d.]+)"[^>]* width="([-\d.]+)"', drawn):
        assert 0 <= float(x) <= 560 and 0 <= float(x) + float(width) <= 560
    assert "a&lt;b" in drawn
