"""Checkpoints on the disk: written whole, damaged ones found, the right ones kept."""

import errno
import json
import os
import shutil
import threading

import pytest
import torch
from safetensors.torch import load_file, save

from albor_core.checkpoint import folder as ck
from albor_core.checkpoint import tensorfile
from albor_core.checkpoint.retention import Retention, discard_after, prune
from albor_core.checkpoint.saver import SaveFailed, Saver
from albor_core.checkpoint.tensorfile import read_tensors, write_tensors
from albor_core.outputs.identity import identity_of
from albor_core.run.errors import NoCheckpointError
from albor_core.run.files.tensor_header import DamagedFileError

TENSORS = {
    "b.weight": torch.arange(6, dtype=torch.float32).reshape(2, 3),
    "a.weight": torch.ones(3, dtype=torch.bfloat16),
    "step": torch.tensor(7.0),
    "ids": torch.arange(3),
    "empty": torch.zeros(0, 4),
}


def snapshot(step, value=1.0, val_loss=None):
    model = {"w": torch.full((8, 8), value), "n": torch.ones(8)}
    optimizer = {"exp_avg.w": torch.full((8, 8), value / 2), "step.w": torch.tensor(float(step))}
    return ck.Snapshot(
        step, model, optimizer, {"step": step}, {"offset": 1, "seq": 1}, {}, val_loss
    )


def write(folder, step, **more):
    folder.mkdir(exist_ok=True)
    return ck.write_checkpoint(
        folder, snapshot(step, **more), run_id="r", parent_id=None, hashes={"config_hash": "c"}
    )


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_tensor_file_is_what_the_library_writes_and_reads(tmp_path):
    path = tmp_path / "t.safetensors"
    written = write_tensors(path, TENSORS)
    assert path.read_bytes() == save(TENSORS, metadata={"format": "pt"})
    assert written.size == path.stat().st_size
    for found in (load_file(path), read_tensors(path)):
        assert set(found) == set(TENSORS)
        assert all(torch.equal(found[name], TENSORS[name]) for name in TENSORS)
        assert all(found[name].dtype == TENSORS[name].dtype for name in TENSORS)


def header_file(path, header, body=b""):
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(raw).to_bytes(8, "little") + raw + body)


ENTRY = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}


@pytest.mark.parametrize(
    ("header", "body"),
    [
        (b"{", b""),
        ([], b""),
        ({"a": ENTRY}, b"123"),  # cut
        ({"a": ENTRY}, b"12345"),  # grown
        ({"a": ENTRY, "b": ENTRY}, b"1234"),  # overlap
        ({"a": {**ENTRY, "data_offsets": [float("inf"), 4]}}, b"1234"),
        ({"a": {**ENTRY, "shape": [float("inf")]}}, b"1234"),
        ({"a": {**ENTRY, "data_offsets": [4, 8]}}, b"12345678"),  # hole
        ({"a": {**ENTRY, "shape": [2**62, 4]}}, b"1234"),
        ({"a": {**ENTRY, "shape": [-1]}}, b"1234"),
        ({"a": {**ENTRY, "dtype": "F12"}}, b"1234"),
        ({"a": {"shape": [1]}}, b"1234"),
    ],
)
def test_a_header_that_lies_is_refused_before_anything_is_allocated(tmp_path, header, body):
    header_file(tmp_path / "bad", header, body)
    with pytest.raises(DamagedFileError):
        read_tensors(tmp_path / "bad")


@pytest.mark.parametrize("raw", [b"", b"1234", (2**63 - 1).to_bytes(8, "little") + b"x" * 64])
def test_a_header_longer_than_its_file_is_refused(tmp_path, raw):
    (tmp_path / "bad").write_bytes(raw)
    with pytest.raises(DamagedFileError):
        read_tensors(tmp_path / "bad")


def test_a_checkpoint_goes_out_and_comes_back(tmp_path):
    written = write(tmp_path / "c", 5)
    found, rejected = ck.newest_usable(tmp_path / "c")
    assert (found.step, found.path, rejected) == (5, written.path, ())
    assert torch.equal(found.model()["w"], torch.ones(8, 8))
    assert found.optimizer()["step.w"].item() == 5.0
    assert found.trainer()["step"] == 5
    assert names(tmp_path / "c") == ["step-00000005"]


def flip(path):
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)


def halve(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def grow(path):
    path.write_bytes(path.read_bytes() + b"x")


DAMAGE = {
    "flipped": flip,
    "half": halve,
    "grown": grow,
    "empty": lambda path: path.write_bytes(b""),
    "missing": lambda path: path.unlink(),
    "a link": lambda path: (
        path.rename(path.with_suffix(".x")),
        path.symlink_to(path.with_suffix(".x")),
    ),
}


@pytest.mark.parametrize("file", [ck.MODEL, ck.OPTIMIZER, ck.TRAINER, ck.MANIFEST])
@pytest.mark.parametrize("damage", DAMAGE, ids=str)
def test_damage_is_found_set_aside_and_the_one_before_is_used(tmp_path, file, damage):
    write(tmp_path / "c", 5)
    newest = write(tmp_path / "c", 10)
    DAMAGE[damage](newest.path / file)
    found, rejected = ck.newest_usable(tmp_path / "c")
    assert found.step == 5
    assert [bad.path.name for bad in rejected] == ["bad-step-00000010"]
    assert rejected[0].reason
    assert names(tmp_path / "c") == ["bad-step-00000010", "step-00000005"]


def test_files_swapped_between_two_checkpoints_are_found(tmp_path):
    first, second = write(tmp_path / "c", 5, value=1.0), write(tmp_path / "c", 10, value=2.0)
    for name in (ck.MODEL, ck.MANIFEST):
        shutil.copy(first.path / name, second.path / name)
    found, rejected = ck.newest_usable(tmp_path / "c")
    assert found.step == 5
    assert "step 5" in rejected[0].reason


def test_a_manifest_edited_to_match_swapped_files_is_found(tmp_path):
    first, second = write(tmp_path / "c", 5, value=1.0), write(tmp_path / "c", 10, value=2.0)
    shutil.copy(first.path / ck.MODEL, second.path / ck.MODEL)
    manifest = json.loads((second.path / ck.MANIFEST).read_text())
    other = json.loads((first.path / ck.MANIFEST).read_text())
    manifest["files"][ck.MODEL] = other["files"][ck.MODEL]
    (second.path / ck.MANIFEST).write_text(json.dumps(manifest))
    assert ck.newest_usable(tmp_path / "c")[0].step == 5


@pytest.mark.parametrize(
    "change",
    [
        {"files": None}, {"files": []}, {"files": {"../x": {"size": 1, "hash": ""}}},
        {"files": {ck.MODEL: 3}}, {"step": "5"}, {"step": None}, {"id": None}, {"algo": ["blake3"]},
    ],
    ids=str,
)  # fmt: skip
def test_a_forged_manifest_whose_sums_are_right_is_set_aside(tmp_path, change):
    write(tmp_path / "c", 5)
    newest = write(tmp_path / "c", 10)
    manifest = json.loads((newest.path / ck.MANIFEST).read_text())
    del manifest["self_hash"]
    forged = {**manifest, **change}
    forged["self_hash"] = identity_of(forged)
    (newest.path / ck.MANIFEST).write_text(json.dumps(forged))
    found, rejected = ck.newest_usable(tmp_path / "c")
    assert (found.step, len(rejected)) == (5, 1)


def test_what_a_save_could_not_clean_up_the_next_one_does(tmp_path):
    left = tmp_path / "c" / "step-00000003.tmp"
    left.mkdir(parents=True)
    (left / "x").write_text("x")
    write(tmp_path / "c", 5)
    assert names(tmp_path / "c") == ["step-00000005"]


def test_no_run_starts_again_from_nothing_behind_our_back(tmp_path):
    for step in (5, 10):
        flip(write(tmp_path / "c", step).path / ck.MODEL)
    for _ in range(2):  # the second time nothing but bad- directories is left
        with pytest.raises(NoCheckpointError) as refusal:
            ck.newest_usable(tmp_path / "c")
        assert refusal.value.exit_code == 6
    (tmp_path / "new").mkdir()
    assert ck.newest_usable(tmp_path / "new") == (None, ())


def test_leftovers_of_a_killed_save_are_cleared(tmp_path):
    write(tmp_path / "c", 5)
    for name in ("step-00000010.part", "step-00000011.tmp", "step-00000003.del"):
        (tmp_path / "c" / name).mkdir()
        (tmp_path / "c" / name / "x").write_text("x")
    ck.newest_usable(tmp_path / "c")
    assert names(tmp_path / "c") == ["step-00000005"]


def test_a_kill_while_the_only_checkpoint_is_replaced_loses_nothing(tmp_path):
    path = write(tmp_path / "c", 5).path
    path.rename(path.with_suffix(".del"))
    found, _ = ck.newest_usable(tmp_path / "c")
    assert found.step == 5
    write(tmp_path / "c", 5, value=2.0)  # the same step again replaces it
    assert ck.newest_usable(tmp_path / "c")[0].model()["w"][0, 0].item() == 2.0
    assert names(tmp_path / "c") == ["step-00000005"]


def test_a_failing_disk_publishes_nothing_and_leaves_nothing(tmp_path, monkeypatch):
    write(tmp_path / "c", 5)

    def fail(fd):
        raise OSError(errno.EIO, "injected")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="injected"):
        write(tmp_path / "c", 10)
    assert names(tmp_path / "c") == ["step-00000005"]


def test_what_is_read_back_must_be_what_was_written(tmp_path, monkeypatch):
    real = tensorfile.write_file

    def write_badly(path, chunks):
        written = real(path, chunks)
        if path.name == ck.MODEL:
            flip(path)
        return written

    monkeypatch.setattr(tensorfile, "write_file", write_badly)
    with pytest.raises(DamagedFileError, match="read back"):
        write(tmp_path / "c", 5)
    assert names(tmp_path / "c") == []


def test_pruning_keeps_the_newest_the_best_the_milestones_and_the_source(tmp_path):
    folder = tmp_path / "c"
    for step in range(1, 10):
        write(folder, step)
    ck.mark_best(folder, 2, 3.5)
    prune(folder, keep=2, keep_every=4, source=8, sound=9)
    kept = [int(name[5:]) for name in names(folder) if name.startswith("step-")]
    assert kept == [2, 4, 8, 9]
    write(folder, 10)
    prune(folder, keep=2, keep_every=None, source=8, sound=9)
    kept = [int(name[5:]) for name in names(folder) if name.startswith("step-")]
    assert kept == [2, 9, 10]
    assert ck.best_of(folder) == (2, 3.5)


def test_pruning_keeps_the_newest_that_was_looked_at(tmp_path):
    folder = tmp_path / "c"
    for step in (2, 4, 6, 8, 10):
        write(folder, step)
    prune(folder, keep=2, keep_every=None, source=None, sound=5)
    assert names(folder) == ["step-00000004", "step-00000008", "step-00000010"]
    prune(folder, keep=2, keep_every=None, source=None, sound=10)
    assert names(folder) == ["step-00000008", "step-00000010"]


@pytest.mark.parametrize("doomed", ["step-00000001", "step-00000001.del"])
def test_x9_a_link_in_place_of_a_checkpoint_is_pruned_and_what_it_leads_to_stays(tmp_path, doomed):
    home, folder = tmp_path / "home", tmp_path / "c"
    home.mkdir()
    (home / "thesis.txt").write_text("mine")
    for step in (1, 2, 3):
        write(folder, step)
    if doomed == "step-00000001":
        shutil.rmtree(folder / doomed)
    (folder / doomed).symlink_to(home)
    prune(folder, keep=2, keep_every=None, source=None, sound=3)
    assert names(folder) == ["step-00000002", "step-00000003"]
    assert (home / "thesis.txt").read_text() == "mine"


def saver_in(folder, **more):
    folder.mkdir(exist_ok=True)
    (folder / "journal").touch()
    rule = Retention(keep=2)
    return Saver(folder, folder / "journal", run_id="r", hashes={}, retention=rule, **more)


def test_the_saver_writes_beside_the_loop_and_remembers_the_best(tmp_path):
    saver = saver_in(tmp_path / "c")
    for step, val_loss in ((1, 4.0), (2, 3.0), (3, 3.5), (4, None)):
        saver.start(snapshot(step, val_loss=val_loss))
        assert saver.wait(30)
    assert [saved.step for saved in saver.results()] == [1, 2, 3, 4]
    assert saver.last_step == 4
    assert ck.best_of(tmp_path / "c") == (2, 3.0)
    assert [path.name[-1] for path in ck.list_checkpoints(tmp_path / "c")] == ["4", "3", "2"]
    manifests = [ck.verify(path).manifest for path in ck.list_checkpoints(tmp_path / "c")]
    assert manifests[0]["parent_id"] == manifests[1]["id"]


def test_a_full_disk_is_counted_and_the_next_save_tries_again(tmp_path, monkeypatch):
    saver = saver_in(tmp_path / "c")
    monkeypatch.setattr(ck, "SLACK_BYTES", 1 << 60)
    for step in (1, 2):
        saver.start(snapshot(step))
        saver.wait(30)
    failures = saver.results()
    assert [(type(f), f.in_a_row) for f in failures] == [(SaveFailed, 1), (SaveFailed, 2)]
    assert "no room" in failures[0].reason
    monkeypatch.undo()
    saver.start(snapshot(3))
    saver.wait(30)
    assert [saved.step for saved in saver.results()] == [3]
    assert saver.failures == 0


def test_trouble_while_pruning_is_reported_and_the_checkpoint_counts(tmp_path, monkeypatch):
    from albor_core.checkpoint import saver as saver_module

    def fail(folder, **more):
        raise OSError(errno.EIO, "injected")

    monkeypatch.setattr(saver_module, "prune", fail)
    saver = saver_in(tmp_path / "c")
    saver.start(snapshot(1))
    saver.wait(30)
    saved, trouble = saver.results()
    assert (saved.step, trouble.in_a_row) == (1, 0)
    assert "injected" in trouble.reason
    assert saver.last_step == 1


def test_a_rollback_takes_the_mark_of_a_best_that_it_removes(tmp_path):
    for step in (1, 2):
        write(tmp_path, step)
    ck.mark_best(tmp_path, 2, 1.5)
    discard_after(tmp_path, 1)
    write(tmp_path, 2, value=3.0)  # the same step again, on other data
    assert ck.best_of(tmp_path) is None
    ck.mark_best(tmp_path, 1, 1.6)
    discard_after(tmp_path, 1)
    assert ck.best_of(tmp_path) == (1, 1.6)


def test_a_save_that_fails_in_another_way_is_heard_of(tmp_path, monkeypatch):
    from albor_core.checkpoint import saver as saver_module

    def fail(*args, **more):
        raise MemoryError("injected")

    saver = saver_in(tmp_path / "c")
    with monkeypatch.context() as patch:
        patch.setattr(saver_module, "write_checkpoint", fail)
        saver.start(snapshot(1))
        saver.wait(30)
    (failed,) = saver.results()
    assert (failed.step, failed.in_a_row) == (1, 1)
    assert failed.reason == "MemoryError: injected"


def test_after_a_rollback_nothing_is_saved_until_a_checkpoint_tells_of_it(tmp_path):
    from albor_core.train.resume.saving import CheckpointSaving

    folder = tmp_path / "c"
    saver = saver_in(folder)
    saver.start(snapshot(3))
    saver.wait(30)
    saver.results()
    saving = CheckpointSaving(saver, Stub(), lambda *answer: None)
    assert saving.has(3, None)
    saving.went_back(ck.verify(folder / "step-00000003"))  # no validation: none was evaluated
    assert not saving.has(3, None)
    saving.save(lambda: snapshot(3), 3, None)
    saving.wait(30)
    assert saving.has(3, None)


def test_who_asks_during_a_save_is_answered_by_the_next_one(tmp_path):
    from albor_core.train.resume.saving import CheckpointSaving

    go_on, said = threading.Event(), []
    saver = saver_in(tmp_path / "c", after_publish=lambda step: go_on.wait(30))
    saving = CheckpointSaving(saver, Stub(), lambda *answer: said.append(answer))
    saving.ask("first")
    saving.save(lambda: snapshot(1), 1, None)
    saving.ask("second")  # of step 2, say: the snapshot of step 1 does not hold it
    go_on.set()
    saving.wait(30)
    assert said == [("first", "done", "checkpoint of step 1")]
    saving.save(lambda: snapshot(2), 2, None)
    saving.wait(30)
    assert said[1:] == [("second", "done", "checkpoint of step 2")]
    saving.ask("third")
    saving.turn_down("the run has ended: diverged")
    assert said[2:] == [("third", "refused", "the run has ended: diverged")]


class Stub:
    """A reporter whose journal takes everything."""

    def __init__(self):
        self.state = type("State", (), {"fields": {"checkpoint": {}}})()
        self.journal = self
        self.pending = 0

    def retry(self):
        pass

    def event(self, name, **data):
        pass

    def append(self, kind, /, **fields):
        pass


def test_a_save_in_a_pause_does_not_count_the_pause_as_steps(monkeypatch):
    from albor_core.train.step import brick_timer

    now = [0.0]
    monkeypatch.setattr(brick_timer.time, "perf_counter", lambda: now[0])
    clock = brick_timer.StepClock(torch.device("cpu"))
    now[0] = 1.0
    with clock.held():
        now[0] = 100.0
        with clock.held():
            now[0] = 101.0
        now[0] = 200.0
    now[0] = 201.0
    assert clock.lap(clock.mark()) == 2.0


@pytest.mark.parametrize("half", [".part", ".tmp"], ids=["now", "by an earlier version"])
def test_a_kill_while_one_is_replaced_loses_neither(tmp_path, half):
    for step, value in ((1, 1.0), (2, 1.0)):
        write(tmp_path, step, value=value)
    (tmp_path / "step-00000002").rename(tmp_path / "step-00000002.del")
    write(tmp_path, 2, value=5.0)
    (tmp_path / "step-00000002").rename(tmp_path / f"step-00000002{half}")
    found, rejected = ck.newest_usable(tmp_path)
    assert (found.step, rejected) == (2, ())
    assert float(found.model()["w"][0, 0]) == 5.0
    assert names(tmp_path) == ["step-00000001", "step-00000002"]
