"""What runs are called: ids, names, beginnings of ids; other names; runs of two machines."""

from __future__ import annotations

import json
import os
import pty
import shutil

import pytest
from cli_user import ALBOR, tree_hash, valid

from albor_core import track
from albor_core.cli.runs.run_columns import _band_text
from albor_core.run.files.whole_file import write_json
from albor_core.run.home.new_run import create_run
from albor_core.run.journal import Journal
from albor_core.store.index.indexer import index_now
from albor_core.store.query.group import _common_name, band


def record(folder, run_id, *, name=None, loss=1.0, host="here", end=True):
    run = create_run(folder, run_id, experiment="exp", name=name or run_id, kind="track",
                     argv=["x"], facts={"host": host})  # fmt: skip
    journal = Journal(run.journal, attempt=1)
    journal.event("run.start")
    for step in range(3):
        journal.metrics(step, {"train/loss": loss})
    if end:
        journal.event("run.end", status="completed", reason="completed", code=0)
    journal.close()
    index_now(run)
    return run


def show(desk, reference):
    return valid(desk.quick("runs", "show", reference, "--json"))["run"]["id"]


@pytest.fixture
def named(desk):
    """Ids that say nothing of the names, as imports have them, and one whose id is its name."""
    out = desk.folder / "out"
    record(out, "wandb-kb2n-8321", name="Big Model", loss=2.0)
    record(out, "mlflow-f6f8", name="baseline")
    record(out, "first")
    return out


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("wandb-kb2n-8321", "wandb-kb2n-8321"),
        ("Big Model", "wandb-kb2n-8321"),
        ("big model", "wandb-kb2n-8321"),
        ("BASELINE", "mlflow-f6f8"),
        ("MLflow-F6", "mlflow-f6f8"),
        ("wan", "wandb-kb2n-8321"),
        ("First", "first"),
    ],
)
def test_a_run_is_called_by_its_id_its_name_or_the_beginning_of_its_id(desk, named, said, meant):
    assert show(desk, said) == meant


COMMANDS = [
    ("runs", "show", "R"),
    ("runs", "diff", "R", "first"),
    ("runs", "tail", "R"),
    ("runs", "export", "R"),
    ("runs", "tag", "R", "t"),
    ("runs", "note", "R", "text"),
    ("runs", "pin", "R"),
    ("runs", "mv", "R", "./elsewhere"),
    ("runs", "rm", "R", "--yes"),
    ("report", "R", "-o", "page.html"),
    ("guard", "status", "R"),
    ("guard", "stop", "R"),
    ("alerts", "ls", "R"),
    ("alerts", "rules", "R"),
    ("alerts", "test", "R", "loss > 3"),
    ("monitor", "R", "--once"),
    ("train", "resume", "R"),
    ("db", "path", "R"),
]


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: " ".join(words[:2]))
def test_every_command_takes_the_name(desk, named, words):
    """It does, or says, the same as with the id; where the name is two runs' it does nothing."""
    record(named, "other-1", name="twice")
    record(named, "other-2", name="TWICE")
    before = tree_hash(desk.folder, desk.home / "runs")
    unclear = desk.quick(*[{"R": "Twice"}.get(word, word) for word in words])
    assert unclear.code == 2 and "2 runs: other-1, other-2" in unclear.err, unclear
    nearest = desk.quick(*[{"R": "basline"}.get(word, word) for word in words])
    assert nearest.code == 3 and "nearest is 'baseline'" in nearest.err, nearest
    assert tree_hash(desk.folder, desk.home / "runs") == before
    done = desk.quick(*[{"R": "Baseline"}.get(word, word) for word in words])
    assert "mlflow-f6f8" in (done.out + done.err) or done.code == 0, done


def test_albor_tui_takes_the_name(desk, named):
    told = desk.cockpit("baseline", "--json", "--once")
    assert told.code == 0 and json.loads(told.out)["run"]["id"] == "mlflow-f6f8", told
    assert desk.cockpit("basline", "--once").code == 3


def test_a_whole_name_comes_before_the_beginning_of_another_id(desk, named):
    record(named, "warmup-3fa2b1", name="warmup")
    record(named, "warmup-2000-77aa", name="warmup-2000")
    assert show(desk, "warmup") == "warmup-3fa2b1"
    assert desk.quick("runs", "show", "warmup-").code == 2


def test_the_list_has_a_column_of_names_where_they_say_more_than_the_ids(desk, named):
    head, *_ = desk.quick("runs", "ls").out.splitlines()
    assert head.split()[:2] == ["run", "name"]
    shutil.rmtree(desk.home)
    shutil.rmtree(named)
    record(named, "first")
    assert "name" not in desk.quick("runs", "ls").out
    (row,) = valid(desk.quick("runs", "ls", "--json"))["runs"]
    assert row["name"] == "first"


def test_a_run_is_renamed_and_stays_so(desk, named):
    told = valid(desk.quick("runs", "rename", "first", "Warm-up 2000", "--json"))
    assert (told["run"], told["name"], told["also_called"]) == ("first", "Warm-up 2000", [])
    assert show(desk, "warm-UP 2000") == show(desk, "first") == "first"
    assert "Warm-up 2000" in desk.quick("runs", "ls").out
    assert "Warm-up 2000" in desk.quick("monitor", "first", "--once").out
    assert [r["id"] for r in valid(desk.quick("runs", "ls", "name:2000", "--json"))["runs"]] == [
        "first"
    ]
    before = valid(desk.quick("runs", "show", "first", "--json"))
    shutil.rmtree(named / "first" / ".albor")
    (desk.home / "experiments.db").unlink()
    assert desk.quick("db", "rebuild").code == 0
    assert valid(desk.quick("runs", "show", "Warm-up 2000", "--json")) == before


@pytest.mark.parametrize("name", ["", "--", "a/b", "bell\a", "x" * 300])
def test_what_cannot_be_a_name_is_refused(desk, named, name):
    before = tree_hash(named)
    refused = desk.quick("runs", "rename", "--json", "--", "first", name)
    assert refused.code == 2 and refused.error["code"] == "usage"
    assert tree_hash(named) == before


def test_a_live_run_is_known_by_its_new_name_when_the_command_returns(desk, monkeypatch):
    monkeypatch.setenv("ALBOR_HOME", str(desk.home))
    with track.start(name="old") as run:
        run.log({"loss": 1.0}, step=1)
        assert desk.albor("runs", "rename", run.id, "fresh").code == 0
        assert json.loads(desk.albor("runs", "show", "fresh", "--json").out)["run"]["id"] == run.id


def test_a_name_that_another_run_has_is_said(desk, named):
    told = valid(desk.quick("runs", "rename", "first", "baseline", "--json"))
    assert told["also_called"] == ["mlflow-f6f8"]
    assert desk.quick("runs", "show", "baseline").code == 2


def test_a_move_to_a_word_that_is_not_a_folder_is_refused_without_a_terminal(desk, named):
    before = tree_hash(desk.folder, desk.home / "runs")
    refused = desk.quick("runs", "mv", "first", "second")
    assert refused.code == 2 and "albor runs rename first second" in refused.err
    assert tree_hash(desk.folder, desk.home / "runs") == before
    assert desk.quick("runs", "mv", "first", "./second").code == 0
    assert desk.quick("runs", "mv", "baseline", "second").code == 0  # it is one now
    assert (desk.folder / "second" / "mlflow-f6f8").is_dir()


@pytest.mark.parametrize(("answer", "is_moved"), [("y", True), ("n", False)])
def test_a_move_to_a_word_that_is_not_a_folder_asks_on_a_terminal(desk, named, answer, is_moved):
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(desk.folder)
        os.execve(ALBOR[0], [*ALBOR, "runs", "mv", "first", "second"], desk.environment())
    said = b""
    try:
        while b"[y/N]" not in said:
            said += os.read(terminal, 4096)
        assert b"albor runs rename first second" in said
        os.write(terminal, answer.encode() + b"\n")
        while True:
            said += os.read(terminal, 4096)
    except OSError:  # it has ended
        pass
    finally:
        os.waitpid(pid, 0)
        os.close(terminal)
    assert (desk.folder / "second" / "first").is_dir() == is_moved, said


@pytest.fixture
def two_machines(desk):
    """A run `script` of this machine, and one of another whose folder was copied here."""
    record(desk.folder / "out", "script", host="laptop", loss=1.0)
    away = {"ALBOR_HOME": str(desk.folder / "their-home")}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(*next(iter(away.items())))
        theirs = record(desk.folder / "their-runs", "script", host="Box 2", loss=5.0)
        write_json(theirs.run_json, {**theirs.metadata(), "host": "Box 2"})
    shutil.copytree(theirs.path, desk.folder / "box2" / "script")
    return desk


def places(desk):
    rows = valid(desk.quick("runs", "ls", "--json"))["runs"]
    return {row["id"]: (row["path"], row["loss"]) for row in rows}


def test_runs_of_two_machines_with_one_id_are_told_apart_by_host(two_machines):
    desk = two_machines
    assert desk.quick("db", "rebuild", "box2").code == 0
    mine, theirs = desk.folder / "out" / "script", desk.folder / "box2" / "script"
    both = {"script": (str(mine), 1.0), "script@box-2": (str(theirs), 5.0)}
    assert places(desk) == both
    for run_id, (path, loss) in both.items():
        said = "script@laptop" if run_id == "script" else run_id
        shown = valid(desk.quick("runs", "show", said, "--json"))
        assert (shown["run"]["id"], shown["run"]["path"]) == (run_id, path)
        assert shown["summary"]["train/loss"]["last"] == loss
        assert show(desk, path) == run_id
    assert str(theirs) in desk.quick("runs", "ls", "--columns", "id,path").out
    diff = valid(desk.quick("runs", "diff", "script@laptop", "script@box-2", "--json"))
    assert [run["path"] for run in diff["runs"]] == [str(mine), str(theirs)]


def test_the_id_of_two_runs_names_both(two_machines):
    desk = two_machines
    desk.quick("db", "rebuild", "box2")
    before = tree_hash(desk.folder)
    for words in (("show",), ("tail",), ("pin",), ("rm", "--yes")):
        refused = desk.quick("runs", *words, "script")
        assert refused.code == 2 and "script@laptop, script@box-2" in refused.err, refused
    assert tree_hash(desk.folder) == before


def test_what_is_said_of_one_of_two_runs_stays_with_it(two_machines):
    desk = two_machines
    desk.quick("db", "rebuild", "box2")
    desk.quick("runs", "tag", "script@box-2", "theirs")
    desk.quick("runs", "tag", "script@laptop", "mine")
    rows = {row["id"]: row["tags"] for row in valid(desk.quick("runs", "ls", "--json"))["runs"]}
    assert rows == {"script": ["mine"], "script@box-2": ["theirs"]}
    told = desk.quick("runs", "export", "script@box-2").out
    assert {json.loads(line)["run"] for line in told.splitlines()} == {"script@box-2"}


def test_a_rebuild_and_a_second_copy_keep_both_runs_apart(two_machines):
    desk = two_machines
    desk.quick("db", "rebuild", "box2")
    before = places(desk)
    shutil.rmtree(desk.folder / "box2" / "script")  # synchronised again, with a store of their own
    shutil.copytree(desk.folder / "their-runs" / "script", desk.folder / "box2" / "script")
    for words in (("db", "rebuild", "box2"), ("db", "rebuild"), ("db", "check")):
        result = desk.quick(*words)
        assert result.code == 0, result
        assert places(desk) == before


def test_one_of_two_runs_is_moved_and_removed_alone(two_machines):
    desk = two_machines
    desk.quick("db", "rebuild", "box2")
    (moved,) = valid(desk.quick("runs", "mv", "script@box-2", "./else", "--json"))["moved"]
    assert moved["path"] == str(desk.folder / "else" / "script")
    assert places(desk)["script@box-2"][0] == moved["path"]
    assert desk.quick("runs", "rm", "--yes", "script@box-2").code == 0
    assert list(places(desk)) == ["script"] and show(desk, "script") == "script"


def test_the_cockpit_lists_both_and_opens_the_one_that_is_meant(two_machines):
    desk = two_machines
    desk.quick("db", "rebuild", "box2")
    listed = json.loads(desk.cockpit("--json", "--once").out)
    losses = {run["id"]: run["loss"] for run in listed["runs"]}
    assert losses == {"script": 1.0, "script@box-2": 5.0}
    one = json.loads(desk.cockpit("script@box-2", "--json", "--once").out)
    assert one["run"]["id"] == "script@box-2" and one["run"]["path"].endswith("box2/script")


def test_a_look_at_no_run_is_a_document_too(desk):
    told = valid(desk.quick("monitor", "--once", "--json"))
    assert told["schema"] == "albor.monitor.runs/1" and told["runs"] == []


def test_a_mistake_in_an_option_is_told_in_the_words_of_the_option(desk):
    for option in ("foo=1", "stale_s", "stale_s=x"):
        refused = desk.quick("guard", "run", "--option", option, "--", "true")
        assert refused.code == 2 and f"--option {option}" in refused.err, refused
        assert ": is not" not in refused.err, refused
        assert "--set" not in refused.err and "guard.s" not in refused.err
    assert list((desk.home / "runs").glob("*")) == [] if (desk.home / "runs").exists() else True


def test_a_supervised_script_gives_the_run_its_name(desk):
    (desk.folder / "train.py").write_text("print('hello')\n")
    told = desk.albor("guard", "run", "--json", "--", "python3", "train.py")
    assert told.document["run"]["id"].startswith("train-"), told


def test_the_help_says_how_a_loop_of_ones_own_is_tracked(desk):
    told = desk.quick("--help").out
    assert "from albor_core import track" in told and "track.start(" in told


@pytest.mark.parametrize(
    ("names", "common"),
    [
        (("mlp lr=0.6 h=32 s=1", "mlp lr=0.6 h=32 s=2"), "mlp lr=0.6 h=32"),
        (("lr=0.1,seed=10", "lr=0.1,seed=11"), "lr=0.1"),
        (("run a0", "run a1"), "run a"),
        (("x", "y"), "x"),
        (("s=1", "s=2"), "s=1"),
    ],
)
def test_a_group_is_called_by_what_its_names_share(names, common):
    assert _common_name(names) == common


def test_a_parameter_that_is_the_same_in_a_group_has_no_band():
    assert _band_text(band([0.6, 0.6])) == "0.6"
    assert _band_text(band([1.0, 3.0])) == "2 +- 1.4"


def test_a_second_start_by_a_name_at_work_shows_how_to_watch_it(user, hold):
    run = create_run(user.folder / "runs", "second", experiment="e", name="second", kind="train",
                     argv=["x"])  # fmt: skip
    holder = hold(run.run_lock)
    words = ("train", "apply", "tiny.yaml", "--name", "second", "--detach")
    refused = user.quick(*words)
    assert refused.code == 8 and "albor monitor second" in refused.err, refused
    holder.communicate()
    assert "albor train resume second" in user.quick(*words).err


def test_checkpoints_have_their_step_and_a_mark_once_they_are_pruned(desk):
    run = create_run(desk.folder / "out", "kept", experiment="e", name="kept", kind="train",
                     argv=["x"])  # fmt: skip
    journal = Journal(run.journal, attempt=1)
    for step, more in ((5, {}), (10, {"step": 10})):
        name = f"step-{step:08d}"
        journal.append("a", name=name, path=str(run.checkpoints / name), bytes=1, hash="h",
                       kind="checkpoint", **more)  # fmt: skip
    journal.close()
    (run.checkpoints / "step-00000010").mkdir()
    index_now(run)
    shown = valid(desk.quick("runs", "show", "kept", "--json"))["artifacts"]
    assert [(a["step"], a["is_gone"]) for a in shown] == [(5, True), (10, False)]
    assert "checkpoint, gone" in desk.quick("runs", "show", "kept").out
    assert desk.quick("runs", "mv", "kept", "./away").code == 0
    shown = valid(desk.quick("runs", "show", "kept", "--json"))["artifacts"]
    assert [a["is_gone"] for a in shown] == [True, False]
