"""What `data_stats` tells of corpora and shards, against a count in plain Python."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from albor_core.data.pack.manifest import MANIFEST_NAME, TOLD, write_manifest
from albor_core.data.pack.pretokenize import pretokenize
from albor_core.data.pipeline.history import contamination_of
from albor_core.data.pipeline.stats import data_stats
from albor_core.data.stage.counts import sift
from albor_core.data.stage.lengths import LengthHistogram
from albor_core.data.stage.stage import run_step
from albor_core.documents.json_schema import schema_of
from albor_core.run.errors import DataError, NotFoundError

ROWS = [
    {"text": "x" * (n * n), "source": f"s{n % 3}", "file": f"{n}.py",
     "licence": ("MIT", None, "Apache-2.0")[n % 3]}
    for n in range(40)
]  # fmt: skip


@dataclass(frozen=True)
class Short:
    """Drops texts of at most `most` characters."""

    most: int
    name: str = "quality"

    def settings(self):
        return {"most": self.most}

    def apply(self, table):
        return sift(table, ["short" if len(text) <= self.most else None
                            for text in table.column("text").to_pylist()])  # fmt: skip


@pytest.fixture
def rows(tmp_path) -> Path:
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.Table.from_pylist(ROWS), path, row_group_size=7)
    return path


def document_of(path: Path):
    """Through JSON and its schema, as a reader gets it."""
    import jsonschema

    document = json.loads(json.dumps(data_stats(path).to_json(), allow_nan=False))
    jsonschema.Draft202012Validator(schema_of("albor.data.stats")).validate(document)
    return document


def slots_of(lengths):
    """The histogram by hand: powers of two, the empty ones first."""
    edges = [0, 1]
    while edges[-1] <= max(lengths):
        edges.append(edges[-1] * 2)
    counts = [sum(low <= n < high for n in lengths) for low, high in pairwise(edges)]
    return edges, counts


def test_corpus_without_a_record_is_counted_by_source_licence_and_length(rows):
    found = document_of(rows)
    lengths = [len(row["text"]) for row in ROWS]
    assert (found["kind"], found["documents"], found["bytes"]) == ("corpus", 40, sum(lengths))
    assert found["licences"] == Counter(row["licence"] or "unknown" for row in ROWS)
    assert {one["source"]: (one["documents"], one["bytes"]) for one in found["sources"]} == {
        f"s{k}": (len(range(k, 40, 3)), sum(n * n for n in range(k, 40, 3))) for k in range(3)
    }
    edges, counts = slots_of(lengths)
    assert found["histogram"] == {"unit": "bytes", "edges": edges, "counts": counts}
    assert found["steps"] == [] and found["contamination"] is None
    assert found["sources"][0]["documents_in"] is None


def test_steps_and_drops_of_all_steps_are_told_by_source(rows, tmp_path):
    run_step(rows, tmp_path / "a", Short(16))
    run_step(tmp_path / "a", tmp_path / "b", Short(100))
    found = document_of(tmp_path / "b")
    assert [(s["step"], s["documents_in"], s["documents"]) for s in found["steps"]] == [
        ("quality", 40, 35), ("quality", 35, 29),
    ]  # fmt: skip
    assert found["steps"][1]["examples"]["short"][0] == "s2/5.py"
    for one in found["sources"]:
        assert one["documents_in"] - one["dropped"]["short"] == one["documents"]
    assert found["documents"] == 29


def test_texts_beyond_ascii_are_measured_in_bytes(tmp_path):
    path = tmp_path / "c.parquet"
    pq.write_table(pa.table({"text": ["\u00e9", None, "\u4e2d\u4e2d"]}), path)
    found = document_of(path)
    assert found["bytes"] == 8 and found["sources"][0]["source"] == "c"
    assert found["histogram"]["counts"] == [1, 0, 1, 1]


def test_shards_of_one_split_and_of_all(corpus, tokenizer, tmp_path):
    made = pretokenize(corpus, tokenizer, tmp_path / "shards", seq_len=32, val_fraction=0.2)
    one, whole = document_of(tmp_path / "shards" / "train"), document_of(tmp_path / "shards")
    assert (one["kind"], whole["kind"]) == ("shards", "dataset")
    assert [split["name"] for split in whole["splits"]] == ["train", "val"]
    assert whole["tokens"] == sum(split.tokens for split in made.splits.values())
    assert one["tokens"] == one["splits"][0]["tokens"] == made.splits["train"].tokens
    assert whole["documents"] == 60 and whole["vocab_size"] == 400 and one["seq_len"] == 32


def seal(folder: Path, **told) -> None:
    """Rewrite a manifest that tells this of its documents; as an old one, where nothing."""
    document = json.loads((folder / MANIFEST_NAME).read_text())
    known = {"schema", "data_hash", "told_sha256", *TOLD}
    fields = {key: value for key, value in document.items() if key not in known}
    write_manifest(folder, fields, told or None)


def test_shards_of_an_older_albor_are_told_as_far_as_they_tell(corpus, tokenizer, tmp_path):
    out = tmp_path / "shards"
    pretokenize(corpus, tokenizer, out, seq_len=32, val_fraction=0.2)
    for name in ("train", "val"):
        seal(out / name)
    found = document_of(out)
    assert (found["sources"], found["steps"], found["histogram"]) == ([], [], None)
    assert found["documents"] == 60 and found["bytes"] is None


def counts(documents_in, documents, **dropped):
    return {"documents_in": documents_in, "bytes_in": 0, "documents": documents, "bytes": 0,
            "dropped": dropped}  # fmt: skip


def test_splits_that_tell_their_sources_are_added_up(corpus, tokenizer, tmp_path):
    pretokenize(corpus, tokenizer, tmp_path / "shards", seq_len=32, val_fraction=0.2)
    dedup = {"step": "dedup", "sources": {"a": counts(30, 20, near_duplicate=10),
                                          "b": counts(10, 9, exact_duplicate=1)}}  # fmt: skip
    mix = {"step": "mix", "sources": {"a": counts(20, 50)}}
    for name, documents in (("train", 45), ("val", 5)):
        lengths = LengthHistogram()
        lengths.add([documents] * documents)
        other = 50 - documents
        split = {"step": "split", "sources": {"a": counts(50, documents, other_part=other),
                                              "b": counts(9, 0, other_part=9)}}  # fmt: skip
        seal(
            tmp_path / "shards" / name,
            sources={"a": {"documents": documents, "bytes": 10 * documents, "tokens": documents}},
            histogram=lengths.to_json("tokens"),
            history=[dedup, mix, split],
        )
    found = document_of(tmp_path / "shards")
    assert found["sources"] == [
        {"source": "a", "documents_in": 30, "documents": 50, "bytes": 500, "tokens": 50,
         "weight": 2.5, "dropped": {"near_duplicate": 10}, "duplicates": 10},
    ]  # fmt: skip
    assert found["histogram"]["counts"] == [0, 0, 0, 5, 0, 0, 45]
    assert [step["step"] for step in found["steps"]] == ["dedup", "mix", "split", "split"]


def test_bad_places_are_refused_by_name(tmp_path, rows):
    with pytest.raises(NotFoundError, match="nowhere"):
        data_stats(tmp_path / "nowhere")
    for name in ("train", "val"):
        run_step(rows, tmp_path / "parts" / name, Short(3))
    with pytest.raises(DataError, match="several corpora"):
        data_stats(tmp_path / "parts")
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / MANIFEST_NAME).write_text("{")
    with pytest.raises(DataError, match=r"torn/manifest\.json"):
        data_stats(tmp_path / "torn")


def test_lengths_by_powers_of_two_match_a_count_by_hand():
    lengths = [0, 1, 2, 3, 4, 7, 8, 2**40 - 1, 2**40, 2**40 + 1]
    found = LengthHistogram()
    found.add(lengths[:4])
    found.add(lengths[4:])
    edges, counts = slots_of(lengths)
    assert found.to_json("bytes") == {"unit": "bytes", "edges": edges, "counts": counts}


@dataclass(frozen=True)
class Longer:
    """Drops texts of more than `most` characters, as a search for duplicates would."""

    most: int
    name: str = "dedup"

    def settings(self):
        return {"most": self.most}

    def apply(self, table):
        return sift(table, ["copy" if len(text) > self.most else None
                            for text in table.column("text").to_pylist()])  # fmt: skip


def test_what_goes_in_is_what_stays_and_what_each_split_drops(tmp_path, tokenizer):
    rows = [{"text": f"x{n} = {n}\n" * (n % 9) or " ", "source": f"s{n % 3}", "file": f"{n}.py"}
            for n in range(120)]  # fmt: skip
    whole = tmp_path / "whole.parquet"
    pq.write_table(pa.Table.from_pylist(rows), whole)
    run_step(whole, tmp_path / "all", Short(0))
    for part in ("train", "val"):
        run_step(tmp_path / "all", tmp_path / "split" / part, OfPart(part))
        run_step(tmp_path / "split" / part, tmp_path / "parts" / part, Longer(45))
    pretokenize(tmp_path / "parts", tokenizer, tmp_path / "shards", seq_len=16)
    found = document_of(tmp_path / "shards")
    copies = Counter(row["source"] for row in rows if len(row["text"]) > 45)
    assert sum(copies.values()) > 10
    for one in found["sources"]:
        assert one["dropped"] == {"copy": copies[one["source"]]}
        assert one["duplicates"] == copies[one["source"]]
        assert one["documents_in"] == one["documents"] + one["dropped"]["copy"] == 40
    chains = {name: [step for step in found["steps"] if step["splits"] in ([], [name])]
              for name in ("train", "val")}  # fmt: skip
    for chain in chains.values():
        assert [one["step"] for one in chain] == ["quality", "split", "dedup", "pretokenize"]
        for earlier, step in pairwise(chain):
            assert step["documents_in"] == earlier["documents"]
            assert step["documents_in"] == step["documents"] + sum(step["dropped"].values())
    assert [one["splits"] for one in found["steps"]].count([]) == 1


@dataclass(frozen=True)
class OfPart:
    """Keeps the part of a split: every fourth file is of val."""

    part: str
    name: str = "split"

    def settings(self):
        return {"part": self.part}

    def apply(self, table):
        parts = ["val" if int(name[:-3]) % 4 == 0 else "train"
                 for name in table.column("file").to_pylist()]  # fmt: skip
        return sift(table, [None if one == self.part else "other_part" for one in parts])


@pytest.mark.parametrize("is_split", [True, False])
def test_documents_that_cannot_be_packed_are_counted_once(tmp_path, tokenizer, is_split):
    rows = [{"text": f"value_{n} = {n} + {n}\n" * 3 if n % 5 else "", "source": "s",
             "file": f"{n}.py"} for n in range(60)]  # fmt: skip
    if is_split:
        (tmp_path / "in").mkdir()
        for name, part in (("train", rows[:40]), ("val", rows[40:])):
            pq.write_table(pa.Table.from_pylist(part), tmp_path / "in" / f"{name}.parquet")
    else:
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / "in.parquet")
    source, out = tmp_path / ("in" if is_split else "in.parquet"), tmp_path / "shards"
    made = pretokenize(source, tokenizer, out, seq_len=16,
                       val_fraction=None if is_split else 0.3)  # fmt: skip
    assert made.skipped == {"unusable": 12}
    assert made.splits["train"].documents + made.splits["val"].documents == 48
    (one,) = document_of(out)["sources"]
    assert one["documents"] == 48 and one["dropped"] == {"unusable": 12}


def test_documents_searched_twice_count_once():
    def search(against, documents_in):
        return {"step": "contamination", "settings": {"against": {against: "0" * 8}},
                "sources": {"s": counts(documents_in, documents_in - 1, contaminated=1)},
                "findings": {"hits": [{"task": against}]}}  # fmt: skip

    steps = [search("a", 100), search("b", 79), search("b", 20), search("c", 78)]
    found = contamination_of(steps, [(), ("train",), ("val",), ("train",)])
    assert found == {
        "against": ["a", "b", "c"],
        "hits": [{"task": name} for name in "abbc"],
        "checked_documents": 100,
    }
    assert (
        contamination_of(steps[1:], [("train",), ("val",), ("train",)])["checked_documents"] == 99
    )
