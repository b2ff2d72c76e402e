"""Where data comes from, and that no changed byte passes for what a record says."""

from __future__ import annotations

import json

import jsonschema
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from albor_core.data.mix.fim import FillInTheMiddle
from albor_core.data.mix.split import SplitPlan, split
from albor_core.data.pack.manifest import MANIFEST_NAME
from albor_core.data.pack.pretokenize import pretokenize
from albor_core.data.pipeline.provenance import markdown, provenance
from albor_core.data.stage.record import RECORD_NAME
from albor_core.data.stage.stage import run_step
from albor_core.documents.json_schema import schema_of
from albor_core.run.errors import DataError


def document_of(path):
    document = json.loads(json.dumps(provenance(path), allow_nan=False))
    jsonschema.Draft202012Validator(schema_of("albor.data.provenance")).validate(document)
    return document


@pytest.fixture
def parts(corpus, tmp_path):
    split(corpus, tmp_path / "parts", SplitPlan(by="file"))
    return tmp_path / "parts"


def test_corpus_tells_its_steps_and_hashes(parts):
    found = document_of(parts / "train")
    assert found["ok"] and found["steps"][-1]["step"] == "split"
    assert found["steps"][-1]["settings"]["shares"]["train"] == 0.9
    manifest = json.loads((parts / "train" / RECORD_NAME).read_text())
    assert found["data_hash"] == manifest["data_hash"]
    assert [one["sha256"] for one in found["files"]] == [p["sha256"] for p in manifest["parts"]]
    assert sum(one["documents"] for one in found["sources"]) == found["documents"]


def test_changed_missing_and_foreign_files_of_a_corpus_are_told(parts):
    part = parts / "train" / "part-00000.parquet"
    table = pq.read_table(part)
    pq.write_table(table, part, compression="gzip")
    found = document_of(parts / "train")
    assert not found["ok"] and "SHA-256 differs" in found["problems"][0]["message"]
    pq.write_table(table, parts / "train" / "more.parquet")
    messages = " ".join(one["message"] for one in document_of(parts / "train")["problems"])
    assert "documents are" not in messages and "not in the record" in messages
    assert "its record says" in messages


def test_shards_tell_tokenizer_and_files(corpus, tokenizer, tmp_path):
    out = tmp_path / "shards"
    pretokenize(corpus, tokenizer, out, seq_len=32, val_fraction=0.2)
    found = document_of(out)
    assert found["ok"] and found["kind"] == "dataset"
    assert {one["file"].split("/")[0] for one in found["files"]} == {"train", "val"}
    assert (
        found["tokenizer_sha256"]
        == json.loads((out / "train" / MANIFEST_NAME).read_text())["tokenizer_sha256"]
    )
    shard = out / "val" / "shard-00000.parquet"
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 1
    shard.write_bytes(data)
    found = document_of(out)
    assert not found["ok"] and str(shard) in found["problems"][0]["file"]
    with pytest.raises(DataError):
        manifest = out / "train" / MANIFEST_NAME
        manifest.write_text(manifest.read_text().replace('"documents": ', '"documents": 1'))
        provenance(out)


def test_damaged_list_of_parts_and_a_flipped_bit_of_a_file_are_told(parts, tmp_path):
    record = parts / "train" / RECORD_NAME
    record.write_text(record.read_text().replace('"sha256"', '"sha257"'))
    found = document_of(parts / "train")
    assert [one["field"] for one in found["problems"]] == ["parts"]
    file = tmp_path / "one.parquet"
    run_step(parts / "val", file, FillInTheMiddle(1.0))
    assert document_of(file)["ok"]
    chunk = pq.ParquetFile(file).metadata.row_group(0).column(0)
    data = bytearray(file.read_bytes())
    data[chunk.data_page_offset + chunk.total_compressed_size - 1] ^= 1  # in the text
    file.write_bytes(data)
    with pytest.raises(DataError, match=r"one\.parquet: cannot be read"):
        provenance(file)


def test_corpus_without_a_record_is_not_vouched_for(tmp_path):
    pq.write_table(pa.table({"text": ["x"]}), tmp_path / "c.parquet")
    found = document_of(tmp_path / "c.parquet")
    assert not found["ok"] and "has no record" in found["problems"][0]["message"]


def test_page_is_the_same_for_the_same_data_and_no_name_breaks_it(parts, tmp_path):
    found = provenance(parts / "val")
    assert markdown(found) == markdown(provenance(parts / "val"))
    found["sources"][0]["source"] = "a|b\n# c"
    lines = markdown(found).splitlines()
    assert any(line.startswith("| a\\|b # c |") for line in lines)
    found["sources"][0] |= {"commit": None, "version": "8.1.7"}
    assert "| commit or version |" in markdown(found) and "| 8.1.7 |" in markdown(found)
    assert "1. " in markdown(found) and found["data_hash"] in markdown(found)
