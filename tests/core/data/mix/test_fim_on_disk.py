"""Documents cut for fill-in-the-middle: rebuilt to the letter, at the rate asked, by name alone."""

from __future__ import annotations

import dataclasses

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from albor_core.data.mix.fim import MARKS, FillInTheMiddle, Sentinels, cut, join, whole
from albor_core.data.pack.pretokenize import pretokenize
from albor_core.data.stage.stage import run_step
from albor_core.run.errors import DataError, UsageError

TEXTS = st.text(max_size=60).filter(lambda text: not any(mark in text for mark in MARKS))


@given(TEXTS, st.text(max_size=9), st.integers(0, 2**70), st.sampled_from(["psm", "spm"]))
def test_pieces_rebuild_the_document(text, key, seed, form):
    key = key.encode("utf-8", "replace").decode()
    hole = cut(text, key, seed=seed, rate=1.0)
    assert "".join(hole) == text
    made = join(hole, form, MARKS)
    assert whole(made, form, MARKS) == text
    assert [made.count(mark) for mark in MARKS] == [1, 1, 1]
    assert made.startswith(MARKS.prefix)
    assert hole == cut(text, key, seed=seed, rate=1.0), "pure"


def table_of(texts):
    names = [f"{n}.py" for n in range(len(texts))]
    return pa.table({"text": texts, "source": ["s"] * len(texts), "file": names})


def test_rate_is_met_within_four_sigma_and_cuts_are_uniform():
    texts = ["x" * 99] * 4000
    for rate in (0.1, 0.5, 0.9):
        made, counts = FillInTheMiddle(rate).apply(table_of(texts))
        number = sum(form == "psm" for form in made.column("fim").to_pylist())
        assert number == counts.extra["cut"]
        assert abs(number - 4000 * rate) < 4 * (4000 * rate * (1 - rate)) ** 0.5
    # The two cuts are the sorted pair of uniform ones: their distance is (n - 1/n) / 3 on average.
    holes = [cut("x" * 99, f"k{n}", seed=1, rate=1.0) for n in range(4000)]
    expected = (100 - 1 / 100) / 3
    for piece in range(3):
        mean = sum(len(hole[piece]) for hole in holes) / 4000
        near = expected if piece == 1 else (99 - expected) / 2
        assert abs(mean - near) < 4 * 100 / 18**0.5 / 4000**0.5
    firsts = sum(len(hole.before) == 0 for hole in holes)
    share = 1 - 0.99**2
    assert abs(firsts - 4000 * share) < 4 * (4000 * share * (1 - share)) ** 0.5, "ends included"


def test_what_holds_a_sentinel_or_is_short_stays():
    texts = [f"{'a' * 50}{mark}{'b' * 50}" for mark in MARKS] + ["short", "\u00e9" * 40]
    made, counts = FillInTheMiddle(1.0, min_chars=40).apply(table_of(texts))
    assert made.column("text").to_pylist()[:4] == texts[:4]
    assert made.column("fim").to_pylist() == [None] * 4 + ["psm"]
    assert dict(counts.extra) == {"with_sentinels": 3, "short": 1, "cut": 1}
    assert counts.total.bytes == sum(len(t.encode()) for t in made.column("text").to_pylist())


def test_a_document_is_cut_the_same_wherever_it_lies():
    texts = [f"text {n} " * 10 for n in range(50)]
    step, table = FillInTheMiddle(0.5, seed=9), table_of(texts)
    together = step.apply(table)[0].to_pylist()
    alone = [step.apply(table.slice(n, 1))[0].to_pylist()[0] for n in range(50)]
    assert together == alone
    other = dataclasses.replace(step, seed=10).apply(table)[0].to_pylist()
    assert other != together


def test_cutting_again_leaves_what_was_cut_and_tells_it(tmp_path):
    table = table_of([f"text {n} " * 10 for n in range(50)])
    pq.write_table(table.append_column("stars", pa.array(range(50))), tmp_path / "c.parquet")
    run_step(tmp_path / "c.parquet", tmp_path / "a", FillInTheMiddle(0.5))
    report = run_step(tmp_path / "a", tmp_path / "b", FillInTheMiddle(1.0, "spm"))
    first = pq.read_table(tmp_path / "a" / "part-00000.parquet").to_pylist()
    second = pq.read_table(tmp_path / "b" / "part-00000.parquet").to_pylist()
    assert [row["stars"] for row in second] == list(range(50))
    for before, after in zip(first, second, strict=True):
        assert after["fim"] == (before["fim"] or "spm")
        assert before["fim"] is None or after["text"] == before["text"]
        assert (
            whole(after["text"], after["fim"], MARKS)
            == table.column("text")[first.index(before)].as_py()
        )
    assert report.record.history[0]["settings"]["sentinels"] == MARKS._asdict()


def test_impossible_settings_are_refused():
    for rate in (0, -0.1, 1.5, float("nan")):
        with pytest.raises(UsageError):
            FillInTheMiddle(rate)
    for marks in (Sentinels(prefix=""), Sentinels("<a>", "<a>", "<b>"), Sentinels("a", "ab", "c")):
        with pytest.raises(UsageError):
            FillInTheMiddle(0.5, marks=marks)


def test_packed_documents_that_were_cut_have_their_sentinels_as_tokens(corpus, tokenizer, tmp_path):
    run_step(corpus, tmp_path / "cut", FillInTheMiddle(0.5, "spm"))
    pretokenize(tmp_path / "cut", tokenizer, tmp_path / "shards", seq_len=8, val_fraction=0)
    encoder = Tokenizer.from_file(str(tokenizer))
    encoder.encode_special_tokens = True

    def ids(text):
        return encoder.encode(text, add_special_tokens=False).ids

    expected = []
    for row in pq.read_table(tmp_path / "cut" / "part-00000.parquet").to_pylist():
        if row["fim"] is None:
            expected += ids(row["text"])
        else:
            head, last = row["text"].split(MARKS.middle)
            after = head.removeprefix(MARKS.prefix).removeprefix(MARKS.suffix)
            marks = [encoder.token_to_id(mark) for mark in MARKS]
            expected += [marks[0], marks[2], *ids(after), marks[1], *ids(last)]
        expected.append(encoder.token_to_id("<|endoftext|>"))
    shards = sorted((tmp_path / "shards" / "train").glob("*.parquet"))
    packed = [n for row in pq.read_table(shards).column("input_ids").to_pylist() for n in row]
    assert packed == expected[: len(packed)] and len(expected) - len(packed) < 8


def test_sentinels_that_a_tokenizer_does_not_have_are_refused(corpus, tokenizer, tmp_path):
    run_step(corpus, tmp_path / "cut", FillInTheMiddle(0.5, marks=Sentinels("<P>", "<M>", "<S>")))
    with pytest.raises(DataError, match="has no token '<M>'"):
        pretokenize(tmp_path / "cut", tokenizer, tmp_path / "shards", seq_len=8)
    assert not (tmp_path / "shards").exists()
