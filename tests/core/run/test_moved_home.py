"""A home that moved, was copied or mounted elsewhere: every run is found, and none is another's."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys

import pytest

from albor_core.run.errors import UsageError
from albor_core.run.home.folders import own_home, pointer_of
from albor_core.run.home.new_run import create_run
from albor_core.run.home.registry import (
    PlacesNow,
    is_begun_here,
    is_launched_here,
    known_as,
    register,
)
from albor_core.run.home.runs import registered_runs, run_at, stray_runs
from albor_core.run.rundir import RunDir, read_json


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
    assert PlacesNow(is_ours=True).of("one", str(old / inside / "one"), 1.0) == str(
        newer / inside / "one"
    )


def test_a_copied_home_has_its_own_runs_while_the_first_one_is_there(home):
    old = home("old")
    _made(old / "runs")
    new = home("new")
    shutil.copytree(old, new)
    assert _places() == {"one": new / "runs" / "one"}
    assert PlacesNow(is_ours=True).of("one", str(old / "runs" / "one"), 1.0) == str(
        new / "runs" / "one"
    )
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
    assert PlacesNow(is_ours=True).of("one@far", str(gone.path), 1.0) == str(gone.path)


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


def test_a_home_of_a_version_before_marks_began_what_it_lists_and_nothing_that_came_since(
    home, tmp_path
):
    home("theirs")
    gifts = [_made(tmp_path / "theirs" / "runs", name, created=2.0) for name in ("gift", "one")]
    mine = home("mine")
    own = _made(mine / "runs")
    shutil.rmtree(mine / "begun")
    came = [RunDir(tmp_path / "unpacked" / gift.own_id) for gift in gifts]
    for gift, run in zip(gifts, came, strict=True):
        shutil.copytree(gift.path, run.path)
    assert [is_launched_here(run) for run in (own, *came)] == [True, False, False]
    assert not (mine / "begun").exists(), "to ask writes nothing"
    for run in came:
        register(known_as(run))
    assert [is_launched_here(run) for run in (own, *came)] == [True, False, False]
    assert [mark.name for mark in (mine / "begun").iterdir()] == ["one.json"]


@pytest.mark.parametrize(
    "said", ["home", "home/", "./home", "x/../home", "../{name}/home", "{here}/"]
)
def test_a_home_is_the_same_however_its_place_is_written(said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x").mkdir()
    monkeypatch.setenv("ALBOR_HOME", str(tmp_path / "home"))
    run = _made(tmp_path / "home" / "runs")
    words = said.format(name=tmp_path.name, here=tmp_path / "home")
    monkeypatch.setenv("ALBOR_HOME", words)
    assert {name: path.resolve() for name, path in _places().items()} == {"one": run.path}
    assert not stray_runs()


@pytest.mark.parametrize(
    "name", ["two words", "ma\u00f1ana", "\u65e5\u672c", "a'b\"c", "-x", "100%"]
)
def test_a_home_may_move_to_a_place_of_any_name(home, name):
    old = home("old")
    _made(old / "runs")
    new = home(name)
    old.rename(new)
    assert _places() == {"one": new / "runs" / "one"}


def test_a_home_that_was_moved_back_has_its_runs_and_those_that_were_made_meanwhile(home):
    old = home("old")
    _made(old / "runs")
    new = home("new")
    old.rename(new)
    _made(new / "runs", "two")
    register(run_at("one", read_json(pointer_of("one"))))
    home("old")
    new.rename(old)
    assert _places() == {"one": old / "runs" / "one", "two": old / "runs" / "two"}
    assert not stray_runs()


def test_of_two_homes_that_were_put_together_no_run_is_lost(home):
    first = home("first")
    _made(first / "runs")
    other = home("other")
    _made(other / "runs", "two")
    _made(other / "runs", "three")
    for entry in (other / "runs").iterdir():
        entry.rename(first / "runs" / entry.name)
    home("first")
    assert _places() == {name: first / "runs" / name for name in ("one", "two", "three")}
    assert not stray_runs()


@pytest.mark.parametrize("copy", ["links", "files"])
def test_a_copy_on_another_disk_or_of_hard_links_leads_to_its_own_folders(home, copy):
    old = home("old")
    _made(old / "runs")
    new = home("new")
    shutil.copytree(old, new, copy_function=os.link if copy == "links" else shutil.copy2)
    assert _places() == {"one": new / "runs" / "one"}
    shutil.rmtree(old)
    assert _places() == {"one": new / "runs" / "one"}
    assert PlacesNow(is_ours=True).of("one", str(old / "runs" / "one"), 1.0) == str(
        new / "runs" / "one"
    )


def test_the_runs_of_a_home_that_may_only_be_read_are_found(home):
    old = home("old")
    _made(old / "runs")
    new = home("new")
    old.rename(new)
    folders = [new, *(path for path in new.rglob("*") if path.is_dir())]
    for folder in folders:
        folder.chmod(0o500)
    try:
        assert _places() == {"one": new / "runs" / "one"}
        assert PlacesNow(is_ours=True).of("one", str(old / "runs" / "one"), 1.0) == str(
            new / "runs" / "one"
        )
    finally:
        for folder in folders:
            folder.chmod(0o700)


@pytest.mark.slow  # a process that holds a lock
def test_a_run_at_work_is_so_where_its_home_was_moved_to(home):
    old = home("old")
    run = _made(old / "runs")
    program = (
        "import sys; from pathlib import Path; from albor_core.run.liveness import take_lock\n"
    )
    program += "take_lock(Path(sys.argv[1])); print('held', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", program, run.run_lock],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as holder:  # fmt: skip
        assert holder.stdout.readline() == b"held\n"
        new = home("new")
        old.rename(new)
        moved = RunDir(_places()["one"])
        assert moved.path == new / "runs" / "one"
        assert moved.liveness().trainer == holder.pid
        holder.communicate()
    assert not moved.liveness().is_alive


@pytest.mark.slow  # a namespace of its own
def test_a_home_that_is_mounted_elsewhere_has_its_runs_there(home, tmp_path):
    old = home("old")
    _made(old / "runs")
    (tmp_path / "mounted").mkdir()
    look = "from albor_core.run.home.runs import registered_runs, stray_runs\n"
    look += "print([str(run.path) for run in registered_runs()], stray_runs())"
    command = (
        'mount --bind "$1" "$2" && mount --bind /var/empty "$1" 2>/dev/null; exec "$3" -c "$4"'
    )
    argv = [
        "unshare",
        "-rm",
        "sh",
        "-c",
        command,
        "sh",
        old,
        tmp_path / "mounted",
        sys.executable,
        look,
    ]
    environ = {**os.environ, "ALBOR_HOME": str(tmp_path / "mounted")}
    said = subprocess.run(argv, capture_output=True, text=True, env=environ, check=False)
    if said.returncode and ("unshare" in said.stderr or "mount" in said.stderr):
        pytest.skip("this machine gives no namespace to mount in")
    assert said.stdout == f"['{tmp_path}/mounted/runs/one'] []\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a folder away")
def test_the_home_of_another_user_is_read_and_not_written_to(home):
    old = home("old")
    _made(old / "runs")
    for path in (old / "runs", *(old / "runs").rglob("*")):
        os.chown(path, 65534, 65534)
    assert _places() == {"one": old / "runs" / "one"}
    with pytest.raises(UsageError, match="belongs to user id 65534"):
        _made(old / "runs", "two")
    os.chown(old, 65534, 65534)
    with pytest.raises(UsageError, match="belongs to user id 65534"):
        own_home()
