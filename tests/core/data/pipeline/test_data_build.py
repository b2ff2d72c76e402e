"""From a recipe to verified shards: the same bytes however often it is killed and by how many."""

from __future__ import annotations

import hashlib
import json
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from albor_core.cli.main import cli
from albor_core.config.text.config_file import packaged_configs, packaged_recipes
from albor_core.data.pipeline.build import build, plan_build
from albor_core.data.pipeline.installed import installed_packages
from albor_core.data.pipeline.recipe import load_recipe, parse_recipe
from albor_core.data.pipeline.stats import data_stats
from albor_core.data.stage.corpus import open_corpus
from albor_core.run.errors import ConfigError, DataError, InUseError, NotFoundError, UsageError

SCRIPT = Path(__file__).with_name("killed_build.py")
RECIPE = """\
name: tiny
import: {sources: [src]}
quality: {profile: code, set: {min_score: null}}
filter: {personal_data: mask}
split: {by: file, train: 0.6, val: 0.2, test: 0.2}
dedup:
tokenizer: {vocab_size: 300}
pretokenize: {seq_len: 16}
"""


@pytest.fixture
def room(tmp_path, grow_tree, monkeypatch):
    grow_tree(tmp_path / "src", 30)
    (tmp_path / "tiny.yaml").write_text(RECIPE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ALBOR_HOME", str(tmp_path / "home"))
    return tmp_path


def tree_hash(folder: Path) -> dict[str, str]:
    return {
        str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }


def run_until(room: Path, out: str, at: int, workers: int = 1) -> subprocess.CompletedProcess:
    words = [sys.executable, SCRIPT, "tiny.yaml", out, str(at), str(workers)]
    return subprocess.run(words, cwd=room, capture_output=True, text=True, timeout=100)


def test_recipe_ends_in_verified_shards_that_know_where_they_come_from(room):
    told = []
    report = build(load_recipe(room / "tiny.yaml"), room / "out", done=lambda m: told.append(m))
    names = ["import", "quality", "filter", "split", "dedup test", "dedup val", "dedup train",
             "tokenizer", "pretokenize", "verify"]  # fmt: skip
    assert [made.stage for made in told] == names
    found = report.provenance
    assert found["ok"] and [one["name"] for one in found["splits"]] == ["train", "val", "test"]
    assert found["documents"] <= 30 and found["sources"][0]["source"] == "src"
    said = {step["step"] for step in found["steps"]}
    assert said == {"import", "quality", "filter", "split", "dedup", "pretokenize"}
    page = (room / "out" / "PROVENANCE.md").read_text()
    assert found["splits"][0]["data_hash"] in page and str(room) not in page
    entry = json.loads((room / "home" / "datasets" / "tiny.json").read_text())
    assert entry["path"] == str(room / "out" / "shards") and entry["kind"] == "dataset"
    keys = [{key for key, _ in open_corpus(room / "out" / "split" / name).documents()}
            for name in ("train", "val", "test")]  # fmt: skip
    assert not keys[0] & keys[1] and not keys[0] & keys[2] and not keys[1] & keys[2]
    before = tree_hash(room / "out")
    again = build(load_recipe(room / "tiny.yaml"), room / "out")
    assert all(made.reused for made in again.made)
    assert tree_hash(room / "out") == before
    assert set(plan_build(load_recipe(room / "tiny.yaml"), room / "out").actions) == {"keep"}
    shutil.rmtree(room / "out" / "split" / "val")  # as a kill between two parts leaves it
    plan = plan_build(load_recipe(room / "tiny.yaml"), room / "out")
    assert plan.actions[:5] == ("keep", "keep", "keep", "resume", "after")


def check_kills(room: Path, moments: int) -> None:
    whole = run_until(room, "whole", 0)
    assert whole.returncode == 0, whole.stderr
    times = int(whole.stdout)
    rng = random.Random(times)
    for number in range(moments):
        killed = run_until(room, "out", rng.randrange(1, times + 1))
        assert killed.returncode == -9, killed.stderr
        assert run_until(room, "out", 0, 1 + number % 2).returncode == 0
        assert tree_hash(room / "out") == tree_hash(room / "whole")
        shutil.rmtree(room / "out")


@pytest.mark.slow
def test_killed_build_ends_in_the_same_bytes(room):
    check_kills(room, 1)  # three processes, each of which loads everything


@pytest.mark.sweep
@pytest.mark.timeout(1800)
def test_fifty_kills_end_in_the_same_bytes_by_one_process_and_by_two(room):
    check_kills(room, 50)


@pytest.mark.slow
def test_changed_recipe_is_refused_until_forced_and_then_redoes_what_depends_on_it(room):
    build(load_recipe(room / "tiny.yaml"), room / "out")
    before = tree_hash(room / "out")
    (room / "tiny.yaml").write_text(RECIPE.replace("vocab_size: 300", "vocab_size: 310"))
    with pytest.raises(UsageError, match="another size"):
        build(load_recipe(room / "tiny.yaml"), room / "out")
    assert tree_hash(room / "out") == before
    forced = build(load_recipe(room / "tiny.yaml"), room / "out", force=True)
    redone = [made.stage for made in forced.made if not made.reused]
    assert redone == ["tokenizer", "pretokenize"]
    best = RECIPE.replace("300", "310").replace("seq_len: 16", "seq_len: 16, packing: best-fit")
    (room / "tiny.yaml").write_text(best)
    with pytest.raises(DataError, match="not the same: packing"):
        build(load_recipe(room / "tiny.yaml"), room / "out")
    forced = build(load_recipe(room / "tiny.yaml"), room / "out", force=True)
    assert [made.stage for made in forced.made if not made.reused] == ["pretokenize"]
    packed = [one for one in forced.provenance["steps"] if one["step"] == "pretokenize"]
    assert {step["settings"]["packing"] for step in packed} == {"best-fit"}


def test_benchmark_tasks_go_from_every_part(room):
    words = "def contaminated ( one two three four five six seven eight nine ten ) : pass"
    for number in range(40):
        (room / "src" / f"task{number}.py").write_text(f"# {number}\n{words}\n" + "x = 1\n" * 9)
    (room / "tasks.jsonl").write_text(json.dumps({"task_id": "t", "prompt": words}) + "\n")
    text = RECIPE.replace("dedup:\n", "contamination: {against: [tasks.jsonl]}\n")
    (room / "tiny.yaml").write_text(text.replace("quality", "# quality"))
    report = build(load_recipe(room / "tiny.yaml"), room / "out")
    dropped = sum(sum(m.dropped.values()) for m in report.made if "contamination" in m.stage)
    assert dropped == 40
    texts = [
        text
        for part in ("train", "val", "test")
        for _, text in open_corpus(room / "out" / "contamination" / part).documents()
    ]
    assert not any(b"contaminated" in text for text in texts)
    told = data_stats(room / "out" / "shards").to_json()
    searched = [one for one in told["steps"] if one["step"] == "contamination"]
    assert len(searched) == 3, "one for each split"
    assert sum(one["dropped"].get("contaminated", 0) for one in searched) == 40
    found = told["contamination"]
    assert len(found["hits"]) == 40 and len(found["against"]) == 1
    assert found["checked_documents"] == sum(one["documents_in"] for one in searched)
    said = CliRunner().invoke(cli, ["data", "stats", str(room / "out" / "shards")]).output
    assert f"contamination: 40 of {found['checked_documents']} documents left out" in said


@pytest.mark.parametrize(
    ("change", "line", "words"),
    [
        (("seq_len: 16", "seqlen: 16"), 8, "did you mean seq_len"),
        (("quality:", "qualty:"), 3, "did you mean quality"),
        (("0.2, test", "0.9, test"), 5, "add up to 1.7"),
        (("[src]", "[]"), 2, "at least 1"),
        (("tokenizer: {vocab_size: 300}", "tokenizer: {}"), 7, "one of vocab_size and file"),
        (("by: file", "by: hand"), 5, "'repository' or 'file'"),
        (("personal_data: mask", "licence: []"), 4, "nothing to filter by"),
        (("[src]", "[src, installed-packages]"), 2, "cannot be combined"),
        (("name: tiny", "name: a/b"), 1, "match pattern"),
    ],
)
def test_every_fault_of_a_recipe_is_told_with_its_line(change, line, words):
    with pytest.raises(ConfigError) as refused:
        parse_recipe(RECIPE.replace(*change).encode(), file="r.yaml")
    found = refused.value.problems
    assert any(f"r.yaml:{line}" in one.file and words in f"{one.message} {one.hint}"
               for one in found), found  # fmt: skip


def test_faults_come_together_and_missing_steps_are_named():
    with pytest.raises(ConfigError) as refused:
        parse_recipe(b"name: x\nimport: {sources: [a], suffx: [.py]}\n", file="r.yaml")
    fields = [one.field for one in refused.value.problems]
    assert set(fields) == {"import.suffx", "tokenizer", "pretokenize"}
    with pytest.raises(NotFoundError):
        load_recipe(Path("/nowhere.yaml"))


def test_what_cannot_begin_leaves_nothing(room):
    (room / "tiny.yaml").write_text(RECIPE.replace("[src]", "[nowhere]"))
    loaded = load_recipe(room / "tiny.yaml")
    assert "nowhere" in plan_build(loaded, room / "out").problems[0].message
    with pytest.raises(NotFoundError):
        build(loaded, room / "out")
    assert not (room / "out").exists()
    (room / "file").touch()
    with pytest.raises(UsageError):
        build(loaded, room / "file")


def test_shards_that_changed_are_found_and_never_vouched_for(room):
    loaded = load_recipe(room / "tiny.yaml")
    build(loaded, room / "out")
    shard = room / "out" / "shards" / "val" / "shard-00000.parquet"
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 1
    shard.write_bytes(data)
    with pytest.raises(DataError, match="SHA-256 differs"):
        build(loaded, room / "out")


@pytest.mark.slow
def test_two_data_sets_of_one_name_are_both_known(room):
    loaded = load_recipe(room / "tiny.yaml")
    for out in ("one", "two"):
        build(loaded, room / out)
    entries = (room / "home" / "datasets").glob("tiny*.json")
    assert {json.loads(one.read_text())["path"] for one in entries} == {
        str(room / out / "shards") for out in ("one", "two")
    }


def test_two_builds_do_not_meet(room):
    import fcntl

    (room / "out" / ".work").mkdir(parents=True)
    with (room / "out" / ".work" / "lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(InUseError):
            build(load_recipe(room / "tiny.yaml"), room / "out")


@pytest.mark.slow
def test_installed_packages_are_sources_by_distribution():
    found = {one.name: one for one in installed_packages([".py"])}
    assert list(found) == sorted(found) and "python" in found
    click = found["click"]
    assert click.version and click.licence == "BSD-3-Clause" and "click/core.py" in click.files
    assert all((click.path / name).is_file() for name in click.files)
    assert [one.name for one in installed_packages([".py"], ["Click"])] == ["click"]
    with pytest.raises(ConfigError, match="not an installed package"):
        installed_packages([".py"], ["clik"])


def test_recipes_that_come_with_albor_are_right_and_no_config_of_a_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "python-sources" in packaged_recipes()
    for name in packaged_recipes():
        assert load_recipe(Path(name)).recipe.name == name
        assert not any(one.endswith(name) for one in packaged_configs())
