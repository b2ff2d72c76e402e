"""Splits that came with the corpus, train alone, and what manifests tell of their documents."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from albor_core.data.mix import split as parting
from albor_core.data.pack.datasets import register_dataset
from albor_core.data.pack.manifest import TOLD, load_manifest
from albor_core.data.pack.pack_plan import plan_pretokenize
from albor_core.data.pack.pretokenize import pretokenize, verify_shards
from albor_core.data.pack.shard_check import split_folders
from albor_core.data.pack.tokenizer import load_tokenizer
from albor_core.data.stage.corpus import open_corpus
from albor_core.run.errors import DataError, UsageError
from albor_core.run.rundir import read_json

ARGS = {"seq_len": 32, "shard_sequences": 64}


@pytest.fixture(scope="module")
def parts(corpus, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("parts") / "parts"
    plan = parting.SplitPlan(shares={"train": 0.6, "val": 0.2, "test": 0.2}, by="file")
    parting.split(corpus, out, plan)
    return out


@pytest.fixture(scope="module")
def packed(parts, tokenizer, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("packed") / "out"
    pretokenize(parts, tokenizer, out, **ARGS)
    return out


def stored(split: Path) -> list[int]:
    rows = [pq.read_table(path)["input_ids"] for path in load_manifest(split).paths()]
    return [int(i) for column in rows for row in column.to_pylist() for i in row]


def expected(corpus: Path, tokenizer: Path) -> list[int]:
    encoder = load_tokenizer(tokenizer)
    return [
        i
        for _, text in open_corpus(corpus).documents()
        for i in (*encoder.encode(text.decode()).ids, 0)
    ]


@pytest.mark.parametrize("where", ["test.part", "test"])
def test_a_split_that_is_not_finished_is_never_left_out(parts, tokenizer, tmp_path, where):
    for name in ("train", "val"):
        (tmp_path / "parts" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "parts" / name).symlink_to(parts / name)
    (tmp_path / "parts" / where / ".work" / "done").mkdir(parents=True)
    with pytest.raises(DataError, match="parts/test: the corpus is not finished"):
        pretokenize(tmp_path / "parts", tokenizer, tmp_path / "out", **ARGS)


def test_a_killed_packer_beside_the_splits_that_it_reads_goes_on(parts, tokenizer, tmp_path):
    (tmp_path / "parts").mkdir()
    for name in ("train", "val", "test"):
        (tmp_path / "parts" / name).symlink_to(parts / name)

    def die(done, total):
        raise KeyboardInterrupt

    out = tmp_path / "parts" / "shards"
    with pytest.raises(KeyboardInterrupt):
        pretokenize(tmp_path / "parts", tokenizer, out, **ARGS, progress=die)
    assert (out.with_name("shards.part") / ".work" / "encoded").is_dir()
    assert pretokenize(tmp_path / "parts", tokenizer, out, **ARGS).resumed_units == 1


def test_each_split_holds_its_own_documents_and_no_other(parts, packed, tokenizer):
    for name in ("train", "val", "test"):
        ids, manifest = expected(parts / name, tokenizer), load_manifest(packed / name)
        assert stored(packed / name) == ids[: manifest.tokens]
        assert len(ids) - manifest.tokens == manifest.dropped_tokens < 32
        assert manifest.split == name and verify_shards(packed / name, hashes=True) == []
    assert [one.name for one in split_folders(packed)] == ["test", "train", "val"]


def test_splits_are_reused_and_take_no_fraction(parts, packed, tokenizer, tmp_path):
    assert pretokenize(parts, tokenizer, packed, **ARGS).reused
    with pytest.raises(UsageError, match="is split already"):
        pretokenize(parts, tokenizer, tmp_path / "o", **ARGS, val_fraction=0.1)
    plan = plan_pretokenize(parts, tokenizer, packed, **ARGS)
    assert plan.splits == ("train", "val", "test") and plan.action == "keep"
    assert plan_pretokenize(parts, tokenizer, tmp_path / "o", **ARGS, val_fraction=0.1).problems


def test_train_alone_is_all_of_the_corpus(corpus, tokenizer, tmp_path):
    report = pretokenize(corpus, tokenizer, tmp_path / "o", **ARGS, val_fraction=0)
    assert [*report.splits] == ["train"] and not (tmp_path / "o" / "val").exists()
    ids = expected(corpus, tokenizer)
    assert stored(tmp_path / "o" / "train") == ids[: report.splits["train"].tokens]


def test_a_split_that_is_not_made_again_is_gone(corpus, tokenizer, tmp_path):
    pretokenize(corpus, tokenizer, tmp_path / "o", **ARGS, val_fraction=0.2)
    pretokenize(corpus, tokenizer, tmp_path / "o", **ARGS, val_fraction=0, force=True)
    pretokenize(corpus, tokenizer, tmp_path / "fresh", **ARGS, val_fraction=0)
    names = [
        sorted(str(file.relative_to(root)) for file in root.rglob("*"))
        for root in (tmp_path / "o", tmp_path / "fresh")
    ]
    assert names[0] == names[1]


def test_manifest_tells_sources_lengths_and_steps(tokenizer, tmp_path):
    texts = [f"value = {n}\n" * (1 + n % 7) for n in range(40)]
    sources = [f"s{n % 3}" for n in range(40)]
    files = [f"{n}.py" for n in range(40)]
    table = pa.table({"text": [*texts, ""], "source": [*sources, "s0"], "file": [*files, "x"]})
    pq.write_table(table, tmp_path / "c.parquet")
    report = pretokenize(tmp_path / "c.parquet", tokenizer, tmp_path / "o", **ARGS)
    encoder = load_tokenizer(tokenizer)
    lengths = np.array([len(encoder.encode(text).ids) for text in texts])
    total = dict.fromkeys(sources, 0)
    documents = sum(split.documents for split in report.splits.values())
    unusable = []
    for split in report.splits.values():
        for name, one in split.sources.items():
            total[name] += one["tokens"] - one["documents"]
        whole = sum(one["tokens"] for one in split.sources.values())
        assert whole == split.tokens + split.dropped_tokens
        (step,) = split.history
        assert step["step"] == "pretokenize"
        assert sum(one["documents_in"] for one in step["sources"].values()) == 41
        lost = step["sources"]["s0"]["dropped"]
        unusable.append(lost.get("unusable", 0))
    assert sum(unusable) == 1  # of the split that its name is for
    assert total == {
        name: sum(int(n) for n, source in zip(lengths, sources, strict=True) if source == name)
        for name in total
    }
    counts = np.zeros(12, int)
    for split in report.splits.values():
        told = split.histogram
        counts[: len(told["counts"])] += told["counts"]
    edges = [0, *(2**k for k in range(12))]
    assert counts.tolist() == np.histogram(lengths, edges)[0].tolist()
    assert documents == 40


def test_steps_before_are_told(parts, packed):
    steps = load_manifest(packed / "test").history
    assert [one["step"] for one in steps] == ["import", "split", "pretokenize"]


def test_shards_that_tell_nothing_of_their_documents_are_read_as_before(packed, tmp_path):
    document = json.loads((packed / "val" / "manifest.json").read_text())
    for key in (*TOLD, "told_sha256"):
        del document[key]
    (tmp_path / "manifest.json").write_text(json.dumps(document))
    manifest = load_manifest(tmp_path)
    assert manifest.data_hash == load_manifest(packed / "val").data_hash
    assert [getattr(manifest, name) for name in TOLD] == [None] * len(TOLD)


def test_what_is_told_cannot_be_changed_unseen(packed, tmp_path):
    document = json.loads((packed / "val" / "manifest.json").read_text())
    document["sources"]["project"]["tokens"] += 1
    (tmp_path / "manifest.json").write_text(json.dumps(document))
    with pytest.raises(DataError, match="does not match its data_hash"):
        load_manifest(tmp_path)


def test_a_data_set_is_found_by_its_name(tmp_path, monkeypatch):
    monkeypatch.setenv("ALBOR_HOME", str(tmp_path / "home"))
    assert register_dataset(tmp_path / "one" / "shards", "dataset") == "shards"
    other = register_dataset(tmp_path / "two" / "shards", "dataset")
    assert other != "shards" and register_dataset(tmp_path / "one" / "shards", "mix") == "shards"
    kept = read_json(tmp_path / "home" / "datasets" / "shards.json")
    assert kept["path"] == str(tmp_path / "one" / "shards") and kept["kind"] == "mix"


def test_every_file_is_read_by_other_readers(corpus, packed):
    """As `datasets.load_dataset` does: all files of a split as one table."""
    import pyarrow.dataset as ds

    manifest = load_manifest(packed / "train")
    table = ds.dataset([str(path) for path in manifest.paths()], format="parquet").to_table()
    assert table.num_rows == manifest.sequences
    assert table.schema.field("input_ids").type == pa.list_(pa.uint32())
    assert ds.dataset(str(corpus), format="parquet").to_table().num_rows == 60


def test_datasets_reads_what_we_write(corpus, parts, packed, tmp_path):
    datasets = pytest.importorskip("datasets")
    for path, rows in (
        (packed / "train", load_manifest(packed / "train").sequences),
        (parts / "test", open_corpus(parts / "test").rows),
    ):
        files = [str(one) for one in sorted(path.glob("*.parquet"))]
        found = datasets.load_dataset(
            "parquet", data_files=files, split="train", cache_dir=str(tmp_path / "cache")
        )
        assert found.num_rows == rows
    assert len(found[0]["text"]) > 0
