"""A home that moved, was copied or mounted elsewhere: every run is found, and none is another's."""

from __future__ import annotations

import json
import shutil

import pytest

from albor_core.run.registry import PlacesNow, is_begun_here, register
from albor_core.run.rundir import (
    RunDir,
    create_run,
    pointer_of,
    read_json,
    registered_runs,
    run_at,
    stray_runs,
)


@pytest.fixture
def home(tmp_path, monkeypatch):
    """Has the home at a folder, made or not."""

    def at(name):
        monkeypatch.setenv("ALBOR_HOME", str(tmp_path / name))
        return tmp_path / name

    return at


def _made(folder, run_id="one", created=1.0):
    return create_run(folder, run_id, experiment="e", name=run_id, kind="track", argv=["x"],
                      created=created)  # fmt: skip


def _places():
    return {run.id: run.path for run in registered_runs()}


@pytest.mark.parametrize("inside", ["runs", "work", "a/b/c", "projects/runs"])
def test_each_run_of_a_moved_home_is_where_the_home_is(home, inside):
    old = home("old")
    _made(old / inside)
    new = home("new")
    old.rename(new)
    assert _places() == {"one": new / inside / "one"}
    newer = home("deep/newer")
    newer.parent.mkdir()
    new.rename(newer)
    assert _places() == {"one": newer / inside / "one"}
    assert PlacesNow().of("one", str(old / inside / "one"), 1.0) == str(newer / inside / "one")


def test_a_copied_home_has_its_own_runs_while_the_first_one_is_there(home):
    old = home("old")
    _made(old / "runs")
    new = home("new")
    shutil.copytree(old, new)
    assert _places() == {"one": new / "runs" / "one"}
    assert PlacesNow().of("one", str(old / "runs" / "one"), 1.0) == str(new / "runs" / "one")
    home("old")
    assert _places() == {"one": old / "runs" / "one"}


def test_a_home_behind_a_link_has_the_runs_that_were_made_through_it_and_beside_it(home, tmp_path):
    real = home("real")
    _made(real / "runs")
    link = home("link")
    link.symlink_to(real)
    _made(link / "runs", "two")
    assert {run_id: path.resolve() for run_id, path in _places().items()} == {
        "one": real / "runs" / "one", "two": real / "runs" / "two"}  # fmt: skip
    assert not stray_runs()
    link.unlink()
    link.symlink_to(link)
    assert _places() == {}


def test_another_run_of_the_same_id_is_not_taken_for_the_one_that_is_gone(home, tmp_path):
    old = home("old")
    gone = _made(old / "out")
    twin = RunDir(gone.path, "one@far")
    register(twin)
    shutil.rmtree(gone.path)
    pointer_of("one").unlink()
    _made(old / "runs", created=2.0)
    assert _places()["one@far"] == gone.path
    assert PlacesNow().of("one@far", str(gone.path), 1.0) == str(gone.path)


def test_a_run_outside_the_home_stays_where_it_is_and_a_gone_one_is_not_found(home, tmp_path):
    old = home("old")
    _made(tmp_path / "out")
    new = home("new")
    old.rename(new)
    assert _places() == {"one": tmp_path / "out" / "one"}
    shutil.rmtree(tmp_path / "out" / "one")
    assert not _places()["one"].exists()


def test_a_folder_that_came_by_half_is_that_of_its_run(home):
    old = home("old")
    _made(old / "runs")
    new = home("new")
    old.rename(new)
    (new / "runs" / "one" / "run.json").unlink()
    assert _places() == {"one": new / "runs" / "one"}


def test_a_run_that_came_without_its_pointer_is_a_stray(home):
    old = home("old")
    run = _made(old / "runs")
    pointer_of("one").unlink()
    assert stray_runs() == [run]


def test_registering_a_run_of_a_moved_home_writes_its_new_place_down(home):
    old = home("old")
    _made(old / "runs")
    new = home("new")
    old.rename(new)
    register(run_at("one", read_json(pointer_of("one"))))
    assert json.loads(pointer_of("one").read_text())["path"] == str(new / "runs" / "one")


def test_only_what_this_home_began_may_bring_commands(home, tmp_path):
    home("theirs")
    gift = _made(tmp_path / "theirs" / "runs", "gift")
    mine = home("mine")
    begun = _made(mine / "runs")
    unpacked = RunDir(tmp_path / "unpacked" / "gift")
    shutil.copytree(gift.path, unpacked.path)
    register(unpacked)
    dropped = RunDir(mine / "runs" / "dropped")
    shutil.copytree(gift.path, dropped.path)
    assert [is_begun_here(run) for run in (begun, unpacked, dropped)] == [True, False, False]


def test_a_moved_home_remembers_what_it_began(home):
    old = home("old")
    _made(old / "runs")
    new = home("new")
    old.rename(new)
    assert is_begun_here(RunDir(new / "runs" / "one"))
