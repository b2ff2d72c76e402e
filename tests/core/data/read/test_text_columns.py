"""Columns are found by themselves: of token ids, and of text by the names in use."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from albor_core.data.mix.fim import FillInTheMiddle
from albor_core.data.mix.mix import mix, parse_ingredient
from albor_core.data.pack.pack_plan import plan_pretokenize
from albor_core.data.pack.pretokenize import read_manifest
from albor_core.data.pack.token_rows import token_rows
from albor_core.data.pack.tokenizer import plan_tokenizer
from albor_core.data.stage.corpus import TEXT_COLUMNS, open_corpus
from albor_core.data.stage.stage import plan_step, run_step
from albor_core.data.stage.survey import survey
from albor_core.eval.kinds.documents import open_documents
from albor_core.run.errors import DataError

TEXTS = [f"def number_{n}():\n    return {n}\n" * 4 for n in range(40)]


@pytest.fixture(params=TEXT_COLUMNS)
def named(request, tmp_path):
    path = tmp_path / f"{request.param}.parquet"
    pq.write_table(pa.table({"number": list(range(len(TEXTS))), request.param: TEXTS}), path)
    return path


def texts_in(folder):
    return sorted(
        text for one in folder.glob("*.parquet") for text in pq.read_table(one)["text"].to_pylist()
    )


def test_every_step_reads_text_by_any_of_its_usual_names(named, tokenizer, tmp_path):
    whole = FillInTheMiddle(1.0, min_chars=10_000)
    assert plan_step(named, tmp_path / "s", whole).problems == ()
    run_step(named, tmp_path / "s", whole)
    assert texts_in(tmp_path / "s") == sorted(TEXTS)
    assert open_corpus(tmp_path / "s").column == "text"
    mix([parse_ingredient(str(named)), parse_ingredient(str(tmp_path / "s"))], tmp_path / "m")
    assert texts_in(tmp_path / "m") == sorted(TEXTS * 2)
    assert survey(open_corpus(named)).bytes == sum(map(len, TEXTS))
    assert plan_tokenizer(named, tmp_path / "t", vocab_size=300).problems == ()
    planned = plan_pretokenize(named, tokenizer, tmp_path / "p", seq_len=32)
    assert planned.problems == () and planned.tokens
    assert [one.text for one in open_documents(named)] == TEXTS


def test_text_comes_before_the_other_names_and_none_is_told_with_what_there_is(tmp_path):
    pq.write_table(pa.table({"code": ["a"], "text": ["b"]}), tmp_path / "c.parquet")
    assert open_corpus(tmp_path / "c.parquet").column == "text"
    assert open_corpus(tmp_path / "c.parquet", "code").column == "code"
    pq.write_table(pa.table({"prose": ["a"]}), tmp_path / "d.parquet")
    with pytest.raises(DataError, match=r"no column text \(columns: prose\)") as refused:
        open_corpus(tmp_path / "d.parquet")
    assert "content, code or body" in refused.value.hint


@pytest.mark.parametrize("column", ["input_ids", "token_ids"])
def test_ids_are_found_by_either_of_their_names(tmp_path, column):
    rows = [[1, 2, 3, 4], [5, 6, 7, 8]]
    pq.write_table(pa.table({column: rows, "mask": rows}), tmp_path / "shard.parquet")
    assert read_manifest(tmp_path, scan=True, column="input_ids").sequences == 2
    (found,) = token_rows(tmp_path / "shard.parquet", "input_ids")
    assert np.array_equal(found.ids, np.concatenate(rows))
    (other,) = token_rows(tmp_path / "shard.parquet", "mask")
    assert np.array_equal(other.ids, found.ids)
    with pytest.raises(DataError, match="no column ids"):
        [*token_rows(tmp_path / "shard.parquet", "ids")]
