"""Whoever waited for a run learns why it ended and what to do next; what ended is left alone."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys

import click
import pytest
from cli_user import FEW_STEPS, LOSSY, SLOW_STEPS, damage_a_shard, wait_until, write_config
from test_cli_survival import read_all, terminal

from albor_core.checkpoint.folder import list_checkpoints
from albor_core.cli.common import follow
from albor_core.run.errors import StoreError
from albor_core.run.rundir import read_json

pytestmark = pytest.mark.slow


def snapshot(folder):
    return {
        path: (path.stat().st_mtime_ns, path.stat().st_size)
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_a_shard_that_went_bad_is_named_where_the_run_was_waited_for(user, data, tmp_path):
    copy = tmp_path / "copy"
    shard = damage_a_shard(data, copy)
    write_config(user.folder / "tiny.yaml", copy)
    result = user.albor("train", "apply", "tiny.yaml", "--name", "bad")
    assert result.code == 7
    assert shard.name in result.err and "albor data pretokenize" in result.err


def test_an_alert_that_stopped_a_run_is_named_with_the_command_that_lists_it(user):
    result = user.albor(
        *("train", "apply", "tiny.yaml", "--name", "hot", "--set", LOSSY),
        *("--set", "training.warmup_steps=0"),
        ALBOR_FAULTS="loss:x100@3-1000",
    )
    assert result.code == 4
    assert "Loss exploded" in result.err and "next: albor alerts ls hot" in result.err
    (row,) = user.quick("runs", "ls", "status:stopped", "--json").document["runs"]
    told = [
        user.quick(*verb, "hot", "--json").document for verb in (("runs", "show"), ("monitor",))
    ]
    assert row["status"] == told[0]["status"] == told[1]["status"]["word"] == "stopped"


def test_a_run_that_its_own_limit_ended_is_told_of_with_the_command_that_shows_why(user):
    result = user.albor(
        *("train", "apply", "tiny.yaml", "--name", "nan", "--set", "training.nan_limit=3"),
        *("--set", "training.stability.max_rollbacks=0"),
        ALBOR_FAULTS="loss:nan@3-1000",
    )
    assert (result.code, "nan_limit" in result.err) == (4, True), result
    assert "note: " in result.err and "tokens per parameter" in result.err  # as the plan says
    hint = "albor runs tail nan; when the cause is fixed: albor train resume nan"
    assert f"next: {hint}" in result.err
    assert "step.skipped" in user.quick("runs", "tail", "nan").out


def test_a_store_in_trouble_hides_nothing_of_how_the_run_ended(user, monkeypatch, capsys):
    user.albor(
        *("train", "apply", "tiny.yaml", "--name", "ill", "--set", LOSSY),
        ALBOR_FAULTS="loss:x100@3-1000",
    )

    def refuses(run):
        raise StoreError("experiments.db: disk I/O error", hint="albor db rebuild")

    monkeypatch.setattr(follow, "drain_index", refuses)
    with click.Context(click.Command("apply")):
        ways = {"as_json": True, "detach": False, "stop_on_interrupt": False}
        assert follow.follow(user.run("ill"), lambda: None, **ways) == 4
    told = capsys.readouterr()
    assert json.loads(told.out)["exit_code"] == 4
    assert "disk I/O error" in told.err and "next: albor db rebuild" in told.err
    assert "ill stopped (exit code 4): andon" in told.err


def test_a_run_that_went_on_without_its_guard_ended_as_its_own_last_words_say(user):
    run = user.apply("bare", "--set", "training.max_steps=40", ALBOR_FAULTS=FEW_STEPS)
    wait_until(lambda: run.liveness().trainer)
    assert user.quick("guard", "stop", "bare").code == 0
    program = (sys.executable, "-P", "-m", "albor_core.train", str(run.path))
    assert subprocess.run(program, env=user.environment(), timeout=180, check=False).returncode == 0
    told = [
        user.quick(*verb, "bare", "--json").document for verb in (("runs", "show"), ("monitor",))
    ]
    assert told[0]["status"] == told[1]["status"]["word"] == "completed"
    (row,) = user.quick("runs", "ls", "--json").document["runs"]
    assert row["status"] == "completed"


def test_a_guard_that_gave_up_says_why_and_each_wait_is_told_once(user):
    options = ("--option", "backoff_s=[0.6]", "--option", "max_restarts=2")
    program = (sys.executable, "-c", "import os; print('hi', flush=True); os.abort()")
    result = user.albor("guard", "run", "--name", "sick", *options, "--", *program)
    assert result.code == 5
    assert result.err.count("attempt 2 in") == result.err.count("attempt 3 in") == 1
    assert "sick failed (exit code 5)" in result.err and "next: albor runs show sick" in result.err


def test_no_usable_checkpoint_says_which_was_refused_and_why(user):
    result = user.albor(
        *("train", "apply", "tiny.yaml", "--name", "torn", "--set", "training.max_steps=20"),
        *("--set", "training.warmup_steps=1"),
    )
    assert result.code == 0
    run = user.run("torn")
    for weights in run.checkpoints.glob("step-*/model.safetensors"):
        raw = bytearray(weights.read_bytes())
        raw[-1] ^= 1
        weights.write_bytes(raw)
    first, result = result, user.albor("train", "resume", "torn", "--allow-config-change")
    assert (result.code, "completed" in first.err) == (6, True)
    assert "completed" not in result.err, result.err
    assert "bad-step-" in result.err and "next: restore one there" in result.err


def test_resuming_a_completed_run_changes_nothing(old_hand):
    run = old_hand.run("calm")
    before = snapshot(run.path)
    result = old_hand.albor("train", "resume", "calm")
    assert (result.code, "nothing to resume" in result.err) == (0, True)
    assert old_hand.albor("train", "resume", "calm", "--json").document["outcome"] == "ended"
    assert snapshot(run.path) == before


def test_apply_goes_on_with_a_run_of_its_config_alone_and_with_none_that_completed(old_hand):
    run = old_hand.run("calm")
    before = snapshot(run.path)
    apply = ("train", "apply", "tiny.yaml", "--json", "--resume")
    for path in (run.path, list_checkpoints(run.checkpoints)[-1]):
        told = old_hand.quick(*apply, path)
        assert (told.code, told.document["run"]["id"]) == (0, "calm"), told
        assert told.document["outcome"] == "ended" and "nothing to resume" in told.err
        other = ("--set", "training.max_steps=60", "--seed", "9")
        refused = old_hand.quick(*apply, path, *other)
        assert refused.code == 2
        fields = [problem["field"] for problem in refused.error["problems"]]
        assert fields == ["training.max_steps", "training.seed"]
        assert "training.max_steps: 40 -> 60" in refused.error["message"]
        assert refused.error["hint"].startswith("albor train resume calm ")
    renamed = old_hand.quick(*apply, run.path, "--name", "storm")
    assert (renamed.code, "--name storm" in renamed.error["message"]) == (2, True)
    lost = old_hand.quick(*apply, run.checkpoints / "step-99999999")
    assert (lost.code, "step-99999999" in lost.error["message"]) == (3, True)
    assert snapshot(run.path) == before


def test_stopping_says_where_it_stopped_and_stopping_again_is_done_already(user):
    run = user.apply("brief", "--set", "training.epochs=100", ALBOR_FAULTS=SLOW_STEPS)
    wait_until(lambda: (read_json(run.state) or {}).get("global_step"))
    first = user.albor("guard", "stop", "brief")
    assert first.code == 0 and "stopped at step" in first.out
    assert "albor train resume brief" in first.out
    second = user.albor("guard", "stop", "brief")
    assert second.code == 0 and "stopped at step" in second.out
    refused = user.albor("guard", "pause", "brief", "--json")
    assert (refused.code, refused.error["hint"]) == (3, "albor train resume brief")
    assert refused.error["message"].startswith("cannot pause brief: it is stopped at step")


@pytest.mark.parametrize(
    ("name", "command", "hint"),
    [
        ("done", ["true"], "albor runs show done"),
        ("torn", ["sh", "-c", "exit 3"], "albor guard retry torn"),
        ("shy", ["false", "--password", "x"], "albor guard run -- CMD"),
    ],
)
def test_asking_an_ended_program_to_pause_is_told_how_it_ended(desk, name, command, hint):
    ended = ("--option", "max_restarts=0", "--", *command)
    desk.albor("guard", "run", "--name", name, *ended)
    for verb in ("pause", "resume", "checkpoint"):
        refused = desk.quick("guard", verb, name, "--json")
        assert (refused.code, refused.error["hint"]) == (3, hint), refused
        assert refused.error["message"].startswith(f"cannot {verb} {name}: it is ")


def test_a_refused_apply_names_the_plan_with_the_same_overrides(user):
    result = user.quick(
        "train", "apply", "tiny.yaml", "--set", "training.max_steps=100000", "--seed", "3"
    )
    assert result.code == 2
    assert "next: albor train plan tiny.yaml --set training.max_steps=100000 --seed 3" in result.err


def test_an_interrupt_while_the_guard_is_starting_leaves_a_run_that_is_told_of(user):
    words = ("train", "apply", "tiny.yaml", "--name", "early", "--set", "training.epochs=100")
    process, line = terminal(user, *words, ALBOR_FAULTS=SLOW_STEPS)
    run = user.run("early")
    wait_until(lambda: run.run_json.is_file())  # it exists, and nobody follows it yet
    process.send_signal(signal.SIGINT)
    heard = read_all(line)
    assert process.wait(timeout=30) in (0, 130)
    if process.returncode == 0:
        assert "early continues without this terminal" in heard
    else:
        assert run.liveness().guard is None


def test_an_edited_config_is_refused_by_field_and_taken_when_allowed(user):
    """What --set said at the start stays, except where the file says something else now."""
    first = user.albor(
        *("train", "apply", "tiny.yaml", "--name", "more", "--set", "optimizer.lr=0.002"),
        *("--set", "training.max_steps=20"),
    )
    assert first.code == 0, first
    run = user.run("more")
    path, before = run.config_yaml, snapshot(run.path)
    text = path.read_text()
    path.write_text(text + "\ngarbage: [\n")
    broken = user.albor("train", "resume", "more", "--allow-config-change")
    assert (broken.code, str(path) in broken.err) == (2, True), broken
    path.write_text(re.sub(r"max_steps: \d+", "max_steps: 30", text))
    refused = user.albor("train", "resume", "more")
    assert refused.code == 2, refused
    assert "training.max_steps: 20 -> 30" in refused.err and "optimizer.lr" not in refused.err
    assert "--allow-config-change" in refused.err
    after = snapshot(run.path)
    assert {p for p in before | after if before.get(p) != after.get(p)} == {path}
    went_on = user.albor("train", "resume", "more", "--allow-config-change")
    assert went_on.code == 0, went_on
    resolved = read_json(run.config_resolved)
    assert (resolved["training"]["max_steps"], resolved["optimizer"]["lr"]) == (30, 0.002)
    assert run.metadata()["max_steps"] == 30
    assert list_checkpoints(run.checkpoints)[0].name == "step-00000030"
    assert user.albor("train", "resume", "more").code == 0  # no edit any more
