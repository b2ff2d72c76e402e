"""Charts as files: what each format has, and input that could break one."""

from __future__ import annotations

import csv
import io
import math
import xml.etree.ElementTree as ET
from dataclasses import replace
from itertools import pairwise

import pytest
from PIL import Image

from albor_core.picture.line_picture import (
    LinePicture,
    PictureLine,
    PictureMark,
    csv_file,
    svg_file,
)
from albor_core.picture.png import png_file
from albor_core.picture.save import save
from albor_core.run.errors import AlborError

SVG = "{http://www.w3.org/2000/svg}"
LINE = PictureLine("mlp", "#c4581a", (1.0, 2.0, 3.0, 4.0), (4.0, 2.0, 1.0, 0.5))
PICTURE = LinePicture("val/mse", "step", (LINE,))
ODD = (
    (),
    (math.nan,) * 4,
    (math.inf, 1.0, -math.inf, 2.0),
    (5e-324, 1.7e308, -1.7e308, 0.0),
    (2.0,) * 4,
)


def lines_of(picture):
    """The points of each line of more than the two of a key, by its looks."""
    found = ET.fromstring(svg_file(picture)).iter(f"{SVG}polyline")
    return {
        one.get("class"): [tuple(map(float, p.split(","))) for p in one.get("points").split()]
        for one in found
        if len(one.get("points").split()) > 2
    }


def test_a_picture_has_the_axes_of_its_chart_and_equal_steps_of_a_logarithm():
    (linear,) = lines_of(PICTURE).values()
    steps = [y1 - y0 for (_, y0), (_, y1) in pairwise(linear)]
    assert steps[0] == pytest.approx(2 * steps[1], abs=0.3)
    (log,) = lines_of(replace(PICTURE, is_log=True)).values()
    steps = [y1 - y0 for (_, y0), (_, y1) in pairwise(log)]
    assert steps == pytest.approx([steps[0]] * 3, abs=0.3)
    (part,) = lines_of(replace(PICTURE, x_range=(0.0, 8.0), y_range=(0.0, 8.0))).values()
    xs, ys = zip(*part, strict=True)
    assert max(xs) - min(xs) < 0.4 * (linear[-1][0] - linear[0][0]) and min(ys) > 100


def test_colours_dashes_bands_and_marks_are_in_both_pictures():
    faint = replace(LINE, is_faint=True, low=(3.0, 1.0, 0.5, 0.2), high=(5.0, 3.0, 2.0, 1.0))
    other = replace(LINE, name="other", colour="#1f7a9c", y=(1.0, 2.0, 3.0, 4.0), dash="8 4")
    picture = LinePicture(
        "a", "step", (faint, LINE, other), marks=(PictureMark(2.0, "alert", True),)
    )
    text = svg_file(picture).decode()
    assert "stroke-dasharray:8 4" in text and "<polygon" in text and 'class="mark"' in text
    assert text.count('class="name"') == 2  # the faint line has the name of the one over it
    with Image.open(io.BytesIO(png_file(picture))) as image:
        found = {colour for _, colour in image.convert("RGB").getcolors(1 << 20)}
    assert {(0xC4, 0x58, 0x1A), (0x1F, 0x7A, 0x9C), (0xC0, 0x2B, 0x2B)} <= found


@pytest.mark.parametrize("count", [20, 39, 100])
def test_many_names_stand_in_columns_and_are_told_apart(count):
    names = [f"sweep-of-the-learning-rate-{n:03d}-seed-{n % 3}-\u8a00" for n in range(count)]
    lines = [replace(LINE, name=name) for name in names]
    picture = LinePicture("val/mse", "step", tuple(lines), order=tuple(reversed(names)))
    width, height = picture.size
    assert height <= 1.3 * width
    texts = [one for one in ET.fromstring(svg_file(picture)).iter() if one.get("class") == "name"]
    assert len({one.text for one in texts}) == count
    assert f"{count - 1}-seed" in texts[0].text  # in the order of the legend
    assert all(float(one.get("y")) < height for one in texts)
    with Image.open(io.BytesIO(png_file(picture))) as image:
        assert image.height <= 1.3 * image.width


@pytest.mark.parametrize("is_log", [False, True])
@pytest.mark.parametrize("values", ODD, ids=str)
def test_no_values_break_a_file(values, is_log):
    name, steps = "\u8a00\u8a9e" * 150 + "\x1b[31m</text>", (1.0, 2.0, 3.0, 4.0)
    line = PictureLine(name, "#c4581a", steps[: len(values)], values)
    picture = LinePicture("<script>" * 40, "step", (line,), is_log=is_log, broken=(2.0,))
    root = ET.fromstring(svg_file(picture))
    places = " ".join(one.get("points", "") for one in root.iter())
    assert "nan" not in places and "inf" not in places
    assert not [one for one in root.iter() if "script" in one.tag]
    assert png_file(picture).startswith(b"\x89PNG")
    assert len(list(csv.reader(io.StringIO(csv_file(picture).decode())))) == len(values) + 1


def test_csv_has_every_point_in_full_and_none_that_only_breaks_a_line():
    line = PictureLine(
        'a, "b"', "#c4581a", (1.0, 1.5, 2.0), (0.1 + 0.2, math.nan, math.inf),
        between=frozenset([1]),
    )  # fmt: skip
    rows = list(csv.reader(io.StringIO(csv_file(LinePicture("a", "step", (line,))).decode())))
    assert rows[0] == ["line", "part", "step", "value", "low", "high"]
    assert [row[2] for row in rows[1:]] == ["1", "2"] and rows[1][0] == 'a, "b"'
    assert float(rows[1][3]) == 0.1 + 0.2 and rows[2][3] == "inf"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("x.gif", "which format?"),
        ("x", "which format?"),
        ("there.svg", "exists"),
        ("none/x.svg", "there is no folder"),
        ("folder.svg", "exists"),
        ("\0.svg", "x"),
    ],
)
def test_a_file_that_cannot_be_written_is_said_and_nothing_is_left(tmp_path, name, said):
    (tmp_path / "there.svg").write_text("mine")
    (tmp_path / "folder.svg").mkdir()
    before = sorted(tmp_path.iterdir())
    with pytest.raises(AlborError, match=said if said != "x" else None):
        save(PICTURE, tmp_path / name)
    assert sorted(tmp_path.iterdir()) == before and (tmp_path / "there.svg").read_text() == "mine"
