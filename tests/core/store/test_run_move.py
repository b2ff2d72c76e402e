"""Moving a run: on one disk or across, killed at any moment, never without a whole run."""

from __future__ import annotations

import errno
import os
import signal
import sqlite3
from pathlib import Path

import pytest

from albor_core.run.errors import AlborError, InUseError, UsageError
from albor_core.run.liveness import take_lock
from albor_core.run.rundir import RunDir, read_json
from albor_core.store.file.paths import global_store
from albor_core.store.index.annotations import annotate
from albor_core.store.query.reader import Reader
from albor_core.store.query.resolve import find_run
from albor_core.store.upkeep import move
from albor_core.store.upkeep.move import find_moved, move_run

pytestmark = pytest.mark.slow  # in sum; `make check` is under a minute


@pytest.fixture
def run(bench):
    made = bench.run("r1")
    journal = bench.journal(made)
    for step in range(50):
        journal.metrics(step, {"train/loss": 1.0 / (step + 1)})
    journal.event("run.end", status="completed", reason="completed", code=0)
    bench.journals.pop("r1").close()
    annotate(made, "tag", "kept")
    (made.checkpoints / "step-00000050").mkdir()
    (made.checkpoints / "step-00000050" / "model.safetensors").write_bytes(os.urandom(5_000_000))
    (made.checkpoints / "latest").symlink_to("step-00000050")
    bench.index(made)
    return made


@pytest.fixture
def other_disk(monkeypatch):
    """A rename between folders is refused as between disks."""
    real = Path.rename

    def rename(self, target):
        if self.parent != Path(target).parent:
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        return real(self, target)

    monkeypatch.setattr(Path, "rename", rename)


def content(run: RunDir) -> dict[str, bytes | str]:
    """Everything in it but locks and stores, which are made again."""
    found: dict[str, bytes | str] = {}
    for path in sorted(run.path.rglob("*")):
        name = str(path.relative_to(run.path))
        if path.is_symlink():
            found[name] = str(path.readlink())
        elif path.is_file() and not name.startswith(".albor") and not name.endswith(".lock"):
            found[name] = path.read_bytes()
    return found


def history() -> tuple[object, ...]:
    with Reader(global_store()) as reader:
        row = reader.run("r1")
        return row.loss, row.tags, row.ended_status, reader.series("r1", "train/loss")


@pytest.mark.parametrize("disk", ["same", "other"])
def test_a_run_lies_elsewhere_and_everything_follows(bench, run, disk, request):
    if disk == "other":
        request.getfixturevalue("other_disk")
    before, told = content(run), history()
    mode = (run.path.stat().st_mode, run.journal.stat().st_mode)
    moved = move_run(run, bench.root / "archive" / "2026")
    new = RunDir(bench.root / "archive" / "2026" / "r1")
    assert (moved.old, moved.path, moved.copied) == (str(run.path), str(new.path), disk == "other")
    assert moved.indexed and moved.bytes > 5_000_000
    assert not run.path.exists() and find_run("r1") == new
    assert content(new) == before and history() == told
    assert (new.path.stat().st_mode, new.journal.stat().st_mode) == mode
    pointer = read_json(bench.root / "home" / "runs" / "r1.json")
    assert pointer is not None and set(pointer) == {"path", "created"}
    for store in (global_store(), new.store):
        with Reader(store) as reader:
            assert reader.run("r1").path == str(new.path)
    assert [path.name for path in new.path.parent.iterdir()] == ["r1"]
    assert list((bench.root / "out").iterdir()) == []
    move_run(new, bench.root / "out")
    assert content(run) == before and history() == told


class Killed(BaseException):
    """As a process that is no more: nothing after it runs, so clean-up must not either."""


STEPS = (
    "replace",
    "_move_or_copy",
    "_copy_folder",
    "_must_be_equal",
    "_remove_old",
    "doom",
    "remove_tree",
)


@pytest.mark.parametrize("disk", ["same", "other"])
def test_killed_at_any_moment_the_run_is_whole_and_the_same_command_finishes(bench, run, disk):
    """A child process dies before and after each step, one after the other, until it is done."""
    before, told = content(run), history()
    folder = bench.root / "archive"
    new = RunDir(folder / "r1")
    deaths = 0
    for moment in range(1, 60):
        pid = os.fork()
        if pid == 0:
            _die_at(moment, other_disk=disk == "other")
            try:
                move_run(_find(), folder)
            finally:
                os._exit(0 if new.run_json.is_file() and not run.path.exists() else 1)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        whole = [place for place in (run, new) if place.run_json.is_file()]
        assert whole and all(content(place) == before for place in whole), moment
        if code == 0:
            break
        assert code == 9
        deaths += 1
        if new.run_json.is_file() and not run.run_json.is_file():  # begin again from the start
            move_run(_find(), folder)
            move_run(new, run.path.parent)
            assert content(run) == before
    assert code == 0 and deaths >= (6 if disk == "same" else 12)
    assert move_run(_find(), folder).indexed
    assert content(new) == before and history() == told
    assert [path.name for path in folder.iterdir()] == ["r1"]
    assert list(run.path.parent.iterdir()) == []


def _find() -> RunDir:
    try:
        return find_run("r1")
    except AlborError:
        return find_moved("r1")


def _die_at(moment: int, *, other_disk: bool) -> None:
    """Patch this process so that it ends at the n-th moment before or after a step."""
    left = moment

    def wrapped(real):
        def call(*args, **kwargs):
            nonlocal left
            left -= 1
            if left == 0:
                os._exit(9)
            result = real(*args, **kwargs)
            left -= 1
            if left == 0:
                os._exit(9)
            return result

        return call

    for name in STEPS:
        owner = move._Pointer if name == "replace" else move
        setattr(owner, name, wrapped(getattr(owner, name)))
    real = Path.rename

    def rename(self, target):
        if other_disk and self.parent != Path(target).parent:
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        return (
            wrapped(real)(self, target) if self.name in ("r1", ".r1.moving") else real(self, target)
        )

    Path.rename = rename


def test_a_copy_that_does_not_equal_the_original_is_no_move(bench, run, other_disk, monkeypatch):
    before = content(run)
    real = move._copy_folder

    def flipped(source, target):
        real(source, target)
        weights = target / "checkpoints" / "step-00000050" / "model.safetensors"
        if weights.exists():
            damaged = bytearray(weights.read_bytes())
            damaged[1_234_567] ^= 1
            weights.write_bytes(damaged)

    monkeypatch.setattr(move, "_copy_folder", flipped)
    with pytest.raises(AlborError, match=r"model\.safetensors: differs"):
        move_run(run, bench.root / "archive")
    assert content(run) == before and find_run("r1") == run
    assert list((bench.root / "archive").iterdir()) == []


def test_a_full_disk_leaves_everything_as_it_was(bench, run, other_disk, monkeypatch):
    before = content(run)

    def full(*_args, **_kwargs):
        raise OSError(errno.ENOSPC, "No space left on device", "somewhere")

    monkeypatch.setattr(move.shutil, "copy2", full)
    with pytest.raises(AlborError, match="No space left"):
        move_run(run, bench.root / "archive")
    assert content(run) == before and find_run("r1") == run
    assert list((bench.root / "archive").iterdir()) == []
    monkeypatch.setattr(move.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 1000}))
    with pytest.raises(AlborError, match="needed"):
        move_run(run, bench.root / "archive")


def test_a_copy_that_went_on_is_never_thrown_away(bench, run, other_disk, monkeypatch):
    """Killed between copy and removal; then somebody trained on in the old folder."""

    def killed(*_args):
        raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(move, "_remove_old", killed)
        move_run(run, bench.root / "archive")
    with run.journal.open("ab") as file:
        file.write(b'{"t":"e"}\n')
    with pytest.raises(AlborError, match="went on after it was copied"):
        move_run(find_run("r1"), bench.root / "archive")
    assert run.journal.is_file() and (bench.root / "archive" / "r1" / "journal.jsonl").is_file()


@pytest.mark.parametrize("lock", ["run_lock", "guard_lock"])
def test_a_run_that_is_alive_stays(bench, run, lock):
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        take_lock(getattr(run, lock))
        os.write(writer, b"1")
        signal.pause()
        os._exit(0)
    os.read(reader, 1)
    try:
        with pytest.raises(InUseError):
            move_run(run, bench.root / "archive")
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(reader)
        os.close(writer)
    assert run.run_json.is_file() and find_run("r1") == run


def test_where_a_run_cannot_lie(bench, run):
    (bench.root / "taken" / "r1").mkdir(parents=True)
    with pytest.raises(UsageError, match="exists"):
        move_run(run, bench.root / "taken")
    with pytest.raises(UsageError, match="inside the run itself"):
        move_run(run, run.path / "deeper")
    link = bench.root / "link"
    link.symlink_to(run.path)
    with pytest.raises(UsageError):
        move_run(RunDir(link), bench.root / "archive")
    (bench.root / "file").write_text("x")
    with pytest.raises(AlborError):
        move_run(run, bench.root / "file")
    assert move_run(run, bench.root / "out").path == str(run.path)  # it lies there already
    assert find_run("r1") == run
    with sqlite3.connect(global_store()) as db:
        assert db.execute("SELECT path FROM runs").fetchall() == [(str(run.path),)]
