"""What a viewer may ask of a guard, and what it is answered."""

from __future__ import annotations

import os
import time
from pathlib import Path

from guard_harness import ENDLESS, LIMIT_S, Bench, wait_until

from albor_core.feed.run.status import run_status
from albor_core.guard.launch import FORGET
from albor_core.run import control
from albor_core.run.rundir import read_json


def test_a_trainer_pauses_for_longer_than_its_patience_and_goes_on(box: Bench) -> None:
    box.prepare({"steps": ENDLESS})
    box.start()
    trainer = box.until_training()
    assert box.ask("pause").status == "done"
    wait_until(lambda: box.now().get("state") == "paused")
    paused_at = box.step()
    time.sleep(0.8)
    assert box.step() == paused_at
    assert box.ask("resume").status == "done"
    wait_until(lambda: box.now().get("state") == "running" and box.step() > paused_at + 2)
    assert box.trainer() == trainer
    assert "guard.hang" not in box.events()


def test_a_checkpoint_on_demand_is_answered_with_its_step(box: Bench) -> None:
    box.prepare({"steps": ENDLESS})
    box.start()
    box.until_training()
    found = box.ask("checkpoint")
    assert found.status == "done"
    step = int(found.detail.split()[-1])
    assert (box.run.checkpoints / f"step-{step:08d}" / "manifest.json").exists()


def test_stop_by_command_is_answered_when_it_is_over(box: Bench) -> None:
    box.prepare({"steps": ENDLESS})
    guard = box.start()
    box.until_training()
    found = box.ask("stop")
    assert found.status == "done"
    assert found.detail.startswith("stopped")
    assert guard.wait(LIMIT_S) == 143
    assert run_status(box.run).detail.startswith("asked by ")


def test_a_stop_says_who_asked_wherever_an_end_is_told(box: Bench) -> None:
    box.prepare({"steps": ENDLESS})
    guard = box.start()
    box.until_training()
    control.send(box.run, "stop", sender="cli")
    assert guard.wait(LIMIT_S) == 143
    by = f"asked by albor guard stop ({control.user_name()}, {os.uname().nodename})"
    assert run_status(box.run).detail == by
    assert box.records("attempt.end")[-1]["reason"].endswith(by)
    (asked,) = (r for r in box.records("event") if r["name"] == "guard.command")
    assert f"asked by {asked['data']['by']}" == by


def test_a_stop_by_a_signal_to_the_guard_says_so(box: Bench) -> None:
    box.prepare({"steps": ENDLESS})
    guard = box.start()
    box.until_training()
    guard.terminate()
    assert guard.wait(LIMIT_S) == 143
    assert run_status(box.run).detail == "asked by SIGTERM to its guard"


def test_a_stop_that_a_rule_asked_for_has_an_exit_code_of_its_own(box: Bench) -> None:
    box.prepare({"steps": ENDLESS})
    guard = box.start()
    box.until_training()
    control.send(box.run, "stop", sender=control.ANDON, by="alert rule loss-gt-5")
    assert guard.wait(LIMIT_S) == 4
    assert box.now()["state"] == "stopped"
    assert run_status(box.run).detail == "asked by alert rule loss-gt-5"


def test_stop_now_does_not_wait_for_a_deaf_trainer(box: Bench) -> None:
    box.prepare({"steps": ENDLESS, "ignore_term": True}, grace_s=60.0)
    guard = box.start()
    box.until_training()
    assert box.ask("stop_now").status == "done"
    assert guard.wait(LIMIT_S) == 143


def test_a_waiting_guard_can_be_told_to_retry_or_to_stop(box: Bench) -> None:
    box.prepare({"at": 2, "do": "abrt"}, {"at": 2, "do": "abrt"}, backoff_s=[600.0])
    guard = box.start()
    wait_until(lambda: box.now().get("state") == "backoff")
    assert box.ask("pause").status == "refused"
    assert box.ask("retry_now").status == "done"
    wait_until(lambda: len(box.classes()) == 2 and box.now().get("state") == "backoff")
    assert box.ask("stop").status == "done"
    assert guard.wait(LIMIT_S) == 143


def test_a_restarted_guard_goes_on_waiting_where_the_killed_one_was(box: Bench) -> None:
    box.prepare({"at": 2, "do": "abrt"}, backoff_s=[600.0])
    first = box.start()
    wait_until(lambda: box.now().get("state") == "backoff")
    until = box.now()["backoff"]
    assert box.now()["attempt"] == 1
    first.kill()
    first.wait()
    second = box.start()
    wait_until(lambda: box.now()["guard"]["pid"] == second.pid and box.now()["backoff"])
    assert box.now()["backoff"] == until
    assert box.now()["no_progress"] == 1


def test_a_guard_that_somebody_asked_for_does_not_wait_out_the_backoff_of_a_killed_one(
    box: Bench,
) -> None:
    """`albor train resume` and `albor guard retry` ask so; the second attempt is the proof."""
    box.prepare({"at": 2, "do": "abrt"}, {"steps": 5}, backoff_s=[600.0])
    first = box.start()
    wait_until(lambda: box.now().get("state") == "backoff")
    first.kill()
    first.wait()
    assert box.start(words=(FORGET,)).wait(LIMIT_S) == 0
    assert len(box.classes()) == 2


def test_a_plain_program_is_frozen_and_thawed_and_has_no_checkpoints(box: Bench) -> None:
    script = (
        "i=0; while :; do i=$((i+1)); echo $i > ticks.new; mv ticks.new ticks; sleep 0.02; done"
    )
    box.prepare_program("sh", "-c", script)
    box.start()
    ticks = box.run.path / "ticks"

    def count() -> int:
        return int(ticks.read_text() or 0) if ticks.exists() else 0

    wait_until(lambda: count() > 2)
    assert box.ask("checkpoint").status == "refused"
    assert box.ask("rollback").status == "refused"
    assert box.ask("pause").status == "done"
    wait_until(lambda: box.now().get("state") == "paused")
    frozen = count()
    time.sleep(0.3)
    assert count() == frozen
    assert box.ask("resume").status == "done"
    wait_until(lambda: count() > frozen)


def test_torn_expired_and_invented_commands_are_refused_with_a_reason(box: Bench) -> None:
    box.prepare({"steps": ENDLESS})
    box.start()
    trainer = box.until_training()
    now = time.time()
    whole = {"schema": "albor.command/1", "cmd": "stop", "from": "t", "not_after_wall": now + 30}
    assert box.plant("torn").status == "refused"
    assert box.plant("a1", **whole, id="another").status == "refused"
    assert "expired" in box.plant("a2", **{**whole, "id": "a2", "not_after_wall": now - 1}).detail
    assert "unknown" in box.plant("a3", **{**whole, "id": "a3", "cmd": "rm -rf"}).detail
    assert box.ask("ack").status == "done"
    assert box.trainer() == trainer


def test_commands_that_come_too_late_are_answered_too(box: Bench, tmp_path: Path) -> None:
    box.prepare({"steps": ENDLESS})
    guard = box.start()
    box.until_training()
    stop = control.send(box.run, "stop", sender="test")
    late = control.send(box.run, "checkpoint", sender="test")
    assert guard.wait(LIMIT_S) == 143
    answers = [read_json(box.run.guard / "outbox" / f"{i}.json") or {} for i in (stop, late)]
    assert answers[0]["status"] == "done"
    assert answers[1]["status"] in ("done", "refused")
