"""WordPiece and Unigram beside BPE, the files beside tokenizer.json, what `check` says of any."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from albor_core.data.pack.tokenizer import (
    load_tokenizer,
    plan_tokenizer,
    special_tokens,
    train_tokenizer,
)
from albor_core.data.pack.tokenizer_check import PATTERNS, check_tokenizer, random_texts
from albor_core.data.pack.tokenizer_kinds import KINDS, UNKNOWN, files_beside, names_beside
from albor_core.run.errors import UsageError


@pytest.fixture(scope="module")
def trained(corpus, tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("kinds")
    return {
        kind: train_tokenizer(corpus, folder / kind, vocab_size=400, kind=kind).out
        for kind in KINDS
    }


@pytest.mark.parametrize("kind", KINDS)
def test_specials_come_first_in_every_kind(trained, kind):
    loaded = load_tokenizer(trained[kind])
    names = special_tokens(fim=True, kind=kind)
    assert [loaded.token_to_id(name) for name in names] == [*range(len(names))]
    assert loaded.encode("x<|fim_middle|>y").ids.count(3) == 1


def test_vocabularies_lie_beside_in_formats_that_others_read(trained):
    folder = trained["bpe"].parent
    kept = Tokenizer(models.BPE.from_file(str(folder / "vocab.json"), str(folder / "merges.txt")))
    kept.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    text = "def total_7(index):\n    return count + 3\n"
    assert kept.encode(text).ids == load_tokenizer(trained["bpe"]).encode(text).ids
    words = (trained["wordpiece"].parent / "vocab.txt").read_text().splitlines()
    assert words[5] == UNKNOWN and words.index("def") == load_tokenizer(
        trained["wordpiece"]
    ).token_to_id("def")
    assert (trained["unigram"].parent / "unigram.json").is_file()


@pytest.mark.parametrize("name", ["tokenizer.json", "own.json"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_files_beside_are_those_that_are_named_before(trained, tmp_path, kind, name):
    tokenizer, target = Tokenizer.from_file(str(trained[kind])), tmp_path / name
    written = [path for path, _ in files_beside(tokenizer, target)]
    assert names_beside(kind, target) == written


def test_a_name_of_its_own_keeps_two_tokenizers_of_a_folder_apart(corpus, tmp_path):
    for name, size in (("small", 270), ("large", 300)):
        report = train_tokenizer(corpus, tmp_path / f"{name}.json", vocab_size=size)
        assert report.files == (f"{name}-merges.txt", f"{name}-vocab.json")
    assert len(json.loads((tmp_path / "small-vocab.json").read_text())) == 270


def test_a_vocabulary_of_somebody_else_beside_is_not_replaced(corpus, tmp_path):
    (tmp_path / "vocab.json").write_text("{}")
    with pytest.raises(UsageError, match=r"vocab\.json: exists"):
        train_tokenizer(corpus, tmp_path, vocab_size=300)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["vocab.json"]
    assert (tmp_path / "vocab.json").read_text() == "{}"


def test_a_missing_vocabulary_is_written_beside_the_same_tokenizer(corpus, tmp_path):
    first = train_tokenizer(corpus, tmp_path, vocab_size=300)
    (tmp_path / "merges.txt").unlink()
    again = train_tokenizer(corpus, tmp_path, vocab_size=300)
    assert again.sha256 == first.sha256 and (tmp_path / "merges.txt").is_file()
    assert train_tokenizer(corpus, tmp_path, vocab_size=300).reused


@pytest.mark.slow
def test_two_processes_train_the_same_wordpiece(corpus, trained, tmp_path):
    script = (
        "import sys; from pathlib import Path\n"
        "from albor_core.data.pack.tokenizer import train_tokenizer\n"
        "train_tokenizer(Path(sys.argv[1]), Path(sys.argv[2]), vocab_size=400, kind='wordpiece')\n"
    )
    subprocess.run([sys.executable, "-c", script, corpus, tmp_path], check=True, timeout=120)
    assert (tmp_path / "tokenizer.json").read_bytes() == trained["wordpiece"].read_bytes()


def test_a_unigram_is_replaced_only_by_force(corpus, trained):
    with pytest.raises(UsageError, match="gives other bytes"):
        train_tokenizer(corpus, trained["unigram"], vocab_size=400, kind="unigram")


@pytest.mark.parametrize("kind", KINDS)
def test_check_holds_each_kind_to_what_it_promises(trained, corpus, kind):
    report = check_tokenizer(trained[kind], corpus)
    json.dumps(report, allow_nan=False)
    assert report["problems"] == []
    on_bytes = kind != "wordpiece"
    assert report["promises_round_trip"] == on_bytes
    assert report["byte_tokens"] == (256 if on_bytes else None)
    assert (report["failed"] == []) == on_bytes


def test_random_texts_hold_every_length_of_utf8():
    texts = random_texts()
    assert texts == random_texts()
    assert {len(one.encode()) for text in texts for one in text} == {1, 2, 3, 4}


def test_patterns_of_python_are_counted(trained, tmp_path):
    lines = "\n".join(f"{word} x {word}" for word in PATTERNS)
    pq.write_table(pa.table({"text": [lines] * 20}), tmp_path / "c.parquet")
    out = train_tokenizer(tmp_path / "c.parquet", tmp_path / "t", vocab_size=400).out
    assert check_tokenizer(out)["patterns"] == {"of": 8, "covered": 8, "missing": []}
    bare = train_tokenizer(tmp_path / "c.parquet", tmp_path / "bare", vocab_size=261).out
    assert check_tokenizer(bare)["patterns"] == {"of": 8, "covered": 0, "missing": [*PATTERNS]}


def test_fertility_is_told_by_source(trained, tmp_path):
    rows = {
        "text": ["def f(x):\n    return x\n", "one two three", "four"],
        "source": ["code", "prose", "prose"],
        "file": ["a", "b", "c"],
    }
    pq.write_table(pa.table(rows), tmp_path / "c.parquet")
    found = check_tokenizer(trained["bpe"], tmp_path / "c.parquet")["fertility"]
    encoder = load_tokenizer(trained["bpe"])
    tokens = sum(len(encoder.encode(text).ids) for text in rows["text"][1:])
    prose = found["sources"]["prose"]
    assert (prose["documents"], prose["words"], prose["bytes"]) == (2, 4, 17)
    assert prose["tokens"] == tokens and prose["tokens_per_word"] == tokens / 4
    assert found["all"]["tokens"] == tokens + found["sources"]["code"]["tokens"]


def test_a_vocabulary_without_some_bytes_is_a_problem(tmp_path):
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())[10:]
    made = Tokenizer(models.BPE(vocab={one: n for n, one in enumerate(alphabet)}, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens(["<|endoftext|>"])
    made.save(str(tmp_path / "tokenizer.json"))
    report = check_tokenizer(tmp_path)
    assert report["byte_tokens"] == 246
    assert any("10 of 256 bytes have no token" in one for one in report["problems"])


def test_a_foreign_tokenizer_is_taken_as_it_is(tmp_path):
    from tokenizers import normalizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE(vocab={one: n for n, one in enumerate(alphabet)}, merges=[]))
    made.normalizer = normalizers.NFC()  # as Qwen's
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens(["<s>", "</s>"])
    made.save(str(tmp_path / "tokenizer.json"))
    report = check_tokenizer(tmp_path)
    assert report["specials"] == {"<s>": 256, "</s>": 257}
    assert report["roles"] == {"eos": 257, "bos": 256, "pad": None}
    assert report["failed"] and report["problems"] == []


@pytest.mark.parametrize("kind", KINDS)
def test_plan_tells_a_time_from_a_sample_and_writes_nothing(corpus, tmp_path, kind):
    plan = plan_tokenizer(corpus, tmp_path / "t", vocab_size=400, kind=kind)
    assert plan.problems == () and plan.seconds > 0 and plan.kind == kind
    assert list(tmp_path.iterdir()) == []


def test_time_grows_with_the_corpus_as_the_two_samples_do(corpus, tmp_path, monkeypatch):
    from albor_core.data.pack import tokenizer

    monkeypatch.setattr(tokenizer, "ESTIMATE_BYTES", (2000, 8000))
    monkeypatch.setattr(
        tokenizer, "_timed", lambda kind, texts, *rest: sum(len(one) for one in texts) ** 0.75
    )
    plan = plan_tokenizer(corpus, tmp_path / "t", vocab_size=400)
    assert plan.seconds == pytest.approx(plan.text_bytes**0.75, rel=1e-3)
