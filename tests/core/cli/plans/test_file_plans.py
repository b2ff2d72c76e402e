"""`--plan --json` of verbs that make files: albor.plan/1, whole also where inputs are missing."""

from __future__ import annotations

import os
import shutil
import sysconfig
from pathlib import Path
from types import SimpleNamespace

import click
import jsonschema
import pytest

from albor_core import track
from albor_core.cli.main import cli
from albor_core.documents.json_schema import schema_of
from albor_core.guard.process.index_process import IndexProcess
from albor_core.store.index.catch_up import drain_index
from albor_core.store.query.resolve import find_run

# A command line on an empty folder, what it reads and what it writes there.
VERBS = {
    "init train.yaml": ([], ["train.yaml"]),
    "report ./one -o page.html": (["one"], ["page.html"]),
    "runs plot ./one --metric loss -o curve.svg": (["one"], ["curve.svg"]),
    "runs export ./one -o points.csv": (["one"], ["points.csv"]),
    "eval sheet ./a ./b -o sheet.csv": (["a", "b"], ["sheet.csv", "sheet.key.json"]),
    "eval apply ./base --task text:a.txt -o out": (["base", "a.txt"], ["out"]),
    "eval apply ./base --task text:a.txt --watch": (["base", "a.txt"], ["base/eval/*"]),
    "eval apply ./base --tasks t.yaml -o out": (["base", "t.yaml"], ["out"]),
    "eval apply ./base --task code:a.jsonl --validate-only": (["a.jsonl"], []),
    "tokenizer apply a.parquet --vocab-size 300 -o t.json": (
        ["a.parquet"],
        ["t.json", "t-merges.txt", "t-vocab.json"],
    ),
    "data import src other -o new.parquet": (["src", "other"], ["new.parquet"]),
    "data mix a.parquet:2 b -o more": (["a.parquet", "b"], ["more"]),
    "data dedup a.parquet --against b -o once": (["a.parquet", "b"], ["once"]),
    "data split a.parquet -o parts": (["a.parquet"], ["parts"]),
    "data pretokenize a.parquet --tokenizer t.json --seq-len 32 -o packed": (
        ["a.parquet", "t.json"],
        ["packed"],
    ),
    "data build own.yaml -o made": (["own.yaml"], ["made"]),
    "runs import losses.csv": (["losses.csv"], None),
    "generate ./base hello --tokenizer t.json": (["base", "t.json"], []),
    "bench ./base": (["base"], []),
    "train apply own.yaml": (["own.yaml"], []),
    "train run own.yaml --name base": (["own.yaml"], []),
    "train resume runs/base": (["runs/base"], ["runs/base"]),
    "profile own.yaml -o trace.json": (["own.yaml"], ["trace.json"]),
    "profile ./base --fresh -o trace.json.gz": (["base"], ["trace.json.gz"]),
    "profile trace.json": (["trace.json"], []),
    "data contamination a.parquet b --against tasks.jsonl --report found.json": (
        ["a.parquet", "b", "tasks.jsonl"],
        ["found.json"],
    ),
}
INPUTS = {
    "against", "config", "corpora", "corpus", "db", "file", "folder", "key_file", "paths",
    "recipe", "rules_of", "sheets", "sources", "tokenizer",
}  # fmt: skip
"""Arguments and options that name what is read; any other path names what is made."""
READERS = {"data provenance", "data stats", "tokenizer plan"}
"""Verbs that make nothing, whatever their arguments are called."""


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


def _verbs(group, above=""):
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        is_group = isinstance(command, click.Group)
        yield from _verbs(command, f"{above}{name} ") if is_group else [(above + name, command)]


def test_every_verb_that_is_told_what_to_make_has_a_plan():
    lacks = set()
    for name, verb in _verbs(cli):
        makes = [one for one in verb.params if isinstance(one.type, click.Path)]
        if {one.name for one in makes} - INPUTS and name not in READERS:
            lacks |= {name} if all(one.name != "only_plan" for one in verb.params) else set()
    assert lacks == set()


@pytest.mark.parametrize("line", VERBS)
def test_on_an_empty_folder_a_plan_names_all_that_is_read_and_written(desk, line):
    reads, writes = VERBS[line]
    found = planned(desk, line)
    assert found["reads"] == [str(desk.folder / name) for name in reads]
    home = [str(desk.home / "runs/*")]
    assert found["writes"] == (home if writes is None else [str(desk.folder / x) for x in writes])
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
    assert drain_index(find_run("one"), timeout_s=30.0)
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
        "data mix corpus.parquet:2.5 --shuffle -o mixed",
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
    is_known = not line.startswith("tokenizer")  # what training finds is not foreseen
    assert found["bytes"] == (pytest.approx(size, rel=0.2) if is_known else None)
    if is_known:
        assert planned(room, line)["bytes"] == 0


def test_a_recorded_run_is_planned_as_it_is_unpacked(desk):
    line = "demo --proof --out shown --no-tui"
    found = planned(desk, line)
    assert found["writes"] == [str(desk.folder / "shown/runs/proof")] and not found["problems"]
    assert desk.quick(*line.split()).code == 0
    (run,) = (desk.folder / "shown/runs").iterdir()
    size = sum(path.stat().st_size for path in run.rglob("*") if path.is_file())
    assert [str(run)] == found["writes"] and found["bytes"] == pytest.approx(size, rel=0.2)
    assert planned(desk, line)["bytes"] == 0


def test_a_demo_is_planned_with_its_folder_and_the_sources_that_it_reads(desk):
    found = planned(desk, "demo --out shown --tokens 1M")
    assert found["reads"] == [sysconfig.get_paths()["stdlib"]]
    assert (found["writes"], found["bytes"]) == ([str(desk.folder / "shown")], None)
    assert found["problems"] == []
    (problem,) = planned(desk, "demo --out shown --tokens 1")["problems"]
    assert "--tokens 1" in problem["message"]


def test_a_config_that_comes_with_albor_is_read_from_where_it_lies(desk):
    for line in ("train run demo --name base", "profile demo"):
        found = planned(desk, line)
        assert Path(found["reads"][0]).parts[-2:] == ("configs", "demo.yaml")
        assert found["reads"][1:] == [one["path"] for one in found["problems"]]


def test_a_report_of_contamination_is_planned_from_what_it_reads(room):
    (room.folder / "tasks.txt").write_text("a b c d e f g h i j k l m")
    line = "data contamination corpus.parquet --against tasks.txt"
    assert planned(room, line)["bytes"] == 0
    found = planned(room, f"{line} --report found.json")
    assert (found["bytes"], found["problems"]) == (None, [])
    assert room.quick(*line.split(), "--report", "found.json").code == 0
    assert [str(room.folder / "found.json")] == found["writes"]
    assert Path(found["writes"][0]).is_file()


@pytest.mark.parametrize("line", ["data mix broken.parquet", "data split broken.parquet --by file"])
def test_a_corpus_that_cannot_be_decoded_is_a_problem_of_the_plan(room, line):
    raw = bytearray((room.folder / "corpus.parquet").read_bytes())
    raw[2000:40000] = bytes(38000)
    (room.folder / "broken.parquet").write_bytes(raw)
    found = planned(room, f"{line} -o made")
    assert found["bytes"] is None
    assert "broken.parquet" in found["problems"][0]["message"]


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


SEALED = {
    "train apply in.yaml --name one": "train.yaml",
    "eval apply ./model --tasks in.yaml -o kept": "tasks.yaml",
    "data build in.yaml -o built": "build.yaml",
    "data dedup in.yaml -o once": "corpus.parquet",
    "data contamination in.yaml --against in.yaml --drop -o once": "corpus.parquet",
    "tokenizer apply in.yaml --vocab-size 300 -o words.json": "corpus.parquet",
    "runs import in.yaml --from csv": "losses.csv",
}


@pytest.mark.parametrize("line", SEALED)
def test_an_input_that_may_not_be_read_is_a_problem_of_the_plan(desk, monkeypatch, line):
    (desk.folder / "model").mkdir()
    (desk.folder / "in.yaml").write_text("{}")
    monkeypatch.setattr(os, "access", lambda path, *_, **__: Path(path).name != "in.yaml")
    problems = planned(desk, line)["problems"]
    file = str(desk.folder / "in.yaml")
    assert [(one["code"], one["path"]) for one in problems] == [("unreadable_input", file)]


@pytest.mark.parametrize(
    "line",
    [
        "init place/train.yaml",
        "data dedup corpus.parquet -o place/once",
        "data pretokenize corpus.parquet --tokenizer tokenizer.json --seq-len 32 -o place/packed",
        "data build build.yaml -o place/built",
    ],
)
def test_an_output_that_has_no_place_is_a_problem_of_the_plan(room, monkeypatch, line):
    (room.folder / "place").mkdir(exist_ok=True)
    (room.folder / "build.yaml").write_text(
        "name: x\nimport: {sources: [src]}\npretokenize: {seq_len: 32}\n"
        "tokenizer: {vocab_size: 300}\n"
    )
    place = str(room.folder / "place")
    monkeypatch.setattr(os, "access", lambda path, *_, **__: str(path) != place)
    problems = planned(room, line)["problems"]
    assert "output" in {one["code"] for one in problems}, problems


def test_an_output_that_the_disk_has_no_room_for_is_a_problem_of_the_plan(desk, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=1))
    (problem,) = planned(desk, "init train.yaml")["problems"]
    assert problem["code"] == "output" and "1 B are free" in problem["message"]


@pytest.mark.parametrize(
    ("line", "file"),
    [
        ("eval apply ./model --task text:text.txt -o mine", "mine/notes.txt"),
        ("eval apply ./model --task text:text.txt -o mine.json", "mine.json"),
        ("tokenizer apply corpus.parquet --vocab-size 300 -o mine.json", "mine.json"),
    ],
)
def test_what_stands_in_the_place_of_an_output_is_a_problem_of_the_plan(room, line, file):
    for name in ("model", "mine"):
        shutil.rmtree(room.folder / name, ignore_errors=True)
    (room.folder / "model").mkdir()
    (room.folder / "text.txt").write_text("text")
    (room.folder / file).parent.mkdir(exist_ok=True)
    (room.folder / file).write_text("mine")
    assert any(
        "exists" in one["message"] or "is a" in one["message"]
        for one in planned(room, line)["problems"]
    )
    assert (room.folder / file).read_text() == "mine"


@pytest.mark.parametrize("tasks", ["", "\x00", "tasks: []", "tasks: 7", "- 1"])
def test_tasks_that_cannot_be_read_are_a_problem_of_the_plan(desk, tasks):
    (desk.folder / "model").mkdir()
    (desk.folder / "tasks.yaml").write_text(tasks)
    found = planned(desk, "eval apply ./model --tasks tasks.yaml -o kept")
    assert found["problems"] and found["writes"] == [str(desk.folder / "kept")]


@pytest.mark.parametrize("line", ["generate ./model hello", "bench ./model", "bench model"])
def test_a_folder_that_is_not_a_model_is_a_problem_of_the_plan(desk, line):
    (desk.folder / "model").mkdir()
    assert planned(desk, line)["problems"]


def test_a_file_called_like_a_run_is_not_the_run(desk):
    (desk.folder / "base").write_text("x")
    (problem,) = planned(desk, "bench base")["problems"]
    assert (problem["code"], problem["path"]) == ("missing_input", "base")
