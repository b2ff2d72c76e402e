"""A sheet tells raters nothing of whose a side is; what they judged is counted with its doubt."""

from __future__ import annotations

import csv
import io

import pytest

from albor_core.eval.compare.sheet import (
    Pair,
    alpha,
    make_sheet,
    read_key,
    read_ratings,
    wilson,
)
from albor_core.run.errors import DataError, NotFoundError

PAIRS = [Pair(f"t/{n}", f"prompt {n}", f"answer {n} of first", f"answer {n} of last")
         for n in range(40)]  # fmt: skip


def rows_of(text):
    return [*csv.DictReader(io.StringIO(text, newline=""))]


def filled(path, text, judge, delimiter=","):
    rows = rows_of(text)
    for row in rows:
        row["better"] = judge(row)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys(), delimiter=delimiter)
        writer.writeheader()
        writer.writerows(rows)
    return path


def likes(word):
    return lambda row: "left" if word in row["left"] else "right"


def test_neither_names_nor_order_nor_sides_tell_whose_an_answer_is():
    text, key = make_sheet(PAIRS, ("llama-a", "llama-b"))
    assert "llama" not in text
    rows = rows_of(text)
    assert [row["prompt"] for row in rows] != [pair.prompt for pair in PAIRS]
    on_left = sum("first" in row["left"] for row in rows)
    assert 10 < on_left < 30
    for row in rows:
        told = key["pairs"][row["pair"]]
        assert told["left"] == ("a" if "first" in row["left"] else "b")
    assert (text, key) == make_sheet(PAIRS, ("llama-a", "llama-b"))
    assert text != make_sheet(PAIRS, ("llama-a", "llama-b"), seed=1)[0]


def test_a_rater_who_prefers_one_model_makes_it_win_whatever_the_side(tmp_path):
    text, key = make_sheet(PAIRS, ("a", "b"), repeats=10)
    assert len(rows_of(text)) == 50
    found = read_ratings([filled(tmp_path / "1.csv", text, likes("last"))], key)
    assert (found.b_wins, found.a_wins, found.win_rate, found.items) == (50, 0, 1.0, 40)
    assert found.p < 1e-9 and found.low > 0.9 and found.same_again == 1.0
    assert found.agreement is None


def test_a_rater_who_always_takes_the_left_shows(tmp_path):
    text, key = make_sheet(PAIRS, ("a", "b"), repeats=40)
    found = read_ratings([filled(tmp_path / "1.csv", text, lambda row: "left")], key)
    assert (found.left_share, found.same_again, found.win_rate) == (1.0, 0.0, 0.5)
    assert found.p == 1.0


def test_raters_who_agree_and_who_do_not(tmp_path):
    text, key = make_sheet(PAIRS, ("a", "b"))
    one = filled(tmp_path / "1.csv", text, likes("last"))
    same = filled(tmp_path / "2.csv", text, likes("last"), delimiter=";")
    other = filled(tmp_path / "3.csv", text, likes("first"), delimiter="\t")
    assert read_ratings([one, same], key).agreement == 1.0
    apart = read_ratings([one, other], key)
    assert apart.agreement < 0 and apart.win_rate == 0.5 and apart.p == 1.0


def test_the_verdict_is_of_the_items_that_the_sign_test_counts(tmp_path):
    text, key = make_sheet(PAIRS[:12], ("a", "b"))
    lost = ("prompt 10", "prompt 11")

    def narrowly(rater):
        return lambda row: likes("last" if rater < 6 and row["prompt"] not in lost else "first")(
            row
        )

    sheets = [filled(tmp_path / f"{rater}.csv", text, narrowly(rater)) for rater in range(11)]
    found = read_ratings(sheets, key)
    assert found.p < 0.05 and found.win_rate < 0.5
    assert found.verdict == "better"  # on ten items of twelve, if by a vote each


def test_cells_left_open_and_ties_are_counted(tmp_path):
    text, key = make_sheet(PAIRS[:4], ("a", "b"))
    said = iter(["", "Tie", " LEFT ", "tie"])
    found = read_ratings([filled(tmp_path / "1.csv", text, lambda row: next(said))], key)
    assert (found.left_open, found.ties, found.judged, found.items) == (1, 2, 3, 3)


def test_no_cell_is_a_formula():
    evil = Pair("t", '=HYPERLINK("x")', "+1", "@SUM(A1)")
    (row,) = rows_of(make_sheet([evil], ("a", "b"))[0])
    assert all(row[name][0] == "'" for name in ("prompt", "left", "right"))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda text: text.replace("better", "best", 1), "no column 'better'"),
        (lambda text: text.replace("\r\n1,", "\r\n99,", 1), "pair '99' is not in the key"),
        (lambda text: text.replace("\r\n2,", "\r\n1,", 1), "pair '1' is there twice"),
        (lambda text: text.replace(",,\r\n", ",A,\r\n", 1), "'a' is not left, right or tie"),
        (lambda text: text, "no sheet has an answer"),
    ],
)
def test_a_sheet_that_cannot_be_read_is_refused_by_name(tmp_path, change, said):
    text, key = make_sheet(PAIRS[:3], ("a", "b"))
    path = tmp_path / "sheet.csv"
    path.write_bytes(change(text).encode())
    with pytest.raises(DataError, match=said) as refused:
        read_ratings([path], key)
    assert refused.value.hint


def test_what_is_not_a_key_is_refused(tmp_path):
    with pytest.raises(NotFoundError, match="only the key knows"):
        read_key(tmp_path / "no.key.json")
    for text in ("{", "[]", '{"pairs": {"1": {"item": "x", "left": "c"}}, "a": "a", "b": "b"}'):
        (tmp_path / "key.json").write_text(text)
        with pytest.raises(DataError, match=r"key\.json"):
            read_key(tmp_path / "key.json")


def test_alpha_is_krippendorffs_on_his_own_example():
    """Krippendorff 2011, "Computing Krippendorff's alpha-reliability", section C: 0.743."""
    raters = ["123321412...", "1233224125.3", ".3332342251.", "12332441251."]
    units = [[float(r[at]) for r in raters if r[at] != "."] for at in range(12)]
    assert alpha(units) == pytest.approx(0.743, abs=5e-4)
    assert alpha([[1.0], [0.0]]) is None
    assert alpha([[1.0, 1.0], [1.0, 1.0]]) == 1.0


def test_the_interval_of_a_share_is_wilsons():
    low, high = wilson(7, 10)
    assert (low, high) == pytest.approx((0.3968, 0.8922), abs=1e-4)
    assert wilson(0, 5)[0] == 0.0 and wilson(5, 5)[1] == 1.0
