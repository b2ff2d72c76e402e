"""A copy of a home reads and changes its own folders alone. What a home lacks is told: a folder, a
journal's end, all of it.
"""

from __future__ import annotations

import shutil
from contextlib import closing

import pytest
from cli_user import User

from albor_core import track
from albor_core.feed.runs.discover import HomeRuns
from albor_core.run.errors import NotFoundError
from albor_core.run.files.whole_file import write_json
from albor_core.run.home.folders import pointer_of
from albor_core.run.home.new_run import create_run
from albor_core.run.journal import Journal
from albor_core.run.rundir import read_json
from albor_core.store.upkeep.rebuild import rebuild

NAMES = ("run0", "run1", "run2")


@pytest.fixture
def user(user, inside, monkeypatch):
    """Somebody with three runs of 20 points, indexed, in the home."""
    monkeypatch.setenv("ALBOR_HOME", str(user.home))
    made = [
        create_run(user.home / inside, name, experiment="e", name=name, kind="track", argv=[])
        for name in NAMES
    ]
    for run in made:
        with closing(Journal(run.journal, attempt=1)) as journal:
            for step in range(1, 21):
                journal.metrics(step, {"val/loss": 1 / step})
            journal.event("run.end", step=20, status="completed", code=0)
        words = {"schema": "albor.exit/1", "attempt": 1, "code": 0, "reason": "completed"}
        write_json(run.exit, {**words, "step": 20, "lines_lost": 0})
    assert rebuild(None, made).problems == []
    return user


@pytest.fixture
def inside(request):
    """The folder of the home that its runs lie in."""
    return getattr(request, "param", "runs")


everywhere = pytest.mark.parametrize("inside", ["runs", "work/deep"], indirect=True)


@pytest.fixture
def copy(user, monkeypatch):
    """The user of a copy of the home, without what is named."""

    def made(*without: str) -> User:
        other = User(user.folder, user.home.with_name("copy"))
        shutil.copytree(user.home, other.home)
        for name in without:
            for path in other.home.glob(name):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        monkeypatch.setenv("ALBOR_HOME", str(other.home))
        return other

    return made


def files_of(home):
    return {
        path.relative_to(home): path.read_bytes()
        for path in home.rglob("*")
        if path.is_file() and not path.name.endswith(("-wal", "-shm"))
    }


def ids(user):
    return {row["id"] for row in user.quick("runs", "ls", "--json").document["runs"]}


@everywhere
def test_a_run_removed_from_a_copy_is_gone_there_and_stays_where_it_was_copied_from(user, copy):
    before, other = files_of(user.home), copy()
    assert other.quick("runs", "rm", "run2", "--yes").code == 0
    assert ids(other) == {"run0", "run1"}
    assert other.quick("runs", "rm", "run2", "--yes").code == 3
    assert files_of(user.home) == before
    assert other.quick("db", "check").code == 0


@everywhere
def test_a_run_removed_from_a_moved_home_is_gone(user, monkeypatch):
    moved = User(user.folder, user.home.rename(user.home.with_name("moved")))
    monkeypatch.setenv("ALBOR_HOME", str(moved.home))
    assert moved.quick("runs", "rm", "run2", "--yes").code == 0
    assert ids(moved) == {"run0", "run1"}
    assert moved.quick("runs", "rm", "run2", "--yes").code == 3


@everywhere
@pytest.mark.parametrize(
    "words",
    ["rename run1 EVIL", "tag run1 x", "note run1 x", "mv run1 ./stolen", "rm run1 --yes"],
)
def test_a_run_whose_folder_did_not_come_along_is_not_changed_where_it_lies(
    user, copy, inside, words
):
    before, other = files_of(user.home), copy(f"{inside}/run1")
    assert other.quick("runs", *words.split()).code == (0 if "rm " in words else 3)
    assert files_of(user.home) == before


@pytest.mark.slow  # a run of its own
@everywhere
def test_a_run_whose_folder_did_not_come_along_is_not_logged_into(user, copy, inside):
    before, _ = files_of(user.home), copy(f"{inside}/run1")
    with pytest.raises(NotFoundError, match="no such run"):
        track.start(id="run1", resume="must")
    assert files_of(user.home) == before


@pytest.mark.parametrize(
    ("without", "missing"),
    [
        (["runs/run1"], ["run1"]),
        (["runs"], NAMES),
        (["runs", "begun"], NAMES),
    ],
)
@pytest.mark.parametrize("is_first_there", [True, False])
def test_each_folder_that_did_not_come_along_is_named(user, copy, without, missing, is_first_there):
    other = copy(*without)
    if not is_first_there:
        shutil.rmtree(user.home)
    for _ in range(2):
        said = other.quick("db", "check")
        assert said.code == 1
        for name in missing:
            assert f"{name}: its folder is not at " in said.err
        assert f"albor runs rm {missing[0]}" in said.err or len(missing) > 1
        other.quick("db", "rebuild")
    assert other.quick("runs", "rm", *missing, "--yes").code == 0
    assert other.quick("db", "check").code == 0


def test_a_folder_that_did_not_come_along_nor_its_file_is_named_too(user, copy):
    other = copy("runs/run1*", "runs/run2*")
    assert other.quick("db", "rebuild").code == 0
    said = other.quick("db", "check")
    assert said.code == 1
    assert "run1: its folder" in said.err and "run2: its folder" in said.err


def test_the_history_that_was_kept_of_a_removed_run_is_no_problem(user):
    assert user.quick("runs", "rm", "run1", "--yes", "--keep-history").code == 0
    assert user.quick("db", "check").code == 0


def test_a_run_of_another_home_that_was_taken_in_on_purpose_is_followed(user, monkeypatch):
    other = User(user.folder, user.home.with_name("other"))
    monkeypatch.setenv("ALBOR_HOME", str(other.home))
    folder = user.home / "runs" / "run1"
    assert other.quick("db", "rebuild", folder).code == 0
    assert ids(other) == {"run1"}
    assert other.quick("db", "check").code == 0
    assert other.quick("db", "rebuild").code == 0
    assert other.quick("runs", "tag", "run1", "ours").code == 0
    assert read_json(pointer_of("run1"))["of_home"] == str(user.home)
    assert (folder / "annotations.jsonl").is_file()


def test_another_home_is_looked_at_where_it_lies(user, monkeypatch):
    other = User(user.folder, user.home.with_name("other"))
    monkeypatch.setenv("ALBOR_HOME", str(other.home))
    folder, store = user.home / "runs" / "run1", user.home / "experiments.db"
    rows = other.quick("runs", "ls", "--db", store, "--json").document["runs"]
    assert {row["path"] for row in rows} == {str(folder.with_name(name)) for name in NAMES}
    for words in (("show", folder), ("show", "run1", "--db", store), ("export", folder)):
        assert other.quick("runs", *words).code == 0
    assert HomeRuns(user.home).runs()["run1"].path == folder


def test_removing_a_run_by_its_folder_in_another_home_leaves_the_copy_of_it(user, copy):
    other = copy()
    assert other.quick("runs", "rm", user.home / "runs" / "run1", "--yes").code == 0
    assert not (user.home / "runs" / "run1").exists()
    assert ids(other) == set(NAMES)
    assert other.quick("db", "check").code == 0


def test_a_home_that_does_not_exist_is_not_well(user, monkeypatch):
    nowhere = User(user.folder, user.folder / "typo")
    said = nowhere.quick("db", "check")
    assert (said.code, said.out) == (3, "")
    assert f"ALBOR_HOME is {nowhere.home}: no such folder" in said.err
    assert f"ALBOR_HOME is {nowhere.home}: no such folder" in nowhere.quick("doctor").out
    fresh = user.folder / "fresh"
    monkeypatch.setenv("HOME", str(fresh))
    said = nowhere.quick("db", "check", ALBOR_HOME="")
    assert (said.code, said.out) == (0, f"{fresh}/.albor: not made yet\n")
    assert not nowhere.home.exists() and not fresh.exists()


def cut(run, size):
    journal = run / "journal.jsonl"
    if size is None:
        journal.unlink()
    else:
        journal.write_bytes(journal.read_bytes()[:size])


@pytest.mark.parametrize("size", [None, 0, 100, 500, 2500])
@pytest.mark.parametrize("lost", ["", "runs/run1/.albor/experiments.db*"])
def test_a_rebuild_keeps_what_a_store_knows_and_the_journal_lost(user, size, lost):
    run = user.home / "runs" / "run1"
    before = user.quick("runs", "show", "run1", "--json").document["summary"]
    cut(run, size)
    for path in user.home.glob(lost) if lost else ():
        path.unlink()
    for words in (("db", "check"), ("db", "rebuild"), ("db", "check")):
        said = user.quick(*words)
        assert said.code == 1
        assert "run1: ended at step 20, its journal " in said.err.replace(f"{run}:", "run1:")
        assert " alone" in said.err
    assert user.quick("runs", "show", "run1", "--json").document["summary"] == before
    assert "ended at step 20, its journal " in user.quick("runs", "show", "run1").out


@pytest.mark.parametrize("words", ["note run1 hello", "tag run1 x", "mv run1 ./there"])
def test_no_other_command_takes_it_from_the_store_either(user, words):
    cut(user.home / "runs" / "run1", 500)
    assert user.quick("runs", *words.split()).code == 0
    found = user.quick("runs", "show", "run1", "--json").document
    assert found["summary"]["val/loss"]["count"] == 20
    assert words.startswith("mv") or found["notes"] or found["tags"]


def test_points_that_nothing_has_any_more_are_missed(user):
    cut(user.home / "runs" / "run1", 500)
    for path in user.home.rglob("experiments.db*"):
        path.unlink()
    for words in (("db", "rebuild"), ("db", "check")):
        said = user.quick(*words)
        assert said.code == 1
        assert "run1: ended at step 20, its journal ends at " in said.err
        assert "the rest is gone" in said.err


def test_a_journal_that_was_put_back_is_whole_again(user):
    run = user.home / "runs" / "run1"
    whole = (run / "journal.jsonl").read_bytes()
    cut(run, 500)
    assert user.quick("db", "rebuild").code == 1
    (run / "journal.jsonl").write_bytes(whole)
    assert user.quick("db", "check").code == 0
    assert user.quick("db", "rebuild").code == 0
