"""Corpora by weight in one: sizes exact, copies whole, the same bytes by any way of work."""

from __future__ import annotations

import hashlib
import math
import signal
import subprocess
import sys
import time
from collections import Counter
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from albor_core.data.mix import mix as mixing
from albor_core.data.mix.mix import Ingredient, measure, mix, parse_ingredient, plan_mix
from albor_core.data.mix.portions import Size, apportion, bytes_portion, portions
from albor_core.data.pipeline.history import sources_of
from albor_core.data.stage import units
from albor_core.data.stage.corpus import open_corpus
from albor_core.data.stage.record import read_record
from albor_core.run.errors import DataError, UsageError

WEIGHTS = st.lists(st.integers(1, 10**6).map(lambda n: Fraction(n, 1000)), min_size=1, max_size=6)


@given(st.integers(0, 10**7), WEIGHTS)
def test_shares_add_up_and_each_is_within_one_of_the_exact(total, weights):
    parts = apportion(total, weights)
    assert sum(parts) == total
    for part, weight in zip(parts, weights, strict=True):
        assert abs(part - total * weight / sum(weights)) < 1


@given(WEIGHTS, st.integers(1, 5000))
def test_a_weight_without_a_size_is_a_number_of_copies(weights, documents):
    for weight, portion in zip(
        weights, portions(weights, [documents] * len(weights), None), strict=True
    ):
        assert 0 <= portion.rest < documents
        assert abs(portion.documents(documents) - weight * documents) <= Fraction(1, 2)
        assert portion.copies == weight or weight.denominator != 1


@given(st.integers(0, 3000), st.lists(st.integers(0, 60), min_size=1, max_size=30), st.randoms())
def test_a_size_in_bytes_is_met_from_below_to_within_one_document(wanted, sizes, rng):
    if not sum(sizes):
        with pytest.raises(DataError):
            bytes_portion(wanted, np.array(sizes), np.arange(len(sizes)))
        return
    order = list(range(len(sizes)))
    rng.shuffle(order)
    portion = bytes_portion(wanted, np.array(sizes), np.array(order))
    got = portion.copies * sum(sizes) + sum(sizes[n] for n in order[: portion.rest])
    assert 0 <= portion.rest < len(sizes)
    assert got <= wanted
    assert got == wanted or got + sizes[order[portion.rest]] > wanted


def write_corpus(path: Path, source: str, documents: int, **more) -> Path:
    rows = [
        {"text": f"{source} {n} " + "x" * (n % 37), "source": source, "file": f"{n}.py", **more}
        for n in range(documents)
    ]
    pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=10)
    return path


@pytest.fixture
def small_units(monkeypatch):
    monkeypatch.setattr(units, "UNIT_BYTES", 300)
    monkeypatch.setattr(mixing, "UNIT_BYTES", 300)


@pytest.fixture
def pair(tmp_path):
    return (
        write_corpus(tmp_path / "a.parquet", "a", 30, licence="MIT"),
        write_corpus(tmp_path / "b.parquet", "b", 45),
    )


def ingredients(pair, *weights):
    return [Ingredient(path, Fraction(w)) for path, w in zip(pair, weights, strict=True)]


def keys(path: Path) -> list[str]:
    return [key for key, _ in open_corpus(path).documents()]


def tree_hash(folder: Path) -> dict[str, str]:
    return {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }


def drawn(pair, index: int, rest: int, seed: int) -> set[str]:
    """The remainder by the words of the documentation: the smallest hashes of (seed, key)."""
    return set(
        sorted(keys(pair[index]), key=lambda k: hashlib.sha256(f"{seed}\0{k}".encode()).digest())[
            :rest
        ]
    )


def test_corpora_follow_each_other_copy_by_copy(pair, tmp_path, small_units):
    report, shares = mix(ingredients(pair, "2.5", "0.2"), tmp_path / "out", seed=3)
    a, b = keys(pair[0]), keys(pair[1])
    more_a, some_b = drawn(pair, 0, 15, 3), drawn(pair, 1, 9, 3)
    expected = a + a + [k for k in a if k in more_a] + [k for k in b if k in some_b]
    assert keys(tmp_path / "out") == expected
    assert [share.documents_out for share in shares] == [75, 9]
    texts = dict(open_corpus(pair[0]).documents()) | dict(open_corpus(pair[1]).documents())
    for key, text in open_corpus(tmp_path / "out").documents():
        assert text == texts[key]
    total = report.record.counts.total
    assert (total.documents_in, total.documents) == (75, 84)
    assert total.dropped == {"not_drawn": 36}
    assert (
        total.bytes == sum(share.bytes_out for share in shares) == sum(map(len, texts_of(report)))
    )
    told = sources_of(report.record.steps())
    assert (told["a"].weight, told["b"].weight) == (2.5, 0.2)


def texts_of(report):
    return [text for _, text in open_corpus(report.out).documents()]


def test_shuffled_is_the_same_documents_in_another_order(pair, tmp_path, small_units):
    asked = ingredients(pair, "2.5", "0.2")
    mix(asked, tmp_path / "plain", seed=3)
    mix(asked, tmp_path / "one", seed=3, shuffle=True)
    mix(asked, tmp_path / "other", seed=4, shuffle=True)
    plain, one = keys(tmp_path / "plain"), keys(tmp_path / "one")
    assert Counter(one) == Counter(plain) and one != plain
    assert keys(tmp_path / "other")[:20] != one[:20]
    quarter = sum(key.startswith("a/") for key in one[:42])
    assert 30 < quarter < 42, "half of it has about half of each corpus"
    files = list(open_corpus(tmp_path / "one").files)
    licences = pq.read_table(files).column("licence").to_pylist()
    assert licences == ["MIT" if key.startswith("a/") else None for key in one]


@pytest.mark.parametrize("shuffle", [False, True])
def test_output_is_the_same_by_one_process_and_by_two(pair, tmp_path, small_units, shuffle):
    for workers in (1, 2):
        mix(ingredients(pair, "1.5", "2"), tmp_path / str(workers), shuffle=shuffle,
            workers=workers)  # fmt: skip
    assert tree_hash(tmp_path / "1") == tree_hash(tmp_path / "2")


@pytest.mark.parametrize("size", [Size(10), Size(100), Size(1000), Size(3000, "bytes")])
def test_with_a_size_weights_are_shares_of_it(pair, tmp_path, size):
    report, shares = mix(ingredients(pair, 10, 1), tmp_path / "out", size=size)
    got = [share.bytes_out if size.unit == "bytes" else share.documents_out for share in shares]
    slack = 60 if size.unit == "bytes" else 0
    assert size.amount - 2 * slack <= sum(got) <= size.amount
    assert math.isclose(got[0], size.amount * 10 / 11, abs_tol=max(1, slack))
    by_key = Counter(keys(tmp_path / "out"))
    for path, share in zip(pair, shares, strict=True):
        times = [by_key[key] for key in keys(path)]
        assert max(times) - min(times) <= 1, "no document is favoured by more than one copy"
        assert sum(times) == share.documents_out
    assert report.record.documents == sum(by_key.values())


KILLED = """
import sys; from pathlib import Path; from fractions import Fraction
from albor_core.data.mix import mix as m; from albor_core.data.stage import output, units
units.UNIT_BYTES = m.UNIT_BYTES = 300
import time
from albor_core.data.mix import mix_jobs
write = mix_jobs.write_part
def slow(*words): time.sleep(0.05); return write(*words)
mix_jobs.write_part = slow
asked = [m.Ingredient(Path(p), Fraction("1.5")) for p in sys.argv[2:]]
m.mix(asked, Path(sys.argv[1]), shuffle=True)
"""


@pytest.mark.slow
def test_a_killed_mix_goes_on_to_the_same_bytes(pair, tmp_path, small_units):
    asked = ingredients(pair, "1.5", "1.5")
    mix(asked, tmp_path / "whole", shuffle=True)
    process = subprocess.Popen([sys.executable, "-c", KILLED, tmp_path / "out", *pair])
    deadline = time.monotonic() + 60
    while len(list((tmp_path / "out.part" / ".work" / "done").glob("*.json"))) < 2:
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert plan_mix(asked, tmp_path / "out", shuffle=True).action == "resume"
    again, _ = mix(asked, tmp_path / "out", shuffle=True)
    assert again.resumed_units > 2
    assert tree_hash(tmp_path / "out") == tree_hash(tmp_path / "whole")


def test_plan_tells_exactly_what_the_mix_then_makes(pair, tmp_path):
    asked = ingredients(pair, "0.7", 3)
    plan = plan_mix(asked, tmp_path / "out", size=Size(2000, "bytes"))
    assert plan.action == "write" and not (tmp_path / "out").exists()
    report, shares = mix(asked, tmp_path / "out", size=Size(2000, "bytes"))
    assert shares == plan.shares
    assert report.record.bytes == sum(share.bytes_out for share in plan.shares)
    assert plan_mix(asked, tmp_path / "out", size=Size(2000, "bytes")).action == "keep"
    assert plan_mix(asked, tmp_path / "out").problems[0].field == "out"
    assert mix(asked, tmp_path / "out", size=Size(2000, "bytes"))[0].reused
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "letter.txt").touch()
    assert plan_mix(asked, tmp_path / "other", force=True).action == "replace"


def test_history_holds_what_was_done_to_each_corpus(pair, tmp_path):
    mix(ingredients(pair, 1, 1), tmp_path / "ab")
    mix([Ingredient(pair[0])], tmp_path / "a")
    mix([Ingredient(tmp_path / "ab"), Ingredient(tmp_path / "a")], tmp_path / "all")
    inputs = [len(step["settings"]["inputs"]) for step in read_record(tmp_path / "all").steps()]
    assert inputs == [2, 1, 2]


def test_bad_requests_are_refused_and_write_nothing(pair, tmp_path):
    with pytest.raises(DataError, match="none of the documents"):
        mix(ingredients(pair, 1000, 1), tmp_path / "out", size=Size(5))
    with pytest.raises(UsageError, match="more than 1,000"):
        measure(ingredients(pair, 2000, 1), None, 0)
    for text in ("a:0", "a:-1", "a:x", "a:nan", "a:1/0"):
        with pytest.raises(UsageError, match="not a weight"):
            parse_ingredient(text)
    pq.write_table(
        pa.table({"text": ["x"], "source": ["c"], "file": ["f"], "licence": [[1]]}),
        tmp_path / "c.parquet",
    )
    with pytest.raises(DataError, match="do not agree"):
        mix([Ingredient(pair[0]), Ingredient(tmp_path / "c.parquet")], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_weights_are_read_exactly(tmp_path, monkeypatch):
    assert parse_ingredient("a.parquet:0.1") == Ingredient(Path("a.parquet"), Fraction(1, 10))
    assert parse_ingredient("a.parquet") == Ingredient(Path("a.parquet"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c:d").touch()
    assert parse_ingredient("c:d") == Ingredient(Path("c:d"))
