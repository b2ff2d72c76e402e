"""Names of checkpoints: one pattern, for every step that a run can come to."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from albor_core.checkpoint.folder import list_checkpoints
from albor_core.checkpoint.retention import discard_after, surplus
from albor_core.feed.archive.checkpoints import Shelf
from albor_core.guard import loop as guard_loop
from albor_core.outputs.place import remove
from albor_core.run.checkpoints import CheckpointName, entries, name_of, newest, parse, step_of
from albor_core.store.index.write import _step_of as step_of_artifact

BEFORE, AT, AFTER = 99_999_999, 100_000_000, 1_200_000_000


def make(folder: Path, name: str, *, step: int) -> Path:
    path = folder / name
    path.mkdir(parents=True)
    (path / "w").write_bytes(b"w")
    manifest = {"step": step, "created": 1.0, "files": {"w": {"size": 1, "hash": "h"}}}
    (path / "manifest.json").write_text(json.dumps(manifest))
    return path


@pytest.fixture
def saved(tmp_path):
    """Three checkpoints across the step from which names have nine digits."""
    for step in (BEFORE, AT, AFTER):
        make(tmp_path, name_of(step), step=step)
    return tmp_path


def test_guard_trainer_and_cockpit_agree_on_the_newest_beyond_eight_digits(saved):
    after = saved / "step-1200000000"
    assert newest(saved) == (AFTER, after)
    assert guard_loop.newest is newest
    assert list_checkpoints(saved)[0] == after
    assert [(one.step, one.is_latest) for one in Shelf(saved).look().saved] == [
        (AFTER, True),
        (AT, False),
        (BEFORE, False),
    ]


def test_the_newest_beyond_eight_digits_is_the_one_that_is_kept(saved):
    assert surplus(saved, keep=1) == [saved / name_of(AT), saved / name_of(BEFORE)]


def test_a_run_that_goes_back_drops_what_lies_ahead_beyond_eight_digits(saved):
    discard_after(saved, BEFORE)
    assert [path.name for path in list_checkpoints(saved)] == ["step-99999999"]


def test_the_store_reads_the_step_of_an_artefact_beyond_eight_digits():
    assert step_of_artifact({"kind": "checkpoint", "name": name_of(AT)}) == AT


@pytest.mark.parametrize("step", [0, 1, BEFORE, AT, 10**9, 10**12, 2**48])
def test_a_step_is_read_back_from_its_name(step):
    assert step_of(name_of(step)) == step
    for half in (".part", ".tmp"):  # now, and by earlier versions
        assert parse(f"{name_of(step)}{half}") == CheckpointName(step, suffix=".part")
    assert parse(f"bad-{name_of(step)}-2") == CheckpointName(step, is_bad=True)


@pytest.mark.parametrize(
    "name",
    [
        *("latest", "step-", "step-1", "step-0000001", "step-000000001", "step-00000001-2"),
        *("step-00000001.bak", "xstep-00000001", "step-00000001\n", "step-\u0660" + "0" * 7),
    ],
)
def test_what_no_trainer_would_have_named_is_left_alone(tmp_path, name):
    make(tmp_path, name, step=1)
    assert list(entries(tmp_path)) == []
    assert newest(tmp_path) is None
    assert Shelf(tmp_path).look().saved == ()


def test_a_newer_one_without_a_manifest_is_not_what_the_run_can_go_on_from(saved):
    (saved / name_of(AFTER) / "manifest.json").unlink()
    assert newest(saved) == (AT, saved / name_of(AT))
    assert newest(saved, is_readable=False) == (AFTER, saved / name_of(AFTER))


def test_what_a_killed_prune_left_of_a_damaged_one_can_be_removed(tmp_path):
    half = make(tmp_path, "bad-step-00000004.del", step=4)
    remove(half)
    assert list(tmp_path.iterdir()) == []
