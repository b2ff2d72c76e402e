"""Plans of runs on several sources: what they hold together, and what is wrong with one of them."""

import json
from pathlib import Path

import pytest
from tiny_run import tiny_config, write_documents, write_tokenizer

from albor_core.config.clock import Clock
from albor_core.config.load import LoadedConfig, parse_config
from albor_core.launch.planned import plan_run
from albor_core.plan.text import render
from albor_core.recipes.causal_lm import PackedSource


@pytest.fixture
def changes(tmp_path):
    tokenizer = write_tokenizer(tmp_path / "tokenizer.json")
    folders = {name: tmp_path / name / "train" for name in "ab"}
    sources = [
        {"path": str(write_documents(folders[name], rows, seed, tokenizer)), "weight": weight}
        for seed, (name, rows, weight) in enumerate((("a", 23, 3), ("b", 44, 1)))
    ]
    more = {"data__tokenizer": str(tokenizer), "data__fim": {"rate": 0.5}, "training__epochs": 3}
    return {"data__train": ..., "data__mixture": sources, "training__max_steps": 24, **more}


def planned(folder, **changes):
    raw = json.dumps(tiny_config(folder, **changes)).encode()
    loaded = LoadedConfig(raw, parse_config(raw, file="tiny.yaml"), Path("tiny.yaml"))
    return plan_run(loaded)


def test_a_plan_counts_the_sequences_that_training_will_find(tmp_path, changes):
    made = planned(tmp_path, **changes)
    assert made.problems == ()
    source = PackedSource(made.config, validation=False)
    clock = Clock.of(made.config, len(source))
    assert made.schedule.sequences == len(source) == 67
    assert made.schedule.reachable_steps == clock.reachable == 67 * 3 // 4  # over ends of epochs
    train = made.data_facts()["train"]
    assert train["data_hash"] == source.data_hash
    assert [(one["source"], one["sequences"]) for one in train["sources"]] == [("a", 23), ("b", 44)]
    json.dumps(made.to_json(), allow_nan=False)
    text = " ".join(render(made).split())
    assert "a 75.0%, b 25.0%" in text and "50% of the documents, psm" in text
    assert "3 x 67 sequences = 50 steps" in text


def test_what_is_wrong_with_a_source_is_said_with_its_field(tmp_path, changes):
    gone = [*changes["data__mixture"], {"path": str(tmp_path / "gone"), "weight": 1}]
    short = [{**one} for one in changes["data__mixture"]]
    for mixture, field in ((gone, "data.mixture.2.path"), (short, "data.mixture.0.path")):
        if mixture is short:
            (tmp_path / "a" / "train" / "shard-00000.parquet").write_bytes(b"")
        made = planned(tmp_path, **{**changes, "data__mixture": mixture})
        assert [one.field for one in made.problems if one.field.startswith("data.")] == [field]


def test_sentinels_that_the_tokenizer_has_not_are_a_problem_of_the_plan(tmp_path, changes):
    fim = {"rate": 0.5, "middle": "<MID>"}
    made = planned(tmp_path, **{**changes, "data__fim": fim})
    assert [one.field for one in made.problems] == ["data.fim.middle"]
    plain = {**changes, "data__mixture": ..., "data__train": str(tmp_path / "train")}
    del plain["data__mixture"]
    made = planned(tmp_path, **plain)
    assert [one.field for one in made.problems] == ["data.fim"]


def test_sentinels_in_the_vocabulary_of_a_unigram_tokenizer_are_found(tmp_path, changes):
    vocab = [[f"<|fim_{part}|>", 0.0] for part in ("prefix", "suffix")]
    file = tmp_path / "unigram.json"
    file.write_text(json.dumps({"model": {"type": "Unigram", "vocab": vocab}}))
    made = planned(tmp_path, **{**changes, "data__tokenizer": str(file)})
    found = [one.field for one in made.problems if one.field.startswith("data.fim")]
    assert found == ["data.fim.middle"]


def test_more_steps_than_the_epochs_of_a_mixture_hold_are_refused(tmp_path, changes):
    made = planned(tmp_path, **{**changes, "training__max_steps": 51})
    assert [one.field for one in made.problems] == ["training.max_steps"]
    assert planned(tmp_path, **{**changes, "training__max_steps": 50}).problems == ()


def test_a_source_that_is_read_more_often_than_helps_is_named(tmp_path, changes):
    stages = [{"from": 0, "weights": {"a": 1}}]
    for more, passes in (({}, "6.3"), ({"data__curriculum": stages}, "8.3")):  # 192 sequences of 23
        made = planned(tmp_path, **{**changes, **more, "training__max_steps": 48})
        said = [one.message for one in made.warnings if one.field == "data.mixture.0.weight"]
        assert said == [f"a is read {passes} times"]
    made = planned(tmp_path, **{**changes, "training__max_steps": 8})
    assert not [one for one in made.warnings if one.field.startswith("data.mixture")]
