"""One recipe holds the mix and the cutting for infilling: train alone is mixed and cut."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from albor_core.data.mix.fim import MARKS
from albor_core.data.pack.tokenizer import load_tokenizer, train_tokenizer
from albor_core.data.pipeline.build import build, plan_build
from albor_core.data.pipeline.recipe import load_recipe, parse_recipe
from albor_core.data.stage.corpus import open_corpus
from albor_core.run.errors import ConfigError

SCRIPT = Path(__file__).with_name("killed_build.py")
RECIPE = """\
name: tiny
import: {sources: [alpha, beta]}
split: {by: file, train: 0.6, val: 0.2, test: 0.2}
mix: {weights: {alpha: 2, beta: 1}}
fim: {rate: 0.5, seed: 1}
tokenizer: {vocab_size: 300}
pretokenize: {seq_len: 16}
"""


@pytest.fixture
def room(tmp_path, grow_tree, monkeypatch):
    for name in ("alpha", "beta"):
        grow_tree(tmp_path / name, 15)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ALBOR_HOME", str(tmp_path / "home"))
    return tmp_path


def loaded(text: str = RECIPE):
    Path("tiny.yaml").write_text(text)
    return load_recipe(Path("tiny.yaml"))


def keys_in(corpus: str) -> Counter[str]:
    return Counter(key for key, _ in open_corpus(Path(corpus)).documents())


def texts_in(corpus: str) -> list[bytes]:
    return [text for _, text in open_corpus(Path(corpus)).documents()]


def ids_in(shards: str) -> set[int]:
    (file,) = Path(shards).glob("*.parquet")
    return {number for row in pq.read_table(file)["input_ids"].to_pylist() for number in row}


def tree_hash(folder: str) -> dict[str, str]:
    files = (one for one in sorted(Path(folder).rglob("*")) if one.is_file())
    return {str(one.relative_to(folder)): hashlib.sha256(one.read_bytes()).hexdigest()
            for one in files}  # fmt: skip


def test_weights_two_and_one_give_copies_and_train_alone_is_mixed_and_cut(room):
    report = build(loaded(), Path("out"))
    assert [made.stage for made in report.made] == [
        "import", "split", "mix train", "tokenizer", "fim train", "pretokenize", "verify",
    ]  # fmt: skip
    before = keys_in("out/split/train")
    assert {key.partition("/")[0] for key in before} == {"alpha", "beta"}
    wanted = {key: 2 if key.startswith("alpha/") else 1 for key in before}
    assert keys_in("out/mix/train") == keys_in("out/fim/train") == wanted
    cut = [MARKS.middle.encode() in text for text in texts_in("out/fim/train")]
    assert any(cut) and not all(cut)
    middle = load_tokenizer(Path("out/tokenizer.json")).token_to_id(MARKS.middle)
    has = {name: middle in ids_in(f"out/shards/{name}") for name in ("train", "val", "test")}
    assert has == {"train": True, "val": False, "test": False}
    documents = {one["name"]: one["documents"] for one in report.provenance["splits"]}
    assert documents["train"] == sum(wanted.values())
    assert documents["val"] == len(texts_in("out/split/val"))


def test_page_of_provenance_names_weights_copies_and_rate(room):
    build(loaded(), Path("out"))
    told = json.loads(Path("out/provenance.json").read_text())
    assert told["ok"]
    (mixed,) = (one for one in told["steps"] if one["step"] == "mix")
    assert mixed["splits"] == ["train"]
    assert [(one["corpus"], one["weight"], one["copies"]) for one in mixed["settings"]["inputs"]] \
        == [("alpha", "2", 2), ("beta", "1", 1)]  # fmt: skip
    (cut,) = (one for one in told["steps"] if one["step"] == "fim")
    assert cut["settings"]["rate"] == 0.5 and cut["splits"] == ["train"]
    page = Path("out/PROVENANCE.md").read_text()
    assert '"rate": 0.5' in page and '"weight": "2"' in page and '"copies": 2' in page


@pytest.mark.slow
def test_plan_names_both_and_the_same_recipe_again_reuses_all(room):
    plan = plan_build(loaded(), Path("out"))
    assert not plan.problems
    assert {"mix train", "fim train"} <= {stage.name for stage in plan.stages}
    build(loaded(), Path("out"))
    before = tree_hash("out")
    assert all(made.reused for made in build(loaded(), Path("out")).made)
    assert tree_hash("out") == before
    assert set(plan_build(loaded(), Path("out")).actions) == {"keep"}
    for gone in ("out/mix/train", "out/mix/sources/beta", "out/fim"):
        shutil.rmtree(gone)
    build(loaded(), Path("out"))
    assert tree_hash("out") == before


def test_source_without_a_weight_is_there_once(room):
    build(loaded(RECIPE.replace("{alpha: 2, beta: 1}", "{alpha: 2}")), Path("out"))
    before = keys_in("out/split/train")
    assert keys_in("out/mix/train") == {key: 2 if key.startswith("alpha/") else 1 for key in before}


def test_shares_of_a_size_give_so_many_documents_of_each(room):
    mix = "{weights: {alpha: 0.9, beta: 0.1}, documents: 40, shuffle: true}"
    build(loaded(RECIPE.replace("{weights: {alpha: 2, beta: 1}}", mix)), Path("out"))
    of_each: Counter[str] = Counter()
    for key, times in keys_in("out/mix/train").items():
        of_each[key.partition("/")[0]] += times
    assert of_each == {"alpha": 36, "beta": 4}


@pytest.mark.slow
def test_build_killed_while_it_mixes_and_while_it_cuts_ends_in_the_same_bytes(room, monkeypatch):
    recipe, fsync = loaded(), os.fsync
    calls, ends = [0], {}

    def counted(descriptor: int) -> None:
        calls[0] += 1
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", counted)
    build(recipe, Path("whole"), done=lambda made: ends.update({made.stage: calls[0]}))
    monkeypatch.setattr(os, "fsync", fsync)
    for before, stage, half in (
        ("split", "mix train", "out/mix/train"),
        ("tokenizer", "fim train", "out/fim/train"),
    ):
        at = ends[stage] - (ends[stage] - ends[before]) // 4
        words = [sys.executable, SCRIPT, "tiny.yaml", "out", str(at), "1"]
        killed = subprocess.run(words, cwd=room, capture_output=True,
                                timeout=100)  # fmt: skip
        assert killed.returncode == -9
        assert not Path(half, "manifest.json").exists() and list(Path(half).parent.iterdir())
        build(recipe, Path("out"))
        assert tree_hash("out") == tree_hash("whole")
        shutil.rmtree("out")


@pytest.mark.parametrize(
    ("mix", "words"),
    [
        ("{weights: {alpha: 0.5, beta: 0.4}, documents: 40}", "mix.weights: sum to 0.9, not 1"),
        ("{weights: {alpha: 0.5, beta: 0.6}, bytes: 4K}", "mix.weights: sum to 1.1, not 1"),
        ("{weights: {alpha: 0}}", "mix.weights.alpha: input should be greater than 0"),
        ("{weights: {alpha: .nan}}", "mix.weights.alpha: "),
        ("{weights: {alpha: much}}", "mix.weights.alpha: "),
        ("{weights: {alpha: 2000}}", "more than 1,000"),
        ("{weights: {}}", "mix.weights: "),
        ("{}", "mix.weights: is required"),
        ("{weights: {alpha: 1}, documents: 4, bytes: 4}", "exclude each other"),
        ("{weights: {alpha: 1}, sed: 4}", "mix.sed: is not a field"),
    ],
)
def test_bad_mix_is_refused_by_its_field_and_line(mix, words):
    text = RECIPE.replace("{weights: {alpha: 2, beta: 1}}", mix)
    with pytest.raises(ConfigError) as refused:
        parse_recipe(text.encode(), file="r.yaml")
    told = [f"{one.field}: {one.message}" for one in refused.value.problems]
    assert any(words in one for one in told), told
    assert all(one.file == "r.yaml:4" for one in refused.value.problems)


@pytest.mark.parametrize("rate", ["0", "1.5", "-1", ".nan"])
def test_rate_that_is_no_share_is_refused(rate):
    with pytest.raises(ConfigError) as refused:
        parse_recipe(RECIPE.replace("rate: 0.5", f"rate: {rate}").encode(), file="r.yaml")
    assert [one.field for one in refused.value.problems] == ["fim.rate"]


def test_shares_that_are_written_with_few_digits_sum_to_one():
    mix = "{weights: {a: 0.333333, b: 0.333333, c: 0.333333}, documents: 9}"
    text = RECIPE.replace("{weights: {alpha: 2, beta: 1}}", mix)
    with pytest.raises(ConfigError, match="mix"):
        parse_recipe(text.replace("0.333333", "0.3333").encode(), file="r.yaml")
    assert parse_recipe(text.encode(), file="r.yaml").mix


@pytest.mark.parametrize(
    ("mix", "words"),
    [
        ("{weights: {alpa: 2}}", "did you mean 'alpha'?"),
        ("{weights: {python: 2}}", "the sources are alpha, beta"),
        ("{weights: {alpha: 1}, documents: 40}", "no share for beta"),
    ],
)
def test_weights_of_other_sources_are_refused_before_anything_is_written(room, mix, words):
    recipe = loaded(RECIPE.replace("{weights: {alpha: 2, beta: 1}}", mix))
    with pytest.raises(ConfigError, match=r"mix\.weights") as refused:
        build(recipe, Path("out"))
    assert words in f"{refused.value.message} {refused.value.hint}"
    (planned,) = plan_build(recipe, Path("out")).problems
    assert planned.field == "mix.weights" and words in f"{planned.message} {planned.hint}"
    assert not Path("out").exists()


def test_source_of_which_nothing_is_in_train_is_refused_by_name(room, grow_tree):
    names = [f"s{number}" for number in range(8)]
    for name in names:
        grow_tree(room / name, 6)
    text = RECIPE.replace("[alpha, beta]", f"[{', '.join(names)}]").replace("by: file, ", "")
    build(loaded(text.replace("mix", "# mix")), Path("plain"))
    (held, *_) = sorted({key.partition("/")[0] for key in keys_in("plain/split/val")})
    with pytest.raises(ConfigError, match=f"no document of train is of a source '{held}'"):
        build(loaded(text.replace("{alpha: 2, beta: 1}", f"{{{held}: 2}}")), Path("out"))
    assert not Path("out/mix").exists()


@pytest.mark.slow
def test_tokenizer_without_the_sentinels_is_refused_by_name(room):
    build(loaded(RECIPE), Path("first"))
    for name, fim in (("bare", False), ("full", True)):
        train_tokenizer(Path("first/import"), Path(f"{name}.json"), vocab_size=300, fim=fim)
    bare = loaded(RECIPE.replace("vocab_size: 300", "file: bare.json"))
    with pytest.raises(ConfigError, match=r"bare\.json has no token '<\|fim_prefix\|>'"):
        build(bare, Path("out"))
    assert "bare.json has no token" in plan_build(bare, Path("out")).problems[0].message
    assert not Path("out").exists()
    full = loaded(RECIPE.replace("vocab_size: 300", "file: full.json"))
    assert build(full, Path("out")).provenance["ok"]
