"""Text where shards are expected: packed once, by the same packer, found again."""

from __future__ import annotations

import fcntl

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from albor_core.data.pack.manifest import load_manifest
from albor_core.data.pack.packed_corpus import packed_corpus, packed_place, text_corpus
from albor_core.data.pack.pretokenize import pretokenize
from albor_core.run.errors import DataError, NotFoundError


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("ALBOR_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def test_text_is_packed_once_with_a_line_that_says_so(corpus, tokenizer, home, tmp_path):
    said: list[str] = []
    split = packed_corpus(corpus, tokenizer, 32, say=said.append)
    assert home in split.parents and "holds text (column text): packing it" in said[0]
    again = packed_corpus(corpus, tokenizer, 32, say=said.append)
    assert again == split and said[1].endswith(f"packed before: {split}") and len(said) == 2
    report = pretokenize(corpus, tokenizer, tmp_path / "o", seq_len=32, val_fraction=0)
    assert load_manifest(split).data_hash == report.splits["train"].data_hash
    assert packed_corpus(corpus, tokenizer, 16) != split


def test_text_that_is_packed_otherwise_is_kept_beside_it(corpus, tokenizer, home):
    plain = packed_corpus(corpus, tokenizer, 64)
    best = packed_corpus(corpus, tokenizer, 64, packing="best-fit")
    assert best != plain == packed_place(text_corpus(corpus), tokenizer, 64)
    assert best == packed_place(text_corpus(corpus), tokenizer, 64, "best-fit")
    assert [load_manifest(one).packing["name"] for one in (plain, best)] == ["concat", "best-fit"]


def test_a_run_that_begins_while_another_packs_its_text_waits_for_it(corpus, tokenizer, home):
    split = packed_place(text_corpus(corpus), tokenizer, 32)
    split.parents[1].mkdir(parents=True)
    other = split.parent.with_name(f"{split.parent.name}.lock").open("wb")
    fcntl.flock(other, fcntl.LOCK_EX)
    said: list[str] = []

    def say(text):
        said.append(text)
        if "another run is packing it" in text:
            pretokenize(corpus, tokenizer, split.parent, seq_len=32, val_fraction=0)
            other.close()

    assert packed_corpus(corpus, tokenizer, 32, say=say) == split
    assert "packing it: waiting" in said[1] and "packed before" in said[2]


def test_other_text_is_packed_anew(tokenizer, home, tmp_path):
    file = tmp_path / "c.parquet"
    pq.write_table(pa.table({"text": ["value = 1\n" * 50]}), file)
    first = packed_corpus(file, tokenizer, 16)
    pq.write_table(pa.table({"text": ["value = 2\n" * 50]}), file)
    assert packed_corpus(file, tokenizer, 16) != first


def test_ids_come_before_text_and_columns_in_their_order(tmp_path):
    def column(**columns):
        pq.write_table(pa.table(columns), tmp_path / "c.parquet")
        found = text_corpus(tmp_path / "c.parquet")
        return None if found is None else found.column

    assert column(text=["x"], token_ids=[[1]]) is None
    assert column(input_ids=[[1]]) is None
    assert column(code=["x"], content=["y"]) == "content"
    assert column(code=["x"], text=["y"], content=["z"]) == "text"
    assert column(code=["x"]) == "code"
    with pytest.raises(DataError, match=r"no column of ids or text .*it has prose"):
        column(prose=["x"])


def test_any_text_column_is_packed(tokenizer, home, tmp_path):
    table = pa.table({"code": ["value = 1\n" * 50, "total = 2\n" * 50]})
    pq.write_table(table, tmp_path / "c.parquet")
    pq.write_table(table.rename_columns(["text"]), tmp_path / "t.parquet")
    made = [
        load_manifest(packed_corpus(tmp_path / f"{name}.parquet", tokenizer, 16)) for name in "ct"
    ]
    assert made[0].shards == made[1].shards and made[0].documents == 2


def test_shards_are_taken_as_they_are(corpus, tokenizer, home, tmp_path):
    pretokenize(corpus, tokenizer, tmp_path / "o", seq_len=32)
    split = tmp_path / "o" / "train"
    assert packed_corpus(split, None, 32) == split
    (split / "manifest.json").unlink()
    assert packed_corpus(split, None, 32) == split
    assert not home.exists()


def test_refusals_name_what_is_missing(corpus, tokenizer, home, tmp_path):
    with pytest.raises(DataError, match=r"holds text .column text., and no tokenizer"):
        packed_corpus(corpus, None, 32)
    with pytest.raises(NotFoundError):
        packed_corpus(tmp_path / "nowhere", tokenizer, 32)
    (tmp_path / "empty").mkdir()
    with pytest.raises(NotFoundError, match=r"no \.parquet file"):
        packed_corpus(tmp_path / "empty", tokenizer, 32)
    assert not home.exists()
    found = text_corpus(corpus)
    assert found is not None and not packed_place(found, tokenizer, 32).exists()
