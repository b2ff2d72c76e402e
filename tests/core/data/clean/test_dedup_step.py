"""Duplicates go, the first of each stays, and nothing goes that is not similar to what stays."""

from __future__ import annotations

import hashlib
import random
import re
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from albor_core.data.clean import exact, near
from albor_core.data.clean.dedup import DedupStep, dedup_step, run_dedup
from albor_core.data.clean.minhash import bands_for, jaccards, shingle_sets
from albor_core.data.stage import units
from albor_core.data.stage.corpus import open_corpus
from albor_core.data.stage.record import read_record
from albor_core.data.stage.stage import plan_step
from albor_core.outputs.place import part_of
from albor_core.run.errors import DataError, UsageError


def write_corpus(path: Path, texts, *, groups: int = 1, sources=None) -> Path:
    rows = [
        {"text": text, "source": sources[n] if sources else f"s{n % 2}", "file": f"{n:04d}.py"}
        for n, text in enumerate(texts)
    ]
    pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=-(-len(rows) // groups))
    return path


def kept_of(path: Path) -> list[int]:
    return [int(key[-7:-3]) for key, _ in open_corpus(path).documents()]


def shingles(text: str) -> set[tuple[bytes, ...]]:
    """The plain oracle of what `minhash` says a shingle is."""
    tokens = re.findall(rb"[0-9A-Za-z_\x80-\xff]+|[\x21-\x7e]", text.encode())
    return {tuple(tokens[i : i + 5]) for i in range(max(1, len(tokens) - 4))} if tokens else set()


def similarity(a: set, b: set) -> float:
    return len(a & b) / len(a | b) if a | b else 0.0


def plainly(texts, threshold: float) -> list[int]:
    """Which stay where each is compared with all that stay before it."""
    sets = [shingles(text) for text in texts]
    kept: list[int] = []
    for number, text in enumerate(texts):
        if any(texts[k] == text or similarity(sets[k], sets[number]) >= threshold for k in kept):
            continue
        kept.append(number)
    return kept


def program(chance: random.Random, words: int) -> list[str]:
    return [f"w{chance.randrange(5000)}" for _ in range(words)]


def changed(chance: random.Random, words: list[str], share: float) -> list[str]:
    """With that share of its words, and with them up to five times as many shingles, new."""
    return [f"new{chance.randrange(9999)}" if chance.random() < share else one for one in words]


def families(seed: int, number: int) -> list[str]:
    """Texts, each with some that are like it to every degree, well shuffled."""
    chance = random.Random(seed)
    texts = []
    for _ in range(number):
        words = program(chance, chance.randrange(20, 300))
        texts.append(" ".join(words))
        texts += [
            " ".join(changed(chance, words, chance.random() * 0.12))
            for _ in range(chance.randrange(4))
        ]
    chance.shuffle(texts)
    return texts


@pytest.fixture
def many_units(monkeypatch):
    monkeypatch.setattr(units, "UNIT_BYTES", 1)


def test_numbers_of_shingles_are_those_of_a_plain_tokenizer():
    chance = random.Random(5)
    pieces = ["a", "bc", "X9_", "\u00e9", "\n", " ", "(", "+=", "\t", "\x00", "`", "\x7f", "\u4e2d"]
    texts = ["".join(chance.choices(pieces, k=chance.randrange(60))) for _ in range(200)]
    texts += ["", " \n", "one", "x" * 200_000 + " y " + "z" * 70_000]
    sets, plain = shingle_sets([text.encode() for text in texts]), [shingles(t) for t in texts]
    assert [len(one) for one in sets[:-1]] == [len(one) for one in plain[:-1]]
    for a in range(0, 203, 3):
        told = jaccards(sets[a], sets[:-1])
        assert told.tolist() == [similarity(plain[a], other) for other in plain[:-1]]


@pytest.mark.slow
def test_bands_catch_what_the_page_promises():
    """Planted pairs of every similarity against exact Jaccard of all of them."""
    chance = random.Random(11)
    texts = []
    for _ in range(1500):
        words = program(chance, 120)
        texts += [" ".join(words), " ".join(changed(chance, words, chance.random() * 0.06))]
    sets = [shingles(text) for text in texts]
    pairs = [similarity(sets[n], sets[n + 1]) for n in range(0, len(texts), 2)]
    table = pa.table({"text": texts, "source": ["s"] * 3000, "file": [f"{n}" for n in range(3000)]})
    kept, _ = DedupStep(near=True).apply(table)
    left = set(map(int, kept.column("file").to_pylist()))
    gone = [2 * n + 1 not in left for n in range(1500)]
    assert all(pair >= 0.8 for pair, is_gone in zip(pairs, gone, strict=True) if is_gone)
    alike = [is_gone for pair, is_gone in zip(pairs, gone, strict=True) if pair >= 0.8]
    close = [g for pair, g in zip(pairs, gone, strict=True) if 0.8 <= pair < 0.83]
    assert len(alike) > 500 and sum(alike) / len(alike) >= 0.995
    assert len(close) > 30 and sum(close) / len(close) >= 0.95


@pytest.mark.slow
@pytest.mark.parametrize("threshold", [0.5, 0.8, 0.95])
def test_what_stays_is_what_comparing_all_with_all_says(tmp_path, many_units, threshold):
    texts = families(3, 70)
    corpus = write_corpus(tmp_path / "c.parquet", texts, groups=5)
    made = run_dedup(corpus, tmp_path / "out", dedup_step(corpus, near=True, threshold=threshold))
    kept = kept_of(tmp_path / "out")
    assert kept == plainly(texts, threshold)  # recall above 0.99, and these seeds miss none
    dropped = made.record.counts.total.dropped
    assert dropped["exact_duplicate"] > 5 and sum(dropped.values()) == len(texts) - len(kept)
    sets = [shingles(text) for text in texts]
    for said in made.record.counts.examples["near_duplicate"]:
        gone, stays = (
            int(n) for n in re.fullmatch(r"s\d/(\d+).py \(kept: s\d/(\d+).py\)", said).groups()
        )
        assert similarity(sets[gone], sets[stays]) >= threshold and stays in kept and stays < gone


def test_equal_texts_go_and_white_space_counts_unless_told(tmp_path, many_units):
    texts = ["a = 1\n", "b", "a = 1\n", "a  =  1", "b", "", ""]
    corpus = write_corpus(tmp_path / "c.parquet", texts, groups=4, sources=list("xyxyxyx"))
    made = run_dedup(corpus, tmp_path / "a", dedup_step(corpus)).record
    assert kept_of(tmp_path / "a") == [0, 1, 3, 5]
    assert {name: one.dropped["exact_duplicate"] for name, one in made.counts.sources.items()} == {
        "x": 3, "y": 0,
    }  # fmt: skip
    assert made.counts.examples["exact_duplicate"][0] == "x/0002.py (kept: x/0000.py)"
    run_dedup(corpus, tmp_path / "b", dedup_step(corpus, normalize=True))
    assert kept_of(tmp_path / "b") == [0, 1, 5]


def test_text_equal_to_one_that_goes_is_told_with_the_one_that_stays(tmp_path, many_units):
    chance = random.Random(1)
    words = program(chance, 200)
    like = " ".join([*words[:-2], "x", "y"])
    corpus = write_corpus(tmp_path / "c.parquet", [" ".join(words), like, like], groups=3)
    made = run_dedup(corpus, tmp_path / "o", dedup_step(corpus, near=True)).record
    assert made.counts.total.dropped == {"near_duplicate": 2}
    assert [one[-15:] for one in made.counts.examples["near_duplicate"]] == [
        "(kept: s0/0000.py)"[-15:]
    ] * 2


def test_what_other_corpora_hold_leaves_this_one(tmp_path, many_units):
    chance = random.Random(2)
    words = [program(chance, 150) for _ in range(6)]
    texts = [" ".join(one) for one in words]
    near_third = " ".join([*words[2][:-3], "p", "q", "r"])
    val = write_corpus(tmp_path / "val.parquet", [texts[0], texts[0], near_third], groups=2)
    test = write_corpus(tmp_path / "test.parquet", [texts[1]])
    corpus = write_corpus(tmp_path / "train.parquet", [*texts, texts[3]], groups=3)
    run_dedup(corpus, tmp_path / "exact", dedup_step(corpus, against=[val, test]))
    assert kept_of(tmp_path / "exact") == [2, 3, 4, 5]
    made = run_dedup(corpus, tmp_path / "near", dedup_step(corpus, near=True, against=[val, test]))
    assert kept_of(tmp_path / "near") == [3, 4, 5]
    total = made.record.counts.total
    assert total.dropped == {"in_val": 2, "in_test": 1, "exact_duplicate": 1}
    assert total.documents_in == 7
    assert "kept: s0/0002.py" in made.record.counts.examples["in_val"][1]
    with pytest.raises(UsageError, match="the corpus itself"):
        dedup_step(corpus, against=[corpus])


def test_others_of_the_same_name_are_told_apart(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for folder, text in (("a/val", "one"), ("val", "two"), ("train", "three")):
        Path(folder).mkdir(parents=True)
        write_corpus(Path(folder, "part.parquet"), [text])
    step = dedup_step(Path("train"), against=[Path("a/val"), Path("val")])
    assert step.settings()["against"].keys() == {"val", str(tmp_path / "val")}
    assert len(set(step.settings()["against"].values())) == 2


@pytest.mark.slow
def test_shares_on_disk_say_what_one_sort_in_memory_says(tmp_path, many_units, monkeypatch):
    texts = families(8, 25)
    corpus = write_corpus(tmp_path / "c.parquet", texts, groups=4)
    run_dedup(corpus, tmp_path / "one", dedup_step(corpus, near=True))
    monkeypatch.setattr(exact, "SORTED_TOGETHER", 10)
    assert exact.shares_of(len(texts)) >= 4
    run_dedup(corpus, tmp_path / "many", dedup_step(corpus, near=True))
    assert tree_hash(tmp_path / "one") == tree_hash(tmp_path / "many")


def test_crowded_bucket_is_compared_up_to_a_bound_and_the_record_tells(tmp_path, monkeypatch):
    monkeypatch.setattr(near, "MOST_COMPARED", 2)
    chance = random.Random(4)
    words = program(chance, 100)
    # Of a template all share bands, and no two are similar enough.
    texts = [" ".join([*words, *program(chance, 22)]) for _ in range(30)]
    corpus = write_corpus(tmp_path / "c.parquet", texts)
    made = run_dedup(corpus, tmp_path / "o", dedup_step(corpus, near=True)).record
    assert made.documents == 30
    assert made.counts.extra["comparisons_cut"] > 10


def tree_hash(folder: Path) -> dict[str, str]:
    return {
        str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }


KILLED = """
import sys, time; from pathlib import Path
from albor_core.data.clean import dedup
from albor_core.data.stage import units; units.UNIT_BYTES = 1
where = sys.argv[3]
def slowly(kind):
    do = kind.__call__
    def call(self, number):
        if number:
            print(flush=True); time.sleep(600)  # killed here
        return do(self, number)
    kind.__call__ = call
slowly(getattr(dedup, where))
corpus = Path(sys.argv[1])
dedup.run_dedup(corpus, Path(sys.argv[2]), dedup.dedup_step(corpus, near=True))
"""


@pytest.mark.parametrize("where", ["_SignJob", "_BandJob", "_SetsJob", "_DropJob"])
def test_kill_in_any_pass_loses_what_was_begun_alone(tmp_path, many_units, where):
    corpus = write_corpus(tmp_path / "c.parquet", families(6, 30), groups=4)
    run_dedup(corpus, tmp_path / "whole", dedup_step(corpus, near=True))
    out = tmp_path / "out"
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, corpus, out, where], stdout=subprocess.PIPE
    )
    assert process.stdout.readline()
    process.send_signal(signal.SIGKILL)
    process.wait()
    done = sorted(path for path in (part_of(out) / ".work").rglob("*.json"))
    stamps = [path.stat().st_mtime_ns for path in done]
    assert done
    seen = []
    run_dedup(corpus, out, dedup_step(corpus, near=True),
              progress=lambda *_: seen.append([p.stat().st_mtime_ns for p in done]))  # fmt: skip
    assert seen[0] == stamps, "what was done before the kill is done again"
    assert tree_hash(out) == tree_hash(tmp_path / "whole")


def test_two_processes_write_the_same_bytes(tmp_path, many_units):
    corpus = write_corpus(tmp_path / "c.parquet", families(7, 60), groups=6)
    val = write_corpus(tmp_path / "val.parquet", families(7, 5), groups=2)
    step = dedup_step(corpus, near=True, against=[val])
    for folder, workers in (("one", 1), ("two", 2)):
        run_dedup(corpus, tmp_path / folder / "o.parquet", step, workers=workers)
    assert tree_hash(tmp_path / "one") == tree_hash(tmp_path / "two")
    assert run_dedup(corpus, tmp_path / "one" / "o.parquet", step).reused
    with pytest.raises(DataError, match="other inputs or settings"):
        run_dedup(corpus, tmp_path / "one" / "o.parquet", dedup_step(corpus, near=True))


def test_plan_looks_at_parts_by_themselves_and_writes_nothing(tmp_path):
    corpus = write_corpus(tmp_path / "c.parquet", families(9, 30))
    step = dedup_step(corpus, near=True)
    plan = plan_step(corpus, tmp_path / "o", step)
    made = run_dedup(corpus, tmp_path / "o", step).record
    assert plan.sampled.total == made.counts.total and plan.action == "write"
    assert read_record(tmp_path / "o").settings["threshold"] == 0.8


def test_bands_of_a_threshold_promise_their_recall():
    for threshold in (0.3, 0.5, 0.7, 0.8, 0.9, 0.99, 1.0):
        bands = bands_for(threshold)
        assert bands.recall(threshold) >= 0.99 and bands.permutations <= 128
    assert (bands_for(0.8).count, bands_for(0.8).rows) == (21, 6)
