"""A store that is gone, a run folder that is damaged, a home that is none: said, never shown as an
empty history.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sqlite3
import time

import pytest
from cli_user import valid

from albor_core import track
from albor_core.run.errors import UsageError
from albor_core.run.files.whole_file import write_json
from albor_core.run.home.folders import foreign_owner
from albor_core.run.home.new_run import create_run
from albor_core.run.journal import Journal
from albor_core.store.file.paths import global_store
from albor_core.store.index.indexer import index_now
from albor_core.store.upkeep.rebuild import rebuild


@pytest.fixture
def runs(user, monkeypatch):
    """Three runs of yesterday, indexed."""
    monkeypatch.setenv("ALBOR_HOME", str(user.home))
    made = [
        create_run(user.folder / "runs", name, experiment="e", name=name, kind="track", argv=[])
        for name in ("one", "two", "three")
    ]
    for run in made:
        run.journal.touch()
        os.utime(run.run_json, (time.time() - 86400,) * 2)
    assert rebuild(None, made).problems == []
    return made


def lose_the_store():
    for path in global_store().parent.glob("experiments.db*"):
        path.unlink()


@pytest.mark.parametrize("words", ["runs ls", "alerts ls", "runs diff one two"])
def test_a_store_that_is_gone_is_no_empty_history(user, runs, words):
    lose_the_store()
    result = user.quick(*words.split())
    assert (result.code, result.out) == (3, "")
    assert "3 runs are registered" in result.err and "next: albor db rebuild" in result.err
    assert user.quick(*words.split(), "--json").error["hint"] == "albor db rebuild"
    assert "BAD  store" in user.quick("doctor").out
    assert user.quick("db", "rebuild").code == 0
    assert len(user.quick("runs", "ls").out.splitlines()) == 4


def test_a_home_without_runs_still_says_how_to_start(user):
    result = user.quick("runs", "ls")
    assert (result.code, result.err) == (0, "")
    assert "albor demo" in result.out


def test_runs_that_the_store_does_not_have_are_counted(user, runs):
    lose_the_store()
    assert rebuild(None, runs[:1]).problems == []
    listed = user.quick("runs", "ls")
    assert "one" in listed.out
    assert "2 registered runs are not in the store; next: albor db rebuild" in listed.err
    assert user.quick("runs", "ls", "name:one").err == ""


def test_a_run_that_has_just_begun_is_waited_for_and_not_called_missing(user, runs):
    os.utime(runs[-1].run_json)
    lose_own_store(runs[-1])
    lose_the_store()
    assert rebuild(None, runs[:-1]).problems == []
    assert user.quick("runs", "ls").err == ""


def test_a_damaged_folder_is_named_with_what_is_missing(user, runs):
    runs[0].run_json.unlink()
    result = user.quick("db", "rebuild")
    assert result.code == 1
    assert f"{runs[0].path}: run.json is missing (journal.jsonl" in result.err
    assert "rebuilt 2 runs" in result.out
    assert f"kept 1 run as recorded in {global_store()}" in result.out
    told = user.quick("db", "rebuild", "--json")
    assert told.code == 1
    assert told.document["carried_from"] == {"one": str(global_store())}
    assert len(told.document["problems"]) == 1 and len(told.document["rebuilt"]) == 2
    assert user.quick("db", "rebuild", user.folder / "runs").code == 1
    alone = user.quick("db", "rebuild", runs[0].path)
    assert alone.code == 3 and "run.json is missing" in alone.err and "next:" in alone.err
    assert len(user.quick("runs", "ls").out.splitlines()) == 4


@pytest.mark.parametrize(
    "words", ["runs ls", "monitor", "db rebuild", "alerts ls", "guard run -- true"]
)
@pytest.mark.parametrize("home", ["/dev/null", "/dev/null/x"])
def test_a_home_that_is_no_folder_is_named(user, words, home):
    result = user.albor(*words.split(), ALBOR_HOME=home)
    assert (result.code, result.out) == (2, "")
    assert f"ALBOR_HOME is {home}, but /dev/null is not a folder" in result.err
    assert "next: export ALBOR_HOME=" in result.err


@pytest.mark.parametrize("words", ["db rebuild", "runs import points.csv", "guard run -- true"])
def test_a_home_where_no_folder_can_be_made_is_named(user, words):
    (user.folder / "points.csv").write_text("step,loss\n1,2.0\n")
    result = user.albor(*words.split(), ALBOR_HOME="/proc/x")
    assert (result.code, result.out) == (2, "")
    assert "/proc/x" in result.err and "next: export ALBOR_HOME=" in result.err


def test_an_output_dir_that_takes_no_files_is_not_called_too_small(user):
    result = user.quick("train", "plan", "tiny.yaml", "--set", "training.output_dir=/proc/x")
    assert result.code == 1
    text = " ".join(result.out.split())
    assert "training.output_dir: /proc/x cannot be written" in text
    assert "more than is free" not in text


# -- albor db check ------------------------------------------------------------------------------


def contents(*folders):
    """All files but those that SQLite makes for whoever reads."""
    found = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    return {path: path.read_bytes() for path in found if "experiments.db-" not in path.name}


def test_check_finds_whole_stores_whole_and_changes_nothing(user, runs):
    before = contents(user.folder, user.home)
    result = user.quick("db", "check")
    assert (result.code, result.out) == (0, "4 stores of 3 runs: ok\n")
    document = user.quick("db", "check", "--thorough", "--json").document
    assert (document["ok"], document["stores"], document["problems"]) == (True, 4, [])
    assert contents(user.folder, user.home) == before


def lose_own_store(run):
    run.store.unlink()


def zero_a_page(run):
    with run.store.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * 4096)


def say_more(run):
    Journal(run.journal, attempt=1).metrics(1, {"train/loss": 1.0})


def replace_journal(run):
    say_more(run)
    index_now(run)
    run.journal.unlink()
    Journal(run.journal, attempt=2).metrics(7, {"train/loss": 1.0})


def lose_from_global(run):
    with sqlite3.connect(global_store()) as db:
        db.execute("DELETE FROM runs WHERE run = ?", (run.id,))
    db.close()


@pytest.mark.parametrize(
    ("harm", "says"),
    [
        (lose_own_store, "is in no store of its own"),
        (zero_a_page, "experiments.db: "),
        (say_more, "bytes of it are not in"),
        (replace_journal, "not the file that"),
        (lose_from_global, "one: not in"),
    ],
)
def test_check_says_what_is_wrong_and_a_rebuild_mends_it(user, runs, harm, says):
    say_more(runs[0])
    index_now(runs[0])
    assert user.quick("db", "check").code == 0
    harm(runs[0])
    result = user.quick("db", "check")
    assert (result.code, result.out) == (1, "")
    assert says in result.err and "next: albor db rebuild" in result.err
    document = user.quick("db", "check", "--json").document
    assert not document["ok"] and len(document["problems"]) == 1
    assert user.quick("db", "rebuild").code == 0
    assert user.quick("db", "check").code == 0


def test_check_tells_damage_of_the_global_store_wherever_it_is_and_of_no_run_that_it_is_missing(
    user, runs
):
    whole, page = global_store().read_bytes(), 4096
    for at in range(0, len(whole), page):
        for path in global_store().parent.glob("experiments.db-*"):
            path.unlink()
        global_store().write_bytes(whole[:at] + b"\xff" * page + whole[at + page :])
        (problem,) = user.quick("db", "check", "--json").document["problems"]
        assert problem.startswith(f"{global_store()}: "), at
    user.quick("db", "rebuild")
    assert user.quick("db", "check").code == 0


def test_check_tells_a_lost_global_store_a_damaged_folder_and_a_folder_that_is_gone(user, runs):
    shutil.rmtree(runs[0].path)
    result = user.quick("db", "check")
    assert result.code == 1 and f"its folder is not at {runs[0].path}" in result.err
    assert "next: albor db rebuild DIR, where they lie now; albor runs rm" in result.err
    runs[1].run_json.unlink()
    result = user.quick("db", "check")
    assert result.code == 1 and "run.json is missing" in result.err
    assert user.quick("db", "check", runs[2].path).code == 0
    assert user.quick("db", "check", "nowhere").code == 3
    lose_the_store()
    result = user.quick("db", "check", runs[2].path, "--json")
    assert result.code == 1 and "no such store" in result.document["problems"][0]


def test_check_names_the_lost_store_of_a_living_run_unless_it_is_too_young_to_have_one(
    user, runs, hold
):
    hold(runs[0].run_lock)
    lose_own_store(runs[0])
    result = user.quick("db", "check")
    assert result.code == 1 and f"its store {runs[0].store} is missing" in result.err
    os.utime(runs[0].run_json)
    assert user.quick("db", "check").code == 0


def test_check_counts_damaged_lines_that_nothing_mends(user, runs):
    with runs[0].journal.open("ab") as file:
        file.write(b"garbage\n" * 3)
    index_now(runs[0])
    result = user.quick("db", "check")
    assert (result.code, "one: 3 damaged lines" in result.err) == (0, True)


def test_a_run_of_which_only_the_name_is_left_is_no_work_for_a_rebuild(user, runs):
    shutil.rmtree(runs[0].path)
    lose_the_store()
    assert user.quick("db", "rebuild").code == 0
    result = user.quick("db", "check")
    assert result.code == 1 and "next: albor runs rm one" in result.err
    assert user.quick("db", "check", "--json").document["lost"] == ["one"]
    assert user.quick("runs", "rm", "one", "-y").code == 0
    assert user.quick("db", "check").code == 0


def test_a_copy_of_a_run_is_shown_once_it_was_rebuilt(user, runs):
    copy = user.folder / "runs" / "copy"
    shutil.copytree(runs[0].path, copy)
    result = user.quick("runs", "show", copy)
    assert (result.code, f"next: albor db rebuild {copy}" in result.err) == (3, True)
    assert user.quick("db", "rebuild", copy).code == 0
    assert user.quick("runs", "show", copy, "--json").document["run"]["id"] == "copy"


def test_runs_from_elsewhere_that_were_rebuilt_are_runs_of_this_home(user, runs, monkeypatch):
    new_home = {"ALBOR_HOME": str(user.folder / "new-home")}
    assert user.quick("db", "rebuild", user.folder / "runs", **new_home).code == 0
    listed = user.quick("runs", "ls", "--json", **new_home).document
    monkeypatch.setenv(*next(iter(new_home.items())))
    lose_the_store()
    assert user.quick("db", "rebuild", **new_home).code == 0
    assert user.quick("runs", "ls", "--json", **new_home).document == listed
    shutil.copytree(runs[0].path, user.folder / "copies" / "one")
    again = user.quick("db", "rebuild", user.folder / "copies", **new_home)
    assert again.code == 1 and "a copy of the run one that this home has elsewhere" in again.err


@pytest.mark.parametrize("words", [("runs", "diff"), ("report", "-o", "page.html")])
def test_folders_from_elsewhere_are_compared_after_what_the_error_says(user, runs, words):
    new_home = {"ALBOR_HOME": str(user.folder / "new-home")}
    folders = [run.path for run in runs[:2]]
    refused = user.quick(*words, *folders, **new_home)
    assert refused.code == 3
    told = re.search(r"next: albor (db rebuild .*)", refused.err)
    assert user.quick(*shlex.split(told[1]), **new_home).code == 0
    assert user.quick(*words, *folders, **new_home).code == 0


# -- albor runs diff where stores lack something -------------------------------------------------


def test_a_run_that_a_new_home_store_does_not_have_is_compared_as_it_is_shown(user, runs):
    lose_the_store()
    assert rebuild(None, runs[:1]).problems == []
    assert user.quick("runs", "show", "two").code == 0
    assert user.quick("runs", "diff", "one", "two").code == 0
    assert user.quick("runs", "pin", "one").code == 0
    assert user.quick("runs", "diff", "two").code == 0
    lose_own_store(runs[2])
    refused = user.quick("runs", "diff", "one", "three", "--json")
    assert (refused.code, refused.error["hint"]) == (3, "albor db rebuild")
    assert user.quick("runs", "diff", "one", "nobody", "--json").error["hint"] == "albor runs ls"


def test_a_config_that_no_store_has_is_unknown_and_differs_in_nothing(user, runs):
    for run, rate in zip(runs[:2], (0.1, 0.2), strict=True):
        Journal(run.journal, attempt=1).append("p", key="optimizer.lr", value=rate)
        index_now(run)
    lr = {"key": "optimizer.lr", "values": [0.1, 0.2]}
    words = ("runs", "diff", "one", "two")
    assert valid(user.quick(*words, "--json"))["config"] == [lr]
    silent = user.quick("runs", "diff", "one", "three")
    assert "the config of B is unknown: it recorded none" in silent.out
    with sqlite3.connect(global_store()) as db:
        db.execute("DELETE FROM params")
    db.close()
    lose_own_store(runs[1])
    runs[1].journal.write_bytes(b"")  # or it would be indexed again
    lost = user.quick(*words)
    assert "the config of B is unknown: it is not in the store; next: albor db rebuild" in lost.out
    assert "optimizer.lr" not in lost.out and "the same: config" not in lost.out
    document = valid(user.quick(*words, "--json"))
    assert (document["config"], "config" in document["unrecorded"]) == ([], True)
    write_json(runs[1].config_resolved, {"optimizer": {"lr": 0.2}})
    assert valid(user.quick(*words, "--json"))["config"] == [lr]


def garbage():
    for path in global_store().parent.glob("experiments.db-*"):
        path.unlink()
    global_store().write_bytes(b"no store" * 1000)


def drop_a_table():
    with sqlite3.connect(global_store()) as db:
        db.execute("DROP TABLE params")
    db.close()


@pytest.mark.parametrize("harm", [garbage, drop_a_table])
def test_a_rebuild_that_brought_all_runs_over_from_a_damaged_store_has_succeeded(user, runs, harm):
    harm()
    done = user.quick("db", "rebuild", "--json")
    document = valid(done)
    assert (document["problems"], len(document["rebuilt"])) == ([], 3)
    assert str(global_store()) in document["notes"][0]
    assert user.quick("db", "check").code == 0
    harm()
    told = user.quick("db", "rebuild")
    assert told.code == 0 and f"  - {global_store()}: " in told.err and "made again" in told.err


def test_a_rebuild_names_a_run_whose_rows_a_damaged_store_took_with_it(user, runs):
    shutil.rmtree(runs[0].path)
    garbage()
    done = user.quick("db", "rebuild")
    assert done.code == 1
    assert "one: neither its folder nor an older store has its rows" in done.err


def test_a_rebuild_of_some_runs_does_not_silently_drop_the_others_of_a_damaged_store(user, runs):
    garbage()
    done = user.quick("db", "rebuild", runs[0].path)
    assert done.code == 1 and "two: neither" not in done.err
    assert "two: not rebuilt" in done.err
    assert user.quick("db", "rebuild").code == 0


# -- files of the home that lead nowhere -----------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "raw", "why"),
    [
        ("a.json", '{"path": "\\u0000bad", "created": 1}', "holds no path of a folder"),
        ("b.json", '{"path": "/nowhere/%s"}' % ("x" * 5000), "holds no path of a folder"),
        ("b.json", '{"path": "/nowhere%s"}' % ("/x" * 2500), "holds no path of a folder"),
        ("c.json", '{"path": "\\ud800"}', "holds no path of a folder"),
        ("d.json", '{"path": ""}', "holds no path of a folder"),
        ("e.json", '{"path": "../elsewhere"}', "holds no path of a folder"),
        ("f.json", '{"path": 5}', "holds no path of a folder"),
        ("g.json", "", "is empty"),
        ("h.json", '{"path": "/no', "is not complete JSON"),
        ("-rf.json", '{"path": "/tmp"}', "its name is not that of a run"),
    ],
)
def test_a_damaged_pointer_is_named_and_passed_over(user, runs, name, raw, why):
    pointer = user.home / "runs" / name
    pointer.write_text(raw)
    for words in ("db rebuild", "db check", "runs gc --dry-run", "runs ls", "runs show one"):
        assert user.quick(*words.split()).code == 0, words
    for words in ("db rebuild", "runs gc --dry-run"):
        assert f"{pointer}: {why}; passed over" in user.quick(*words.split()).err
    (check,) = (c for c in user.quick("doctor", "--json").document["checks"] if not c["ok"]
                and c["name"] == "pointers")  # fmt: skip
    assert f"{pointer}: {why}" in check["detail"] and check["hint"]
    assert user.cockpit("--once").code == 0
    pointer.unlink()
    assert "pointers" not in user.quick("doctor").out


def test_a_name_whose_pointer_is_damaged_can_be_given_to_a_run_and_be_removed(user, runs):
    pointer = user.home / "runs" / "two.json"
    shutil.rmtree(runs[1].path)
    pointer.write_text('{"path": "\\u0000"}')
    assert user.quick("runs", "rm", "two", "-y").code == 0
    assert not pointer.exists()
    pointer.write_text('{"path": "/%s"}' % ("x" * 5000))
    create_run(user.folder / "runs", "two", experiment="e", name="two", kind="track", argv=[])


# -- a home of somebody else ----------------------------------------------------------------------


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
@pytest.mark.parametrize("theirs", ["runs", "."])
def test_nothing_is_put_where_a_stranger_could_replace_it(desk, theirs):
    home = desk.home
    (home / "runs").mkdir()
    home.chmod(0o777)
    os.chown(home / theirs, 65534, 65534)
    for words in ("guard run -- true", "db rebuild"):
        refused = desk.albor(*words.split())
        assert (refused.code, refused.out) == (2, ""), words
        assert f"{home / theirs}: belongs to user id 65534" in refused.err
        assert "next: export ALBOR_HOME=" in refused.err
    with pytest.raises(UsageError, match="belongs to user id 65534"):
        track.start()
    assert list((home / "runs").iterdir()) == []
    looked = desk.quick("doctor")
    assert looked.code == 1
    assert f"BAD  home         {home / theirs}: belongs to user id 65534" in looked.out
    assert desk.quick("runs", "ls").code == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_root_may_work_in_the_home_of_a_user_and_others_may_not(monkeypatch, tmp_path):
    (tmp_path / "home" / "runs").mkdir(parents=True)
    for folder in (tmp_path / "home", tmp_path / "home" / "runs"):
        os.chown(folder, 4000, 4000)
    assert foreign_owner(tmp_path / "home" / "runs") == ""
    monkeypatch.setattr("os.geteuid", lambda: 4001)
    assert foreign_owner(tmp_path / "home" / "runs") == "user id 4000"
    monkeypatch.setattr("os.geteuid", lambda: 4000)
    assert foreign_owner(tmp_path / "home" / "runs") == ""
