"""`albor runs plot`: a metric of some runs as a picture, whole or not at all."""

from __future__ import annotations

import math
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET

import pytest
from cli_user import valid
from PIL import Image

from albor_core.run.home.new_run import create_run
from albor_core.run.journal import Journal
from albor_core.store.index.indexer import index_now

HOSTILE = "</text><script>alert(1)</script>\x1b[31m\u202e\"'& $\\frac{"
SVG = "{http://www.w3.org/2000/svg}"


def record(desk, run_id, values, *, name="", tokens=False):
    run = create_run(desk.folder / "out", run_id, experiment="exp", name=name or run_id,
                     kind="track", argv=["x"])  # fmt: skip
    created = run.metadata()["created"]
    journal = Journal(run.journal, attempt=1)
    for step, value in enumerate(values, start=1):
        more = {"train/tokens": 1000.0 * step} if tokens else {}
        journal.metrics(step, {"train/loss": value, **more}, wall=created + 60.0 * step)
    journal.event("run.end", status="completed", reason="completed", code=0)
    journal.close()
    index_now(run)
    return run


@pytest.fixture
def two(desk):
    record(desk, "a", [4.0 / step for step in range(1, 51)], tokens=True)
    record(desk, "b", [8.0 / step for step in range(1, 51)], name="wide")
    return desk


def picture(desk, *words):
    out = desk.folder / "x.svg"
    done = desk.quick("runs", "plot", *words, "-o", out, "--force")
    assert done.code == 0, done
    return ET.fromstring(out.read_bytes())


def words_of(root):
    return [element.text for element in root.iter(f"{SVG}text")]


def test_a_plot_has_a_curve_and_a_name_for_each_run(two):
    root = picture(two, "a", "b", "--metric", "loss")
    lines = [one for one in root.iter(f"{SVG}polyline") if len(one.get("points").split()) > 2]
    assert [one.get("class") for one in lines] == ["c0", "c1"]
    said = words_of(root)
    assert said[0] == "train/loss" and said[-2:] == ["a", "wide"] and "step" in said


@pytest.mark.parametrize(
    ("x", "said", "ticks"),
    [("step", "step", {"10", "50"}), ("tokens", "tokens", {"10k", "50k"}),
     ("wall", "minutes since the run began", {"10", "50"})],
)  # fmt: skip
def test_the_axis_is_that_of_steps_tokens_or_time(two, x, said, ticks):
    words = set(words_of(picture(two, "a", "--metric", "train/loss", "--x", x)))
    assert said in words and ticks <= words


def test_a_logarithmic_plot_names_the_values(two):
    root = picture(two, "a", "--metric", "train/loss", "--log")
    assert {"0.1", "1"} <= set(words_of(root))
    (line,) = [one for one in root.iter(f"{SVG}polyline") if len(one.get("points").split()) > 2]
    heights = [float(point.split(",")[1]) for point in line.get("points").split()]
    assert heights == sorted(heights) and len(set(heights)) > 40  # falls all the way


def test_values_without_a_logarithm_are_counted(two):
    record(two, "zero", [1.0, 0.0, -1.0, 2.0])
    done = two.quick("runs", "plot", "zero", "--metric", "loss", "--log", "-o", "x.svg")
    assert done.code == 0 and "not shown: 2 values of 0 and below" in done.err


@pytest.mark.parametrize("log", [(), ("--log",)])
@pytest.mark.parametrize(
    "values",
    [
        *([math.nan] * 3, [math.inf, 1.0, -math.inf], [5e-324, 1.7e308], [-1e308, 1e308]),
        *([1.0], [2.0, 2.0], [0.0, 0.0]),
    ],
    ids=str,
)
def test_no_values_break_a_plot(desk, values, log):
    record(desk, "odd", values)
    root = picture(desk, "odd", "--metric", "loss", *log)
    numbers = [one.get("points", "") for one in root.iter() if "points" in one.attrib]
    assert not any("nan" in text or "inf" in text for text in numbers)


def test_a_spike_of_one_step_in_a_long_run_is_seen(desk):
    record(desk, "long", [1000.0 if step == 4321 else 1.0 for step in range(6000)])
    root = picture(desk, "long", "--metric", "loss")
    (band,) = root.iter(f"{SVG}polygon")
    assert min(float(point.split(",")[1]) for point in band.get("points").split()) < 50


def test_no_text_of_a_run_is_more_than_text(two):
    record(two, "evil", [1.0, 2.0], name=HOSTILE)
    root = picture(two, "evil", "a", "--metric", "loss")
    assert not [one for one in root.iter() if "script" in one.tag]
    raw = (two.folder / "x.svg").read_text()
    assert "\x1b" not in raw and "\u202e" not in raw and "<script" not in raw
    assert any("alert(1)" in (text or "") for text in words_of(root))


def test_runs_of_one_name_are_told_apart(two):
    record(two, "c", [1.0, 2.0], name="wide")
    assert words_of(picture(two, "b", "c", "--metric", "loss"))[-2:] == ["wide (b)", "wide (c)"]


def test_forty_runs_are_told_apart_and_more_are_refused(desk):
    for number in range(41):
        record(desk, f"r{number:02}", [1.0, 2.0])
    done = desk.quick("runs", "plot", "--filter", "", "--metric", "loss", "-o", "x.svg")
    assert done.code == 2 and "cannot plot 41 runs: 40 can be told apart" in done.err
    root = picture(desk, "--filter", "-name:r40", "--metric", "loss")
    lines = [one.get("class") for one in root.iter(f"{SVG}polyline")]
    assert len(lines) == 80 and len(set(lines)) == 40  # a curve and its key each


def test_a_run_whose_folder_is_gone_keeps_its_curve(two):
    shutil.rmtree(two.folder / "out" / "a")
    root = picture(two, "a", "b", "--metric", "loss")
    lines = [one for one in root.iter(f"{SVG}polyline") if len(one.get("points").split()) > 2]
    assert len(lines) == 2


def test_of_a_filter_runs_without_the_metric_are_left_out_and_said(two):
    words = ("runs", "plot", "--filter", "", "--metric", "train/tokens", "-o", "x.svg", "--json")
    document = valid(two.quick(*words))
    assert (document["runs"], document["left_out"]) == (["a"], ["b"])
    assert (document["metric"], document["x"], document["log"]) == ("train/tokens", "step", False)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--metric", "loss", "-o", "x.svg"), 2, "which runs?"),
        (("a", "-o", "x.svg"), 2, "--metric"),
        (("a", "--metric", "loss"), 2, "--out"),
        (("a", "--metric", "loss", "-o", "x.gif"), 2, "which format?"),
        (("a", "--metric", "los", "-o", "x.svg"), 3, "the nearest is 'train/loss'"),
        (("nobody", "--metric", "loss", "-o", "x.svg"), 3, "no run 'nobody'"),
        (("b", "--metric", "loss", "--x", "tokens", "-o", "x.svg"), 3, "no tokens were logged"),
        (("--filter", "", "--metric", "los", "-o", "x.svg"), 3, "no run that was chosen has it"),
        (
            ("--filter", "name:none", "--metric", "loss", "-o", "x.svg"),
            *(3, "cannot plot 'loss': no run matches 'name:none'\n  next: albor runs ls"),
        ),
        (("a", "--metric", "loss", "-o", "nowhere/x.svg"), 3, "there is no folder"),
    ],
)
def test_a_mistake_is_told_and_nothing_is_written(two, words, code, said):
    done = two.quick("runs", "plot", *words)
    assert (done.code, done.out) == (code, "") and said in done.err, done
    assert sorted(path.name for path in two.folder.iterdir()) == ["out"]


def test_an_existing_file_is_kept_unless_told_otherwise(two):
    out = two.folder / "x.svg"
    out.write_text("mine")
    words = ("runs", "plot", "a", "--metric", "loss", "-o", out)
    assert two.quick(*words).code == 2 and out.read_text() == "mine"
    assert two.quick(*words, "--force").code == 0 and out.read_text() != "mine"


@pytest.mark.parametrize("log", [(), ("--log",)])
def test_png_has_the_lines_in_their_colours(two, log):
    record(two, "evil", [1.0, math.nan, math.inf, 0.0, 2.0], name=HOSTILE)
    out = two.folder / "x.png"
    done = two.quick("runs", "plot", "a", "evil", "--metric", "loss", *log, "-o", out)
    assert done.code == 0, done
    with Image.open(out) as picture:
        assert picture.size[0] > 1000
        found = {colour for _, colour in picture.convert("RGB").getcolors(1 << 20)}
    assert {(0xC4, 0x58, 0x1A), (0x1F, 0x7A, 0x9C), (255, 255, 255)} <= found


def test_without_pillow_png_names_what_to_install_and_svg_goes_on(two, monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    words = ("runs", "plot", "a", "--metric", "loss", "-o")
    done = two.quick(*words, "x.png")
    assert done.code == 1 and "Pillow is not installed" in done.err
    assert "next: pip install pillow, or --out x.svg" in done.err
    assert not (two.folder / "x.png").exists()
    assert two.quick(*words, "x.svg").code == 0


def test_a_plot_starts_without_the_libraries_that_are_slow_to_load(two):
    script = (
        "import sys; from albor_core.cli.main import run\n"
        "sys.argv = ['albor', 'runs', 'plot', 'a', '--metric', 'loss', '-o', 'x.svg']\n"
        "try: run()\n"
        "finally: print(sorted({name.split('.')[0] for name in sys.modules} &"
        " {'torch', 'numpy', 'pandas', 'matplotlib', 'pyarrow', 'textual', 'PIL', 'cairosvg'}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=two.folder
    )
    assert done.stdout.splitlines()[-1] == "[]", done
