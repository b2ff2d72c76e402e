"""A disk that takes nothing more: a stop works all the same, and every refusal names the place and
what helps.

Two kinds: a file size limit of 0, under which any write fails, and a read-only mount of the home.
"""

from __future__ import annotations

import subprocess
import sys

import pytest
from cli_user import ALBOR, User, strict, wait_until
from read_only import where_read_only

from albor_core.run.rundir import RunDir, read_json
from albor_core.store.annotations import read_annotations

NAP = "import time; time.sleep(600)"  # outlives the test, which stops it


@pytest.fixture
def desk(tmp_path):
    (tmp_path / "work").mkdir()
    made = User(tmp_path / "work", tmp_path / "home")
    yield made
    if RunDir(made.home / "runs" / "nap").liveness().is_alive:
        assert made.albor("guard", "stop", "nap").code == 0


@pytest.fixture
def nap(desk):
    """A guarded program that sleeps."""
    words = ("guard", "run", "--name", "nap", "--detach", "--", sys.executable, "-c", NAP)
    assert desk.albor(*words).code == 0
    run = RunDir(desk.home / "runs" / "nap")
    wait_until(lambda: run.liveness().trainer)
    return run


def limited(desk, *words):
    """`albor` where no file may grow."""
    argv = ["bash", "-c", 'ulimit -f 0; exec "$@"', "bash", *ALBOR, *words]
    return whole(
        subprocess.run(
            argv, cwd=desk.folder, env=desk.environment(), stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=120,
        )
    )  # fmt: skip


def read_only(desk, *words):
    """`albor` where its home is on a read-only mount."""
    argv = [*ALBOR, *words]
    return whole(where_read_only(desk.home, argv, cwd=desk.folder, env=desk.environment()))


def whole(done):
    assert "Traceback" not in done.stderr, done.stderr
    return done


@pytest.mark.parametrize("disk", [limited, read_only])
def test_a_run_can_be_stopped_when_no_file_can_be_written(desk, nap, disk):
    stopped = disk(desk, "guard", "stop", "nap", "--json")
    assert stopped.returncode == 0, stopped
    document = strict(stopped.stdout)
    assert (document["command"], document["status"]) == ("stop", "done")
    assert "signal" in document["detail"]
    assert not nap.liveness().is_alive
    assert (read_json(nap.guard / "guard.json") or {})["state"] == "stopped"


@pytest.mark.parametrize(
    ("disk", "helps"), [(limited, "ulimit -f unlimited"), (read_only, "remount,rw")]
)
def test_what_cannot_be_said_names_the_place_and_what_helps(desk, nap, disk, helps):
    for words in ("guard pause nap", "runs tag nap x", "runs note nap x", "runs pin nap"):
        refused = disk(desk, *words.split())
        assert (refused.returncode != 0, refused.stdout) == (True, ""), words
        assert str(nap.path) in refused.stderr and helps in refused.stderr, words
        assert "--help" not in refused.stderr
    assert list(read_annotations(nap)) == [] and not list((nap.guard / "inbox").iterdir())


def test_on_a_read_only_home_history_is_read_and_the_living_are_alive(desk, nap):
    shown = strict(read_only(desk, "runs", "show", "nap", "--json").stdout)
    assert shown["status"] == "running"
    (listed,) = strict(read_only(desk, "runs", "ls", "--json").stdout)["runs"]
    assert listed["status"] == "running"
    for words in ("db rebuild", "runs gc", "runs rm nap --yes", "runs export nap -o {}/x.csv"):
        done = read_only(desk, *words.format(desk.home).split())
        if done.returncode:
            assert str(desk.home) in done.stderr or "nap" in done.stderr, words
            assert "next:" in done.stderr, words
    assert nap.liveness().is_alive and nap.run_json.exists()
