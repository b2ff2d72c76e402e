"""`--plan --json` of verbs that make files: albor.plan/1, whole also where inputs are missing."""

from __future__ import annotations

import os
from pathlib import Path

import jsonschema
import pytest

from albor_core import track
from albor_core.cli.schema import schema_of
from albor_core.guard.process.index_process import IndexProcess

# A command line on an empty folder, what it reads and what it writes there.
VERBS = {
    "init train.yaml": ([], ["train.yaml"]),
    "report ./one -o page.html": (["one"], ["page.html"]),
    "runs plot ./one --metric loss -o curve.svg": (["one"], ["curve.svg"]),
    "runs export ./one -o points.csv": (["one"], ["points.csv"]),
    "eval sheet ./a ./b -o sheet.csv": (["a", "b"], ["sheet.csv", "sheet.key.json"]),
    "generate ./base hello --tokenizer t.json": (["base", "t.json"], []),
    "bench ./base": (["base"], []),
    "train apply own.yaml": (["own.yaml"], []),
    "train run own.yaml --name base": (["own.yaml"], []),
    "train resume runs/base": (["runs/base"], ["runs/base"]),
}


def planned(user, line):
    """The plan that a command prints, held to its schema; nothing may have changed."""
    before = _tree(user.folder)
    result = user.quick(*line.split(), "--plan", "--json")
    assert _tree(user.folder) == before, line
    document = result.document
    jsonschema.validate(document, schema_of("albor.plan"))
    assert result.code == (1 if document["problems"] else 0), result
    return document


def _tree(folder):
    return {str(path): path.stat().st_mtime_ns for path in folder.rglob("*")}


@pytest.mark.parametrize("line", VERBS)
def test_on_an_empty_folder_a_plan_names_all_that_is_read_and_written(desk, line):
    reads, writes = VERBS[line]
    found = planned(desk, line)
    assert found["reads"] == [str(desk.folder / name) for name in reads]
    assert found["writes"] == [str(desk.folder / name) for name in writes]
    missing = [one for one in found["problems"] if one["code"] == "missing_input"]
    assert [one["path"] for one in missing] == found["reads"]
    assert found["problems"] == missing
    if missing:
        assert found["bytes"] is None


def test_a_config_whose_inputs_are_missing_still_says_what_the_run_would_take(desk):
    assert desk.quick("init", "train.yaml").code == 0
    found = planned(desk, "train run train.yaml --name base")
    assert found["writes"] == [str(desk.folder / "runs/base")]
    names = ["train.yaml", "shards/train", "shards/val", "tokenizer.json"]
    assert found["reads"] == [str(desk.folder / name) for name in names]
    assert [one["path"] for one in found["problems"]] == found["reads"][1:]
    assert {one["code"] for one in found["problems"]} == {"missing_input"}
    assert found["problems"][0]["hint"].startswith("albor data pretokenize")
    assert found["detail"]["schema"] == "albor.train.plan/1"


def test_a_run_without_a_name_gives_its_parent_folder_and_a_star(desk):
    assert desk.quick("init", "train.yaml").code == 0
    found = planned(desk, "train apply train.yaml")
    assert found["writes"] == [str(desk.folder / "runs/*")]


@pytest.mark.parametrize("source", ["losses.csv", "runs"])
def test_a_plan_of_an_import_names_the_runs_that_it_makes(desk, monkeypatch, source):
    assert planned(desk, f"runs import {source}")["writes"] == [str(desk.home / "runs/*")]
    (desk.folder / "losses.csv").write_text("run,step,loss\na,1,2.0\na,2,1.0\nb,1,3.0\n")
    monkeypatch.setattr(IndexProcess, "tend", lambda self: None)
    with monkeypatch.context() as other:
        other.setenv("ALBOR_HOME", str(desk.folder / "other"))
        for name in "ab":
            track.start("x", id=name, dir=desk.folder / "runs", console=False).finish()
    found = planned(desk, f"runs import {source}")
    assert found["problems"] == [] and len(found["writes"]) == 2
    made = desk.quick("runs", "import", source, "--json").document["runs"]
    assert found["writes"] == [one["path"] for one in made]
    assert all(Path(path).is_dir() for path in found["writes"])


def test_a_run_that_nobody_knows_is_told_as_it_was_named(desk):
    found = planned(desk, "report base -o page.html")
    assert found["reads"] == ["base"]
    (problem,) = found["problems"]
    assert (problem["code"], problem["path"]) == ("missing_input", "base")
    assert problem["hint"] == "albor runs ls"


@pytest.mark.parametrize(
    "line",
    [
        "init train.yaml",
        "report one -o page.html",
        "runs plot one --metric loss -o curve.svg",
        "runs export one -o points.csv",
        "runs export one -o points.parquet",
        "runs export one -o points.jsonl --force",
    ],
)
def test_what_a_plan_says_is_what_lies_there_afterwards(desk, monkeypatch, line):
    monkeypatch.setenv("ALBOR_HOME", str(desk.home))
    run = track.start("x", id="one")
    for step in range(20):
        run.log({"loss": 1 / (step + 1), "val/mse": step}, step=step)
    run.finish()
    found = planned(desk, line)
    assert found["problems"] == []
    before = {*_tree(desk.folder)}
    assert desk.quick(*line.split()).code == 0
    made = sorted({*_tree(desk.folder)} - before)
    assert found["writes"] == made
    size = sum(Path(path).stat().st_size for path in made)
    assert size == pytest.approx(found["bytes"], rel=0.2)


@pytest.mark.parametrize(
    "line",
    [
        "data import src -o new.parquet",
        "data import src -o new",
        "data quality corpus.parquet -o good.parquet",
        "data quality corpus.parquet -o good",
        "data filter corpus.parquet --tokenizer tokenizer.json --min-tokens 900 -o long",
        "data dedup corpus.parquet -o once.parquet",
        "data fim corpus.parquet -o holes.parquet",
        "data split corpus.parquet --by file -o parts",
        "data mix corpus.parquet:2 -o more.parquet",
        "data pretokenize corpus.parquet --tokenizer tokenizer.json --seq-len 32 -o packed",
        "tokenizer apply corpus.parquet --vocab-size 300 -o words.json",
    ],
)
def test_what_a_plan_of_a_data_verb_says_is_what_lies_there_afterwards(room, line):
    found = planned(room, line)
    assert found["problems"] == []
    assert all(Path(path).exists() for path in found["reads"]) and found["reads"]
    before = {*room.folder.iterdir()}
    assert room.quick(*line.split()).code == 0
    made = {str(path) for path in {*room.folder.iterdir()} - before}
    assert {*found["writes"]} == made
    files = [path for name in made for path in (Path(name), *Path(name).rglob("*"))]
    size = sum(path.stat().st_size for path in files if path.is_file())
    assert found["bytes"] in (None, pytest.approx(size, rel=0.2))


def test_an_export_to_stdout_writes_no_file_and_prints_nothing_but_its_plan(desk, monkeypatch):
    monkeypatch.setenv("ALBOR_HOME", str(desk.home))
    with track.start("x", id="one", console=False) as run:
        run.log({"loss": 1.0}, step=1)
    found = planned(desk, "runs export one")
    assert (found["writes"], found["bytes"], found["problems"]) == ([], 0, [])


def test_a_file_that_may_not_be_replaced_is_a_problem_of_the_plan(desk):
    (desk.folder / "train.yaml").write_text("mine")
    found = planned(desk, "init train.yaml")
    (problem,) = found["problems"]
    assert "exists" in problem["message"]
    assert problem["hint"] == "albor init train-2.yaml"


def test_people_get_the_same_plan_in_lines(desk):
    result = desk.quick("init", "train.yaml", "--plan")
    assert result.code == 0
    assert result.out.startswith("ok; nothing was written\n")
    assert f"writes   {os.fspath(desk.folder / 'train.yaml')}" in result.out
