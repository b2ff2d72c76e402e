"""A corpus in parts: they are the corpus, no repository is in two, and seeds do not meet."""

from __future__ import annotations

import hashlib
import pickle
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from albor_core.data.mix.draw import draw
from albor_core.data.mix.split import DRAWS, SplitPlan, plan_split, rule_for, split
from albor_core.data.stage import units
from albor_core.data.stage.corpus import open_corpus
from albor_core.data.stage.record import read_record
from albor_core.run.errors import DataError, UsageError


def write_corpus(path: Path, sources: int, files: int, heavy: str = "") -> Path:
    rows = [
        {"text": f"{s} {n} " + "x" * (40_000 if f"s{s}" == heavy else 50),
         "source": f"s{s}", "file": f"{n}.py"}
        for s in range(sources) for n in range(files)
    ]  # fmt: skip
    pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=50)
    return path


def keys(path: Path) -> list[str]:
    return [key for key, _ in open_corpus(path).documents()]


def shares(train, val, test):
    return {"train": train, "val": val, "test": test}


def seeds(train=42, val=123, test=456):
    return {"train": train, "val": val, "test": test}


@pytest.mark.parametrize("by", ["repository", "file"])
def test_parts_are_the_corpus_and_share_nothing(tmp_path, monkeypatch, by):
    monkeypatch.setattr(units, "UNIT_BYTES", 4000)
    corpus = write_corpus(tmp_path / "c.parquet", 80, 5)
    report = split(corpus, tmp_path / "out", SplitPlan(by=by))
    found = {name: keys(tmp_path / "out" / name) for name in ("train", "val", "test")}
    assert sorted(key for part in found.values() for key in part) == sorted(keys(corpus))
    assert report.division.left_out == 0
    step = report.division.steps["val"]
    assert pickle.loads(pickle.dumps(step)) == step, "workers get it"
    for name, part in report.division.parts.items():
        assert part.documents == len(found[name]) == report.made[name].record.documents
        assert part.sources == len({key.split("/")[0] for key in found[name]})
    if by == "repository":
        sources = [{key.split("/")[0] for key in part} for part in found.values()]
        assert sum(map(len, sources)) == 80, "no source in two parts"
    in_order = [key for key in keys(corpus) if key in set(found["train"])]
    assert found["train"] == in_order


def oracle(key: str) -> str:
    """Where a file goes by the words of the documentation, written again."""

    def uniform(seed):
        return int(hashlib.sha256(f"{seed}\0{key}".encode()).hexdigest()[:16], 16) / 2**64

    if uniform(456) < 0.1:
        return "test"
    return "val" if uniform(123) < 0.2 / 0.9 else "train"


def test_each_part_draws_with_its_own_seed_from_what_is_left(tmp_path):
    corpus = write_corpus(tmp_path / "c.parquet", 20, 30)
    split(corpus, tmp_path / "a", SplitPlan(shares(0.7, 0.2, 0.1), by="file"))
    for name in DRAWS:
        expected = [key for key in keys(corpus) if oracle(key) == name]
        assert keys(tmp_path / "a" / name) == expected
        share = {"train": 0.7, "val": 0.2, "test": 0.1}[name]
        sigma = (600 * share * (1 - share)) ** 0.5
        assert abs(len(expected) - 600 * share) < 4 * sigma
    moved = SplitPlan(shares(0.7, 0.2, 0.1), seeds(val=7), "file")
    split(corpus, tmp_path / "b", moved)
    assert keys(tmp_path / "b" / "test") == keys(tmp_path / "a" / "test")
    assert keys(tmp_path / "b" / "val") != keys(tmp_path / "a" / "val")


def test_a_share_below_the_whole_leaves_documents_out(tmp_path):
    corpus = write_corpus(tmp_path / "c.parquet", 20, 30)
    report = split(corpus, tmp_path / "out", SplitPlan(shares(0.5, 0, 0.2), by="file"))
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["test", "train"]
    assert report.division.left_out == 600 - sum(
        len(keys(tmp_path / "out" / name)) for name in ("train", "test")
    )
    assert abs(report.division.left_out - 180) < 4 * (600 * 0.3 * 0.7) ** 0.5
    for name in ("train", "test"):
        step = read_record(tmp_path / "out" / name).steps()[-1]
        lost = sum(one["dropped"].get("no_part", 0) for one in step["sources"].values())
        assert lost == report.division.left_out


def test_a_source_that_outweighs_val_always_trains(tmp_path):
    drawn = next(n for n in range(60) if draw(123, f"s{n}") < 0.05 and draw(456, f"s{n}") >= 0.05)
    corpus = write_corpus(tmp_path / "c.parquet", 60, 5, heavy=f"s{drawn}")
    split(corpus, tmp_path / "out", SplitPlan(shares(0.85, 0.1, 0.05)))
    assert f"s{drawn}/0.py" in keys(tmp_path / "out" / "train")


def test_without_train_no_size_is_refused():
    rule = rule_for(SplitPlan(shares(0, 1, 0)), 3, 100)
    assert rule.part_of("all", 100) == "val"


def test_a_part_that_gets_nothing_is_refused_and_nothing_written(tmp_path):
    corpus = write_corpus(tmp_path / "c.parquet", 1, 20)
    with pytest.raises(DataError, match="none of its 1 sources falls into"):
        split(corpus, tmp_path / "out", SplitPlan())
    assert not (tmp_path / "out").exists()
    check = plan_split(corpus, tmp_path / "out", SplitPlan())
    assert "falls into" in check.problems[0].message


@pytest.mark.parametrize("asked", [shares(0.9, 0.2, 0), shares(-0.1, 1, 0), shares(0, 0, 0)])
def test_impossible_shares_are_refused(tmp_path, asked):
    corpus = write_corpus(tmp_path / "c.parquet", 5, 5)
    with pytest.raises(UsageError):
        split(corpus, tmp_path / "out", SplitPlan(asked))


def test_another_split_in_its_place_is_refused_before_anything_is_written(tmp_path):
    corpus = write_corpus(tmp_path / "c.parquet", 40, 5)
    plan = SplitPlan(by="file")
    split(corpus, tmp_path / "out", plan)
    assert all(one.reused for one in split(corpus, tmp_path / "out", plan).made.values())
    assert set(plan_split(corpus, tmp_path / "out", plan).actions.values()) == {"keep"}
    before = read_record(tmp_path / "out" / "train")
    other = SplitPlan(seeds=seeds(val=1), by="file")
    with pytest.raises(DataError, match="other inputs or settings"):
        split(corpus, tmp_path / "out", other)
    assert read_record(tmp_path / "out" / "train") == before
    split(corpus, tmp_path / "out", other, force=True)
    with pytest.raises(UsageError, match="is a corpus itself"):
        split(corpus, tmp_path / "out" / "val", plan)
