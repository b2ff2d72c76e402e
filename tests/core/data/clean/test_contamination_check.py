"""What a corpus or shards share with tasks: found, shown, and left out."""

from __future__ import annotations

import gzip
import json
import random
import re
import sys
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from albor_core.cli.main import run
from albor_core.data.clean.contamination import (
    MOST_SHOWN,
    check_corpus,
    contamination_step,
    task_texts,
)
from albor_core.data.pack.pretokenize import pretokenize
from albor_core.data.stage import units
from albor_core.data.stage.corpus import open_corpus
from albor_core.data.stage.record import read_record
from albor_core.data.stage.stage import run_step
from albor_core.run.errors import DataError, NotFoundError

PLACE = "shared/data/humaneval/HumanEval.jsonl.gz"  # in a folder above the checkout, if at all
VERBS = ["sums", "counts", "joins", "drops", "sorts", "halves", "pairs", "finds"]


def task(number: int) -> dict[str, str]:
    """A small function of its own, in the form of HumanEval."""
    chance = random.Random(number)
    verb, noun = VERBS[number % len(VERBS)], f"thing{number}"
    steps = "".join(
        f"    {noun}_{n} = values[{chance.randrange(9)}] + {chance.randrange(99)} * {verb}_{n}\n"
        for n in range(4)
    )
    says = f'    """Gives {noun} and {verb} them."""\n'
    return {
        "task_id": f"Own/{number}",
        "prompt": f"def {verb}_{noun}(values, {verb}_0):\n{says}",
        "entry_point": f"{verb}_{noun}",
        "canonical_solution": f"{steps}    return {noun}_3\n",
        "test": f"def check(candidate):\n    assert candidate([{number}, 2], 3) == {number * 7}\n",
    }


TASKS = [task(number) for number in range(8)]


def program(seed: int) -> str:
    chance = random.Random(seed)
    words = [f"w{chance.randrange(3000)}" for _ in range(chance.randrange(5, 200))]
    return "".join(word + chance.choice([" ", "\n", " = ", "(", "), "]) for word in words)


@pytest.fixture
def tasks(tmp_path) -> Path:
    path = tmp_path / "own.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in TASKS))
    return path


def write_corpus(path: Path, texts, groups: int = 4) -> Path:
    columns = {"text": texts, "source": ["s"] * len(texts)}
    table = pa.table({**columns, "file": [f"{n}.py" for n in range(len(texts))]})
    pq.write_table(table, path, row_group_size=-(-len(texts) // groups))
    return path


@pytest.fixture
def planted(tmp_path, monkeypatch) -> Path:
    """120 texts of which five hold a solution: among others, in capitals, respaced."""
    monkeypatch.setattr(units, "UNIT_BYTES", 1)
    texts = [program(seed) for seed in range(120)]
    for number, at in enumerate((3, 40, 41, 77, 119)):
        text = TASKS[number]["prompt"] + TASKS[number]["canonical_solution"]
        texts[at] = f"{program(at)}\n{text}\n{program(at + 1000)}"
    texts[40] = texts[40].upper()
    texts[41] = " \u2014 ".join(texts[41].split(" "))
    return write_corpus(tmp_path / "corpus.parquet", texts)


def runs(text: str, n: int = 10) -> set[tuple[str, ...]]:
    words = re.findall(r"\w+", text.lower())
    return {tuple(words[i : i + n]) for i in range(len(words) - n + 1)}


@pytest.mark.slow
def test_every_planted_solution_is_found_with_what_it_shares(planted, tasks):
    counts = check_corpus(planted, contamination_step([tasks]))
    hits = counts.findings["hits"]
    best = {hit["document"]: hit for hit in reversed(hits)}
    assert {key: hit["task"] for key, hit in best.items()} == {
        "s/3.py": "Own/0", "s/40.py": "Own/1", "s/41.py": "Own/2", "s/77.py": "Own/3",
        "s/119.py": "Own/4",
    }  # fmt: skip
    texts = dict(open_corpus(planted).documents())
    of_tasks = {one["task_id"]: runs("\n".join(one.values())) for one in TASKS}
    for hit in hits:
        ours, theirs = runs(texts[hit["document"]].decode()), of_tasks[hit["task"]]
        assert hit["jaccard"] == pytest.approx(len(ours & theirs) / len(ours | theirs), abs=1e-6)
        assert hit["share"] == pytest.approx(len(ours & theirs) / len(theirs), abs=1e-6)
        assert hit["runs"] == len(ours & theirs)
        shown = hit["overlap"].removesuffix(" ...")
        assert shown in texts[hit["document"]].decode() and len(shown) <= MOST_SHOWN
        assert runs(shown.rpartition(" ")[0]) <= ours & theirs and len(runs(shown)) > 3
    assert counts.total.dropped == {"contaminated": 5} and counts.total.documents == 115
    assert check_corpus(planted, contamination_step([tasks]), workers=2) == counts


def test_pairs_that_share_little_do_not_count_where_that_is_asked(planted, tasks):
    hits = check_corpus(planted, contamination_step([tasks], min_share=0.2)).findings["hits"]
    assert len(hits) == 5 and all(hit["share"] >= 0.2 for hit in hits)


def test_drop_leaves_nothing_to_find_and_the_record_tells(planted, tasks, tmp_path):
    step = contamination_step([tasks])
    made = run_step(planted, tmp_path / "out", step).record
    assert made.documents == 115
    record = read_record(tmp_path / "out")
    assert record.step == "contamination" and len(record.counts.findings["hits"]) >= 5
    assert list(record.settings["against"]) == ["own"]
    assert not check_corpus(tmp_path / "out", step).findings.get("hits")


def test_splits_leak_nothing_where_the_other_was_left_out(planted, tmp_path):
    texts = [text.decode() for _, text in open_corpus(planted).documents()]
    copied = [program(7000), texts[5], program(7001) + " " + texts[60]]
    val = write_corpus(tmp_path / "val.parquet", copied, groups=1)
    step = contamination_step([val])
    hits = check_corpus(planted, step).findings["hits"]
    assert {(hit["document"], hit["task"]) for hit in hits} == {
        ("s/5.py", "val:s/1.py"), ("s/60.py", "val:s/2.py"),
    }  # fmt: skip
    run_step(planted, tmp_path / "train", step)
    assert not check_corpus(tmp_path / "train", step).findings.get("hits")


def test_tasks_come_gzipped_as_parquet_and_as_text(tmp_path, tasks):
    zipped = tmp_path / "zipped.jsonl.gz"
    zipped.write_bytes(gzip.compress(tasks.read_bytes()))
    assert list(task_texts("zipped", zipped)) == list(task_texts("own", tasks))
    (tmp_path / "n.jsonl").write_text('{"task_id": 7, "code": "x", "test_list": ["a", "b"]}\n{}\n')
    assert list(task_texts("n", tmp_path / "n.jsonl")) == [("n/7", "x\na\nb"), ("n/2", "")]
    (tmp_path / "t.txt").write_text("words")
    assert list(task_texts("t", tmp_path / "t.txt")) == [("t", "words")]
    parquet = write_corpus(tmp_path / "p.parquet", ["a", "b"], groups=1)
    assert list(task_texts("p", parquet)) == [("p:s/0.py", "a"), ("p:s/1.py", "b")]


@pytest.mark.parametrize("content, told", [
    (b'{"a": "b"}\n{"a": \n', ":2: not JSON"), (b"[1]\n", ":1: not a JSON object"),
    (b'{"a": "too few words"}\n', "no text of 10 words"),
])  # fmt: skip
def test_damaged_tasks_are_refused_with_their_line(tmp_path, content, told):
    path = tmp_path / "bad.jsonl"
    path.write_bytes(content)
    with pytest.raises(DataError, match=re.escape(told)):
        contamination_step([path])
    (tmp_path / "bad.jsonl.gz").write_bytes(gzip.compress(content)[:-9])
    with pytest.raises(DataError, match=r"damaged|not JSON|no text|not a JSON"):
        contamination_step([tmp_path / "bad.jsonl.gz"])
    with pytest.raises(NotFoundError):
        contamination_step([tmp_path / "none.jsonl"])


def test_shards_are_decoded_and_say_where_a_document_begins(tmp_path, tokenizer, tasks, albor):
    texts = [program(seed) for seed in range(40)]
    texts[11] = TASKS[0]["prompt"] + TASKS[0]["canonical_solution"]
    made = write_corpus(tmp_path / "c.parquet", texts, groups=1)
    pretokenize(made, tokenizer, tmp_path / "shards", seq_len=64, val_fraction=0.05)
    told = []
    for split in ("train", "val"):
        words = (tmp_path / "shards" / split, "--against", tasks, "--tokenizer", tokenizer)
        result = albor(*words, "--json")
        assert result.code == 0
        told.append(json.loads(result.out))
    # The packer drops the tokens that do not fill a last row, and with them up to a document.
    assert 38 <= sum(one["checked_documents"] for one in told) <= 40
    (hit,) = (hit for one in told for hit in one["hits"] if hit["task"] == "Own/0")
    assert re.fullmatch(r"(train|val)/row \d+", hit["document"])


class Ended(NamedTuple):
    code: int
    out: str


@pytest.fixture
def albor(monkeypatch, capsys):
    """The command in this process: its code and what it printed."""

    def call(*words) -> Ended:
        argv = ["albor", "data", "contamination", *map(str, words), "--workers", "1"]
        monkeypatch.setattr(sys, "argv", argv)
        with pytest.raises(SystemExit) as ended:
            run()
        return Ended(ended.value.code, capsys.readouterr().out)

    return call


def test_command_reports_fails_when_asked_and_writes_what_is_left(planted, tasks, tmp_path, albor):
    result = albor(planted, "--against", tasks, "--report", tmp_path / "hits.json")
    assert result.code == 0
    assert "5 of 120 documents" in result.out and "Own/3" in result.out
    assert "thing0_0 = values" in result.out.lower(), "what is shared is shown"
    report = json.loads((tmp_path / "hits.json").read_text())
    assert report["checked_documents"] == 120 and report["contaminated_documents"] == 5
    assert albor(planted, "--against", tasks, "--fail-on-hit").code == 7
    assert albor(planted, "--against", tasks, "--fail-on-hit", "--json").code == 7
    out = tmp_path / "clean.parquet"
    assert albor(planted, "--against", tasks, "--drop", "-o", out).code == 0
    result = albor(out, "--against", tasks, "--fail-on-hit")
    assert result.code == 0 and "none of 115 documents shares 10 consecutive words" in result.out


def test_tasks_of_the_same_name_are_told_apart(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a").mkdir()
    for path in (Path("a/said"), Path("said")):
        path.write_text(f"ten words of {path} " + " ".join("efghijklmnop"))
    found = contamination_step([Path("a/said"), Path("said")]).against
    assert found.keys() == {"said", str(tmp_path / "said")} and len(set(found.values())) == 2


def test_what_makes_no_sense_is_refused_and_writes_nothing(planted, tasks, tmp_path, albor):
    before = sorted(tmp_path.iterdir())
    assert albor(planted, "--against", tasks, "-o", tmp_path / "x").code == 2
    assert albor(planted, "--against", tasks, "--drop").code == 2
    assert albor(planted, "--against", tasks, "--force").code == 2
    assert albor(planted, planted, "--against", tasks, "--drop", "-o", tmp_path / "x").code == 2
    assert albor(tmp_path / "none", "--against", tasks).code == 3
    assert albor(planted, "--against", tmp_path / "none").code == 3
    words = (tmp_path / "none", "--against", tmp_path / "none", "--drop", "-o", tasks, "--plan")
    told = albor(*words, "--json")
    problems = json.loads(told.out)["problems"]
    assert told.code == 1 and [one["field"] for one in problems] == ["against", "corpus", "out"]
    assert sorted(tmp_path.iterdir()) == before


def test_humaneval_solutions_are_found_where_the_file_is_there(tmp_path):
    above = (folder / PLACE for folder in Path(__file__).resolve().parents)
    if (path := next((one for one in above if one.is_file()), None)) is None:
        pytest.skip(f"no {PLACE} in a folder above this one")
    with gzip.open(path, "rt") as lines:
        real = [json.loads(line) for line in lines]
    held = {f"s/{n}.py": real[n * 30] for n in range(5)}
    texts = [one["prompt"] + one["canonical_solution"] for one in held.values()]
    corpus = write_corpus(tmp_path / "c.parquet", [*texts, *map(program, range(50))])
    hits = check_corpus(corpus, contamination_step([path])).findings["hits"]
    found = {(hit["document"], hit["task"]) for hit in hits}
    assert {(key, one["task_id"]) for key, one in held.items()} <= found
    assert {document for document, _ in found} == set(held)
