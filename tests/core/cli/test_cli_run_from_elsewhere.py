"""A run directory that this home's user did not launch: nothing that its files name is started."""

import json
import shutil

import pytest
from click.testing import CliRunner

from albor_core.cli.main import cli
from albor_core.feed.run.offers import offer, subject_of_run
from albor_core.guard import launch as guard_launch
from albor_core.guard.__main__ import main as guard_main
from albor_core.guard.launch import write_launch
from albor_core.launch import local
from albor_core.launch.start import start
from albor_core.run.errors import AlborError, InUseError
from albor_core.run.home.new_run import create_run
from albor_core.run.home.registry import is_launched_here, register
from albor_core.run.rundir import RunDir

WHY = "was not launched from this home"
PLACES = ("registered", "dropped into the home", "named by its folder")


@pytest.fixture(autouse=True)
def no_process(monkeypatch):
    """A guard that is started fails the test."""

    def started(run, *_args, **_more):
        raise AssertionError(f"a guard of {run.id} was started")

    for module in (guard_launch, local):
        monkeypatch.setattr(module, "start_guard", started)


@pytest.fixture
def come(tmp_path, monkeypatch):
    """Makes a run in another home, and brings its folder here by hand."""

    def come(kind, place):
        monkeypatch.setenv("ALBOR_HOME", str(tmp_path / "theirs"))
        argv = ["touch", str(tmp_path / "ran")]
        resolved = {"training": {"mode": "theirs:Own", "device": "cpu"}}
        made = create_run(
            tmp_path / "theirs" / "runs", "gift", experiment="x", name="gift", kind=kind,
            argv=argv, config=json.dumps(resolved).encode(), resolved=resolved,
        )  # fmt: skip
        write_launch(made, argv=argv, cwd=tmp_path, kind=kind, index=False)
        monkeypatch.setenv("ALBOR_HOME", str(tmp_path / "mine"))
        parent = tmp_path / "mine" / "runs" if place == PLACES[1] else tmp_path / "unpacked"
        (tmp_path / "mine").mkdir(mode=0o700)
        run = RunDir(parent / "gift")
        shutil.copytree(made.path, run.path)
        run.path.parent.chmod(0o700)
        if place == PLACES[0]:
            register(run)
        return run

    return come


def refusal(*argv):
    error = CliRunner().invoke(cli, list(map(str, argv))).exception
    assert isinstance(error, AlborError), error
    return error


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind, verb", [
    ("train", ("train", "resume")),
    ("train", ("train", "resume", "--allow-config-change")),
    ("train", ("train", "resume", "--world-size", "2")),
    ("guard", ("guard", "retry")),
])  # fmt: skip
def test_no_verb_starts_what_a_run_from_elsewhere_names(come, tmp_path, kind, verb, place):
    run = come(kind, place)
    before = {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}
    found = refusal(*verb, run.path)
    assert (found.exit_code, WHY in found.message) == (8, True), found.message
    assert found.hint.startswith("read its config, then: albor" if kind == "train" else "albor")
    assert before == {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", ["train", "guard"])
def test_neither_guard_nor_cockpit_nor_plan_starts_a_run_from_elsewhere(
    come, tmp_path, capfd, kind, place
):
    run = come(kind, place)
    assert guard_main([str(run.path)]) == 8
    assert WHY in capfd.readouterr().err
    assert WHY in offer("retry", subject_of_run(run)).why_not
    with pytest.raises(InUseError, match=WHY):
        start(run)
    assert not is_launched_here(run)
    assert not (tmp_path / "ran").exists() and not run.guard_lock.exists()


def test_a_run_from_elsewhere_goes_on_by_a_command_of_the_users_own(come):
    run = come("guard", PLACES[1])
    program = shutil.which("touch")
    run.launch.unlink()
    done = CliRunner().invoke(
        cli, ["guard", "run", "--name", "gift", "--resume-or-start", "--", "touch", "mine"]
    )
    assert isinstance(done.exception, AssertionError) and "gift was started" in str(done.exception)
    assert json.loads(run.launch.read_text())["argv"] == [program, "mine"]
    assert is_launched_here(run)


def test_of_two_homes_runs_with_one_id_only_ones_own_is_started(come, tmp_path):
    gift = come("guard", PLACES[2])
    own = create_run(
        tmp_path / "mine" / "runs", "gift", experiment="x", name="gift", kind="guard", argv=["true"]
    )
    assert [is_launched_here(run) for run in (own, gift)] == [True, False]
