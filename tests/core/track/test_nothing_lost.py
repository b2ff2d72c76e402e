"""What a loop said is there, or it is said what is not: many names, figures said later, full disks."""

import errno
import os

import pytest

from albor_core import track
from albor_core.guard.process.index_process import IndexProcess
from albor_core.run.rundir import albor_home
from albor_core.run.values import metrics
from albor_core.store.index.catch_up import drain_index
from albor_core.store.query.export import pages
from albor_core.store.query.reader import Reader
from albor_core.track import artifact_versions


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    for word in ("RUN_DIR", "ATTEMPT", "NONCE", "RUN_LOCK_FD"):
        monkeypatch.delenv(f"ALBOR_{word}", raising=False)
    monkeypatch.setattr(IndexProcess, "tend", lambda self: None)


def series(run):
    drain_index(run.dir)
    with Reader(run.dir.store) as reader:
        return {key: [p[:2] for p in reader.points(run.id, key)] for key in reader.keys(run.id)}


def test_house_and_goal_metrics_have_room_behind_any_number_of_names(monkeypatch, capsys):
    monkeypatch.setattr(metrics, "MAX_NAMES", 5)
    with track.start("many", goals={"mine": "max"}, console=False) as run:
        run.log({f"k/{i}": i for i in range(7)}, step=1)
        run.log({"val_loss": 0.5, "mine": 2.0, "other": 1.0}, step=2)
        assert "'k/5'" in capsys.readouterr().err  # told when it is logged
    found = series(run)
    assert found["val/loss"] == [(2, 0.5)] and found["mine"] == [(2, 2.0)]
    assert "k/4" in found and not {"k/5", "other"} & found.keys()
    with Reader(run.dir.store) as reader:
        told = reader.events(run.id, names=(metrics.NO_ROOM_EVENT,))[-1].data
    assert told == {"first": "k/5", "left_out": 3, "names": 8}


def test_an_export_asks_for_each_name_once(monkeypatch):
    def asked(count):
        with track.start("names", console=False) as run:
            run.log({f"k/{i}": i for i in range(count)}, step=1)
        drain_index(run.dir)
        steps = 0

        def tick():
            nonlocal steps
            steps += 1

        made = Reader.__enter__

        def enter(reader):
            opened = made(reader)
            reader._db.set_progress_handler(tick, 10)
            return opened

        with monkeypatch.context() as patch:
            patch.setattr(Reader, "__enter__", enter)
            assert sum(map(len, pages(run.dir))) == count
        return steps

    assert asked(200) <= 2.2 * asked(100)


def test_a_validation_figure_logged_later_takes_no_training_back():
    with track.start("late", id="late-1", console=False) as run:
        for step in range(1, 21):
            run.log({"loss": 1 / step, **({"val_loss": 2.0} if step % 10 == 0 else {})}, step=step)
    with track.start(id="late-1", resume="must", console=False) as run:
        run.log({"val_loss": 0.041}, step=10)
    found = series(run)
    assert len(found["train/loss"]) == 20
    assert found["val/loss"] == [(10, 0.041), (20, 2.0)]


def test_training_that_begins_again_says_what_goes_and_how_to_read_it(capsys):
    with track.start("again", id="again-1", console=False) as run:
        for step in range(1, 21):
            run.log({"loss": 1 / step, "val_loss": 2.0}, step=step)
    with track.start(id="again-1", resume="allow", console=False) as run:
        run.log({"val_loss": 1.0}, step=10)  # an evaluation before the first step
        run.log({"loss": 0.5}, step=11)
    said = capsys.readouterr().err
    assert "2 metrics had after step 10 is taken back" in said and "metrics_discarded" in said
    found = series(run)
    assert len(found["train/loss"]) == 11 and found["val/loss"][-1] == (10, 1.0)


def test_a_version_that_the_disk_took_in_part_is_not_given(monkeypatch, tmp_path):
    def version(digit):
        return artifact_versions.Version(
            "model", 0, f"blake3:{digit * 64}", 1, "", "r", "", str(tmp_path), 0.0
        )

    artifact_versions.take(version("a"))
    whole = os.write

    def part(fd, data):
        monkeypatch.setattr(os, "write", full)
        return whole(fd, data[:10])

    def full(fd, data):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", part)
    with pytest.raises(OSError, match="No space"):
        artifact_versions.take(version("b"))
    monkeypatch.setattr(os, "write", whole)
    (kept,) = (albor_home() / "artifacts").glob("*.jsonl")
    assert len(kept.read_bytes().splitlines()) == 1
    assert artifact_versions.take(version("c")).version == 2
