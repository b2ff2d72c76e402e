"""Byte-level BPE: fixed specials, round trips, determinism, refusals."""

from __future__ import annotations

import json
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from albor_core.data.mix.fim import MARKS
from albor_core.data.pack.tokenizer import (
    load_tokenizer,
    plan_tokenizer,
    special_tokens,
    train_tokenizer,
    vocabulary_size,
)
from albor_core.data.pack.tokenizer_check import (
    RANDOM_TEXTS,
    TRICKY_TEXTS,
    check_tokenizer,
)
from albor_core.run.errors import ConfigError, DataError, NotFoundError, UsageError


def test_specials_have_fixed_ids_inside_the_vocabulary(tokenizer):
    loaded = load_tokenizer(tokenizer)
    assert [loaded.id_to_token(i) for i in range(5)] == [
        "<|endoftext|>",
        "<|pad|>",
        "<|fim_prefix|>",
        "<|fim_middle|>",
        "<|fim_suffix|>",
    ]
    assert loaded.encode("<|fim_middle|>x").ids[0] == 3
    assert vocabulary_size(loaded) == loaded.get_vocab_size() == 400


def test_without_fim_the_sentinels_take_no_ids(corpus, tmp_path):
    report = train_tokenizer(corpus, tmp_path, vocab_size=300, fim=False)
    assert report.specials == {"<|endoftext|>": 0, "<|pad|>": 1}
    loaded = load_tokenizer(tmp_path)
    assert all(loaded.token_to_id(name) is None for name in MARKS)


@settings(max_examples=100, deadline=None, database=None)
@given(st.text())
def test_any_text_survives_encode_and_decode(tokenizer, text):
    loaded = load_tokenizer(tokenizer)
    loaded.encode_special_tokens = True
    assert loaded.decode(loaded.encode(text).ids, skip_special_tokens=False) == text


def test_two_processes_train_the_same_bytes(corpus, tmp_path):
    script = (
        "import sys; from pathlib import Path\n"
        "from albor_core.data.pack.tokenizer import train_tokenizer\n"
        "train_tokenizer(Path(sys.argv[1]), Path(sys.argv[2]), vocab_size=500)\n"
    )
    for name in ("a", "b"):
        argv = [sys.executable, "-c", script, str(corpus), str(tmp_path / name)]
        subprocess.run(argv, check=True, timeout=120)
    one, two = ((tmp_path / name / "tokenizer.json").read_bytes() for name in "ab")
    assert one == two


def test_a_small_corpus_reports_the_vocabulary_it_really_got(tmp_path):
    pq.write_table(pa.table({"text": ["one two three"]}), tmp_path / "c.parquet")
    report = train_tokenizer(tmp_path / "c.parquet", tmp_path / "t.json", vocab_size=5000)
    assert report.out == tmp_path / "t.json"
    assert report.requested_vocab_size == 5000
    assert report.vocab_size == vocabulary_size(load_tokenizer(report.out)) < 5000


def test_a_vocabulary_that_cannot_hold_every_byte_is_refused(corpus, tmp_path):
    with pytest.raises(ConfigError, match="vocab_size 260") as caught:
        train_tokenizer(corpus, tmp_path / "t", vocab_size=260)
    assert "261" in caught.value.hint
    assert train_tokenizer(corpus, tmp_path / "t", vocab_size=261).vocab_size == 261


def test_another_tokenizer_is_replaced_only_by_force(corpus, tmp_path):
    out = tmp_path / "t.json"
    first = train_tokenizer(corpus, out, vocab_size=300)
    before = out.read_bytes()
    again = train_tokenizer(corpus, out, vocab_size=300)
    assert (first.reused, again.reused, again.sha256) == (False, True, first.sha256)
    for size in (290, 310):  # one that could not come of it, one that could
        with pytest.raises(UsageError, match="another tokenizer") as caught:
            train_tokenizer(corpus, out, vocab_size=size)
        assert "--force" in caught.value.hint and out.read_bytes() == before
    assert train_tokenizer(corpus, out, vocab_size=310, force=True).vocab_size == 310


def test_a_file_that_is_no_tokenizer_is_not_replaced_by_one(corpus, tmp_path):
    (tmp_path / "package.json").write_text('{"name": "mine"}')
    with pytest.raises(UsageError, match=r"package\.json: exists"):
        train_tokenizer(corpus, tmp_path / "package.json", vocab_size=300)
    assert (tmp_path / "package.json").read_text() == '{"name": "mine"}'


@pytest.mark.parametrize("name", ["notes.txt", "empty", "nowhere"])
def test_a_path_that_is_no_tokenizer_is_named_as_it_was_given(tmp_path, name):
    (tmp_path / "notes.txt").write_text("x")
    (tmp_path / "empty").mkdir()
    with pytest.raises((DataError, NotFoundError), match=rf"{name}: (not a|no) ") as caught:
        load_tokenizer(tmp_path / name)
    assert "albor tokenizer apply" in caught.value.hint


def test_documents_nobody_can_decode_are_left_out(tmp_path):
    texts = pa.array([b"good text", b"\xff\xfe", None, b""], pa.binary()).view(pa.string())
    pq.write_table(pa.table({"text": texts}), tmp_path / "c.parquet")
    assert train_tokenizer(tmp_path / "c.parquet", tmp_path, vocab_size=300).documents == 1


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b'{"model": 3}', b"\xff\xfe"], ids=repr)
def test_a_damaged_tokenizer_is_named(tmp_path, content):
    (tmp_path / "tokenizer.json").write_bytes(content)
    with pytest.raises(DataError, match=r"tokenizer\.json: not a tokenizer"):
        load_tokenizer(tmp_path)


def test_a_missing_tokenizer_says_how_to_make_one(tmp_path):
    with pytest.raises(NotFoundError) as caught:
        load_tokenizer(tmp_path / "t")
    assert "albor tokenizer apply" in caught.value.hint


def test_plan_lists_every_problem_at_once_and_writes_nothing(tmp_path):
    (tmp_path / "file").write_text("x")
    plan = plan_tokenizer(tmp_path / "no.parquet", tmp_path / "file" / "t", vocab_size=10)
    assert [p.field for p in plan.problems] == ["corpus", "vocab_size", "output"]
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_plan_of_a_good_corpus_counts_it(corpus, tmp_path):
    plan = plan_tokenizer(corpus, tmp_path / "new" / "dir", vocab_size=400)
    assert plan.problems == ()
    assert plan.documents == 60
    assert plan.text_bytes > 10_000
    assert plan.specials == special_tokens(fim=True)


def test_plan_names_the_columns_a_corpus_has_instead_of_text(tmp_path):
    pq.write_table(pa.table({"prose": ["x"]}), tmp_path / "c.parquet")
    (problem,) = plan_tokenizer(tmp_path / "c.parquet", tmp_path, vocab_size=400).problems
    assert "no column text (columns: prose)" in problem.message


def test_check_reports_strict_json_and_no_problem_for_a_good_tokenizer(corpus, tokenizer):
    report = check_tokenizer(tokenizer, corpus)
    json.dumps(report, allow_nan=False)
    assert report["problems"] == [] and report["failed"] == []
    assert report["samples"] == 60 + len(TRICKY_TEXTS) + RANDOM_TEXTS
    assert report["specials"]["<|endoftext|>"] == 0
    assert 1 < report["bytes_per_token"] < 20
    assert check_tokenizer(tokenizer)["bytes_per_token"] is None


def test_check_finds_a_tokenizer_that_loses_text(tokenizer, tmp_path):
    document = json.loads(tokenizer.read_text())
    document["normalizer"] = {"type": "Lowercase"}
    document["added_tokens"] = []
    (tmp_path / "tokenizer.json").write_text(json.dumps(document))
    report = check_tokenizer(tmp_path)
    assert "0123456789 1_000_000 0x1F 1e-5" in report["failed"]
    assert "round trip" in report["problems"][-1]


def _corpus(path, *texts):
    pq.write_table(pa.table({"text": list(texts)}), path)
    return path


def test_the_plan_tells_lines_bytes_and_different_characters(tmp_path):
    one = _corpus(tmp_path / "a.parquet", "ab\ncd\n", "e")
    two = _corpus(tmp_path / "b.parquet", "\u00e9a\nb")
    plan = plan_tokenizer([one, two], tmp_path, vocab_size=400)
    assert (plan.documents, plan.lines, plan.problems) == (3, 5, ())
    assert (plan.sampled.bytes, plan.sampled.lines) == (12, 5)
    assert (plan.sampled.unique_characters, plan.sampled.is_all) == (7, True)
    assert plan_tokenizer([one, two], tmp_path, vocab_size=400, max_lines=4).lines == 4
    (problem,) = plan_tokenizer([one, tmp_path / "no"], tmp_path, vocab_size=400).problems
    assert "no such corpus" in problem.message


def test_several_inputs_and_the_first_lines_give_the_tokenizer_of_that_text(tmp_path):
    lines = [f"word{n % 7} number{n % 5} end\n" for n in range(60)]
    one = _corpus(tmp_path / "a.parquet", "".join(lines[:25]))
    two = _corpus(tmp_path / "b.parquet", "".join(lines[25:]))
    both = _corpus(tmp_path / "c.parquet", "".join(lines[:25]), "".join(lines[25:]))
    cut = _corpus(tmp_path / "d.parquet", "".join(lines[:25]), "".join(lines[25:40]))

    def trained(name, given, **how):
        return train_tokenizer(given, tmp_path / name, vocab_size=300, **how)

    assert trained("1", [one, two]).sha256 == trained("2", both).sha256
    short = trained("3", [one, two], max_lines=40)
    assert (short.sha256, short.documents) == (trained("4", cut).sha256, 2)
    assert trained("5", [one, two], max_lines=25).documents == 1
