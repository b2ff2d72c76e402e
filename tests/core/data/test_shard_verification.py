"""Damage is named: shard, row, cause. Bare directories of other tools are read as they are."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from albor_core.data.load.packed_shards import PackedShards
from albor_core.data.pack.manifest import MANIFEST_NAME, data_hash
from albor_core.data.pack.pretokenize import pretokenize, read_manifest, verify_shards
from albor_core.run.errors import DataError, NotFoundError


@pytest.fixture(scope="module")
def original(corpus, tokenizer, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("verify")
    pretokenize(corpus, tokenizer, out, seq_len=32, val_fraction=0.2, shard_sequences=64)
    return out / "train"


@pytest.fixture
def split(original, tmp_path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "train"))


def edit_manifest(split, **fields):
    document = json.loads((split / MANIFEST_NAME).read_text())
    document.update(fields)
    document["data_hash"] = data_hash(document)
    (split / MANIFEST_NAME).write_text(json.dumps(document))


def rewrite_shard(split, ids):
    """Replace the first shard and make the manifest agree with its size and hash."""
    path = split / "shard-00000.parquet"
    pq.write_table(pa.table({"input_ids": pa.array(ids, pa.list_(pa.uint32()))}), path)
    from albor_core.run.files.publish import sha256_file

    shards = json.loads((split / MANIFEST_NAME).read_text())["shards"]
    shards[0].update(bytes=path.stat().st_size, sha256=sha256_file(path), sequences=len(ids))
    edit_manifest(split, shards=shards)


def test_an_intact_split_has_no_problem(split):
    assert verify_shards(split, hashes=False) == []
    assert verify_shards(split, hashes=True) == []


@pytest.mark.parametrize("hashes", [False, True])
def test_missing_and_truncated_shards_are_all_named_and_never_trained_on(split, hashes):
    (split / "shard-00000.parquet").unlink()
    cut = split / "shard-00001.parquet"
    cut.write_bytes(cut.read_bytes()[:-1])
    first, second = verify_shards(split, hashes=hashes)
    assert (first.field, first.message) == ("shard-00000.parquet", "missing")
    assert second.field == "shard-00001.parquet" and "the manifest says" in second.message
    assert "albor data pretokenize" in second.hint
    with pytest.raises(DataError, match=r"shard-00000\.parquet: missing"):
        PackedShards(split, seq_len=32)


def test_one_flipped_bit_is_found_by_hash_and_by_loading(split):
    shard = split / "shard-00001.parquet"
    data = bytearray(shard.read_bytes())
    data[len(data) // 3] ^= 1
    shard.write_bytes(data)
    assert verify_shards(split, hashes=False) == []
    (problem,) = verify_shards(split, hashes=True)
    assert problem.field == "shard-00001.parquet" and "SHA-256" in problem.message
    with pytest.raises(DataError, match=r"shard-00001\.parquet: damaged"):
        PackedShards(split, seq_len=32)


def test_an_id_outside_the_vocabulary_is_named_with_its_shard_and_row(split):
    ids = np.ones((5, 32), np.uint32)
    ids[3, 7] = 400
    rewrite_shard(split, ids.tolist())
    (problem,) = verify_shards(split, hashes=True)
    assert "row 3: id 400 is not below vocab_size 400" in problem.message
    with pytest.raises(DataError, match=r"shard-00000\.parquet: row 3: id 400"):
        PackedShards(split, seq_len=32)


def test_a_model_with_a_smaller_vocabulary_is_refused_its_data(split):
    with pytest.raises(DataError, match="is not below vocab_size 300"):
        PackedShards(split, seq_len=32, vocab_size=300)


def test_a_row_of_the_wrong_length_is_named(split):
    rewrite_shard(split, [[1] * 32, [1] * 31, [1] * 32])
    (problem,) = verify_shards(split, hashes=True)
    assert "row 1: 31 tokens, not 32" in problem.message
    with pytest.raises(DataError, match=r"row 1: 31 tokens, fewer than seq_len 32"):
        PackedShards(split, seq_len=32)


def test_a_wrong_count_in_the_manifest_is_found(split):
    shards = json.loads((split / MANIFEST_NAME).read_text())["shards"]
    shards[0]["sequences"] += 1
    edit_manifest(split, shards=shards)
    (problem,) = verify_shards(split, hashes=True)
    assert problem.message == "64 sequences, the manifest says 65"


def test_an_edited_manifest_is_refused(split):
    text = (split / MANIFEST_NAME).read_text()
    (split / MANIFEST_NAME).write_text(text.replace('"vocab_size": 400', '"vocab_size": 999'))
    with pytest.raises(DataError, match="does not match its data_hash"):
        read_manifest(split)


@pytest.mark.parametrize(
    "fields",
    [
        {"seq_len": -1},
        {"tokens": "many"},
        {"shards": [{"file": "../../x.parquet", "bytes": 1, "sha256": "", "sequences": 1}]},
        {"shards": [{"file": "x.parquet"}]},
        {"shards": None},
        {"tokenizer_sha256": None},
    ],
    ids=str,
)
def test_a_manifest_with_a_hostile_field_is_refused(split, fields):
    edit_manifest(split, **fields)
    with pytest.raises(DataError, match=r"manifest\.json: field missing or wrong"):
        read_manifest(split)


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"schema": "albor.shards/9"}', "\x00", "[" * 10**5],
    ids=lambda t: t[:9],
)
def test_a_manifest_that_is_not_one_is_refused(split, text):
    (split / MANIFEST_NAME).write_text(text)
    with pytest.raises(DataError, match=r"manifest\.json"):
        read_manifest(split, scan=True)


def test_the_directory_above_a_split_is_pointed_down(original):
    with pytest.raises(DataError) as caught:
        read_manifest(original.parent)
    assert str(original) in caught.value.hint


def test_a_scan_of_bare_shards_finds_what_the_manifest_said(split):
    sealed = read_manifest(split)
    (split / MANIFEST_NAME).unlink()
    with pytest.raises(NotFoundError):
        read_manifest(split)
    scanned = read_manifest(split, scan=True)
    for name in ("seq_len", "sequences", "tokens", "max_id"):
        assert getattr(scanned, name) == getattr(sealed, name)
    assert scanned.scanned and scanned.vocab_size is None
    assert [s.file for s in scanned.shards] == [s.file for s in sealed.shards]
    assert verify_shards(split, hashes=True) == []
    assert scanned.data_hash == read_manifest(split, scan=True).data_hash != sealed.data_hash


def test_a_single_parquet_file_is_a_split(split):
    file = split / "shard-00000.parquet"
    assert read_manifest(file, scan=True).sequences == 64
    assert len(PackedShards(file, seq_len=32)) == 64


def test_nothing_there_is_not_found(tmp_path):
    with pytest.raises(NotFoundError, match="no such directory"):
        read_manifest(tmp_path / "no", scan=True)
    with pytest.raises(NotFoundError, match=r"no \.parquet shard"):
        read_manifest(tmp_path, scan=True)


@pytest.mark.parametrize(
    "column, cause",
    [
        (pa.array(["text"]), "holds string, not lists of integers"),
        (pa.array([[1.5]]), "not lists of integers"),
        (pa.array([[1, -100]]), "ids from -100 to 1"),
        (pa.array([[1, 1 << 40]]), "are not token ids"),
        (pa.array([[1, None]]), "null rows or ids"),
        (pa.array([[1], None]), "null rows or ids"),
    ],
    ids=["text", "floats", "negative", "huge", "null id", "null row"],
)
def test_columns_that_hold_no_token_ids_are_refused(tmp_path, column, cause):
    pq.write_table(pa.table({"input_ids": column}), tmp_path / "a.parquet")
    with pytest.raises(DataError, match=cause):
        PackedShards(tmp_path, seq_len=1)


def test_a_missing_column_is_named_with_those_that_exist(tmp_path):
    pq.write_table(pa.table({"tokens": [[1, 2]]}), tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r"no column input_ids \(columns: tokens\)"):
        read_manifest(tmp_path, scan=True)
    assert PackedShards(tmp_path, seq_len=2, column="tokens")[0].tolist() == [1, 2]


def test_a_shard_that_declares_petabytes_is_refused_before_it_is_read(tmp_path, monkeypatch):
    pq.write_table(pa.table({"input_ids": [[1] * 1000]}), tmp_path / "bomb.parquet")
    monkeypatch.setattr("albor_core.data.pack.token_rows.MAX_ROW_GROUP_TOKENS", 999)
    with pytest.raises(DataError, match=r"bomb\.parquet: a row group declares more than 999"):
        PackedShards(tmp_path, seq_len=10)
