"""A run on disk: made once, found again, never escaping its folder."""

import json
import os
import stat
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from albor_core.run.errors import InUseError, NotFoundError, UsageError
from albor_core.run.files.whole_file import clear_halves, temporary_beside, write_bytes, write_json
from albor_core.run.home.folders import albor_home
from albor_core.run.home.new_run import create_run
from albor_core.run.home.runs import registered_runs, runs_in
from albor_core.run.rundir import RunDir, is_run_id, new_run_id, read_json
from albor_core.store.query.resolve import AmbiguousError, find_run


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("ALBOR_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def make(parent, run_id, **changes):
    given = {"experiment": "e", "name": run_id, "kind": "train", "argv": ["albor"], "seed": 1}
    return create_run(parent, run_id, **{**given, **changes})


def test_a_run_is_made_private_whole_and_registered(tmp_path, home):
    run = make(tmp_path / "out", "r-1", config=b"a: 1\n", resolved={"a": 1}, facts={"git": "x"})
    assert stat.S_IMODE(run.path.stat().st_mode) == 0o700
    assert run.config_yaml.read_bytes() == b"a: 1\n"
    assert read_json(run.config_resolved) == {"a": 1}
    assert run.metadata()["git"] == "x"
    assert read_json(home / "runs" / "r-1.json")["path"] == str(run.path)
    assert [known.id for known in registered_runs()] == ["r-1"]
    for path in run.path.rglob("*"):
        assert not stat.S_IMODE(path.stat().st_mode) & 0o077, path


def test_a_home_that_a_run_brings_into_being_is_the_owners_alone(home):
    old = os.umask(0)
    try:
        make(home / "runs", "r-1")
    finally:
        os.umask(old)
    for path in (home, *home.rglob("*")):
        assert not stat.S_IMODE(path.stat().st_mode) & 0o077, path


def test_a_run_is_never_made_twice(tmp_path):
    run = make(tmp_path, "r-1")
    before = run.run_json.read_bytes()
    with pytest.raises(InUseError, match="r-1"):
        make(tmp_path, "r-1")
    assert run.run_json.read_bytes() == before


@pytest.mark.parametrize(
    "run_id", ["../../etc", "/abs", "a/../../b", ".", "..", "a\0b", "x" * 300, "-rf", "", "A",
               "a b", "a\n"]
)  # fmt: skip
def test_an_id_that_could_leave_its_folder_names_no_run(tmp_path, run_id):
    assert not is_run_id(run_id)
    with pytest.raises(UsageError, match="cannot name a run"):
        make(tmp_path, run_id)


@pytest.mark.parametrize(
    "name", ["Pretrain 350M v2!", "../../x", "", "---", "x" * 500, "\u00e9\u00e9"]
)
def test_any_name_gives_a_valid_id(name):
    assert is_run_id(new_run_id(name))


def test_s14_sixty_four_runs_of_one_name_at_the_same_moment_are_sixty_four(tmp_path, monkeypatch):
    monkeypatch.setattr(time, "time", lambda: 1.0e9)
    together = threading.Barrier(64)

    def begin(_):
        together.wait()
        return make(tmp_path / "out", new_run_id("same"))

    with ThreadPoolExecutor(64) as threads:
        runs = list(threads.map(begin, range(64)))
    assert len({run.id for run in runs}) == len(list((tmp_path / "out").iterdir())) == 64


def test_ids_of_the_same_name_differ():
    assert len({new_run_id("a") for _ in range(100)}) > 90  # 24 random bits


def test_a_run_is_found_by_directory_output_dir_id_and_prefix(tmp_path):
    old = make(tmp_path / "out", "alpha-1")
    new = make(tmp_path / "out", "beta-1")
    for number, run in enumerate((old, new)):
        write_json(run.run_json, {**run.metadata(), "created": float(number)})
    assert find_run(str(old.path)).id == "alpha-1"
    assert find_run(str(tmp_path / "out")).id == "beta-1"
    assert find_run("alpha-1").path == old.path
    assert find_run("bet").path == new.path


def test_a_run_reached_by_a_link_or_dots_has_its_own_id(tmp_path):
    run = make(tmp_path / "out", "r-1")
    (tmp_path / "latest").symlink_to(run.path)
    assert find_run(str(tmp_path / "latest")).id == "r-1"
    assert find_run(str(run.checkpoints / "..")).id == "r-1"


@pytest.mark.parametrize("reference", ["nothing", "", "../..", "*", "a\0b"])
def test_what_names_no_run_is_not_found(tmp_path, monkeypatch, reference):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(NotFoundError):
        find_run(reference)


def test_a_prefix_of_two_runs_names_both(tmp_path):
    make(tmp_path, "r-1")
    make(tmp_path, "r-2")
    with pytest.raises(AmbiguousError, match="2 runs: r-1, r-2"):
        find_run("r-")


@pytest.mark.parametrize("damage", ["", "[]", '{"created": "yesterday"}', '{"created": null}', "{"])
def test_one_damaged_run_hides_no_other(tmp_path, home, damage):
    good = make(tmp_path / "out", "good")
    bad = make(tmp_path / "out", "bad")
    bad.run_json.write_text(damage)
    (home / "runs" / "bad.json").write_text(damage)
    assert runs_in(tmp_path / "out")[0].id == "good"
    assert "good" in [run.id for run in registered_runs()]
    assert find_run("good").path == good.path


def test_a_directory_without_run_json_is_not_a_run(tmp_path):
    with pytest.raises(NotFoundError, match="not a run directory"):
        RunDir(tmp_path).metadata()


def test_the_newest_log_is_that_of_the_latest_attempt(tmp_path):
    run = make(tmp_path, "r-1")
    assert run.newest_log() is None
    for attempt in (2, 10, 9):
        run.log(attempt).write_text("")
    assert run.newest_log() == run.log(10)


@pytest.mark.parametrize(
    "raw", [b"", b"[1]", b"5", b"{", b'{"a": NaN}', b"\xff", b"[" * 200_000,
            b'{"a": 1}' + b" " * (1 << 20)],
    ids=["empty", "list", "number", "half", "nan", "bytes", "deep", "large"],
)  # fmt: skip
def test_only_a_small_json_object_is_read(tmp_path, raw):
    path = tmp_path / "x.json"
    path.write_bytes(raw)
    assert read_json(path) is None


def test_links_and_fifos_are_not_read(tmp_path):
    (tmp_path / "real.json").write_text("{}")
    (tmp_path / "link.json").symlink_to(tmp_path / "real.json")
    os.mkfifo(tmp_path / "fifo.json")
    assert read_json(tmp_path / "real.json") == {}
    assert read_json(tmp_path / "link.json") is None
    assert read_json(tmp_path / "fifo.json") is None


def test_a_failed_write_leaves_the_old_document_and_no_litter(tmp_path):
    path = tmp_path / "x.json"
    write_json(path, {"a": 1})
    with pytest.raises(TypeError):
        write_bytes(path, "not bytes")
    with pytest.raises(ValueError, match="JSON compliant"):
        write_json(path, {"a": float("nan")})
    assert json.loads(path.read_text()) == {"a": 1}
    assert list(tmp_path.iterdir()) == [path]


def test_what_a_killed_writer_left_is_cleared_and_a_live_ones_is_not(tmp_path):
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait(timeout=30)
    halves = [f".training_state.json.{pid}.0123abcd.tmp" for pid in (gone.pid, os.getpid())]
    for name in (*halves, ".notes.tmp", "step-1.tmp"):
        (tmp_path / name).write_text("{")
    clear_halves(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {halves[1], ".notes.tmp", "step-1.tmp"}
    clear_halves(tmp_path / "absent")


def test_what_a_killed_export_left_is_cleared_as_a_document_is(tmp_path):
    program = "import sys, pathlib; from albor_core.run.files.whole_file import temporary_beside\n"
    program += "temporary_beside(pathlib.Path(sys.argv[1])).touch()"
    subprocess.run([sys.executable, "-c", program, tmp_path / ("x" * 200)], check=True)
    mine = temporary_beside(tmp_path / "runs.csv")
    mine.touch()
    clear_halves(tmp_path)
    assert list(tmp_path.iterdir()) == [mine]


def test_writers_at_the_same_time_leave_one_whole_document(tmp_path):
    path = tmp_path / "x.json"

    def write(number):
        for _ in range(50):
            write_json(path, {"n": number, "x": "y" * 5000})

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert read_json(path)["x"] == "y" * 5000
    assert list(tmp_path.iterdir()) == [path]


def test_home_is_absolute_wherever_it_points(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ALBOR_HOME", "relative")
    assert albor_home() == tmp_path / "relative"


@pytest.fixture(scope="module")
def home_of_the_module():
    """As a fixture that is made before any test has a home of its own sees it."""
    return albor_home()


def test_fixtures_wider_than_a_test_have_a_home_that_is_not_the_developers(
    home_of_the_module, home
):
    assert home_of_the_module.is_relative_to(tempfile.gettempdir())
    assert home_of_the_module not in (home, Path.home() / ".albor")
