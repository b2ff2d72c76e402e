"""`albor checkpoints` and `albor runs digest`: what a run has saved, and what may go."""

from __future__ import annotations

import shutil

import pytest
from cli_user import User, tree_hash, validate

from albor_core.run.rundir import RunDir


@pytest.fixture
def saved(old_hand: User, tmp_path) -> tuple[User, RunDir]:
    """A copy of a finished run with some checkpoints, and a user in a home of their own."""
    user = User(tmp_path / "work", tmp_path / "home")
    user.folder.mkdir()
    shutil.copytree(old_hand.run("calm").path, user.folder / "calm")
    run = RunDir(user.folder / "calm")
    assert len(names(run)) >= 2
    return user, run


def names(run: RunDir) -> list[str]:
    return sorted(path.name for path in run.checkpoints.glob("*step-*"))


def flip(run: RunDir, name: str) -> None:
    path = run.checkpoints / name / "model.safetensors"
    raw = bytearray(path.read_bytes())
    raw[-1] ^= 1
    path.write_bytes(raw)


def test_every_byte_is_compared_and_nothing_is_changed(saved):
    user, run = saved
    whole = validate(user.quick("checkpoints", "verify", str(run.path), "--json").document)
    assert [one["is_whole"] for one in whole["checkpoints"]] == [True] * len(names(run))
    newest = names(run)[-1]
    flip(run, newest)
    before = tree_hash(run.path)
    listed = user.quick("checkpoints", "verify", str(run.path))
    assert listed.code == 1
    assert "model.safetensors is damaged" in listed.out
    one = user.quick("checkpoints", "verify", str(run.path), str(int(newest[5:])), "--json")
    assert one.code == 6  # of what was asked for nothing can be used
    assert tree_hash(run.path) == before


def test_a_step_that_was_not_saved_is_named(saved):
    user, run = saved
    refused = user.quick("checkpoints", "verify", str(run.path), "99999")
    assert refused.code == 3
    assert "has no step-00099999" in refused.err
    assert "albor checkpoints ls" in refused.err


def test_pruning_keeps_the_newest_and_the_best_and_asks_first(saved):
    user, run = saved
    before = names(run)
    refused = user.quick("checkpoints", "prune", str(run.path))
    assert (refused.code, names(run)) == (2, before)
    shown = validate(
        user.quick("checkpoints", "prune", str(run.path), "--dry-run", "--json").document
    )
    assert names(run) == before
    done = validate(user.quick("checkpoints", "prune", str(run.path), "--yes", "--json").document)
    assert done["removed"] == shown["removed"]
    gone = {one["name"] for one in done["removed"]}
    assert names(run) == [name for name in before if name not in gone]
    assert before[-1] in names(run)
    rows = user.quick("checkpoints", "ls", str(run.path), "--json").document["checkpoints"]
    assert all(row["is_latest"] or row["is_best"] for row in rows)


def test_checkpoints_of_a_run_that_is_alive_are_left_alone(saved, hold):
    user, run = saved
    before = names(run)
    hold(run.run_lock)
    refused = user.quick("checkpoints", "prune", str(run.path), "--yes")
    assert (refused.code, names(run)) == (8, before)
    assert "the run is active" in refused.err


def test_a_digest_is_of_the_state_and_not_of_names(saved, tmp_path):
    user, run = saved
    first = validate(user.quick("runs", "digest", str(run.path), "--json").document)
    other = tmp_path / "another-name"
    shutil.copytree(run.path, other)
    again = user.quick("runs", "digest", str(other))
    assert again.out.split() == [str(first["step"]), first["digest"]]
    flip(RunDir(other), names(RunDir(other))[-1])
    assert user.quick("runs", "digest", str(other)).code == 6


def test_a_digest_of_a_run_without_a_checkpoint_says_what_works(saved):
    user, run = saved
    for name in names(run):
        shutil.rmtree(run.checkpoints / name)
    refused = user.quick("runs", "digest", str(run.path), "--json")
    assert (refused.code, refused.error["hint"]) == (3, f"albor runs show {run.id}")


def test_what_was_removed_is_counted_as_people_count(saved):
    user, run = saved
    told = [user.quick("checkpoints", "prune", str(run.path), "--yes").out for _ in range(2)]
    assert told[1] == "0 checkpoints, 0 B\n" and "(s)" not in told[0]


def test_pruning_lets_go_of_the_run(saved):
    user, run = saved
    assert user.quick("checkpoints", "prune", str(run.path), "--dry-run").code == 0
    assert not run.liveness().is_alive
